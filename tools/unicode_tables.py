#!/usr/bin/env python3
"""Writes cohort/data/tokens/unicode_tables.inc from Python's own Unicode data: unicode_tables.py > that file.

folded      what BERT's normaliser makes of a character: decomposed (NFD) without nonspacing marks, then in lower case; only where it differs
punctuation ranges of category P;  blank  of White_Space;  control  of Cc, Cf, Co and Cs;  of the last version that all have
"""
import sys
import unicodedata as u

POINTS = [p for p in range(0x110000) if not 0xD800 <= p < 0xE000]
HANGUL = range(0xAC00, 0xD7A4)  # decomposed by formula


def folded(point):
    kept = [c for c in u.normalize("NFD", chr(point)) if u.category(c) != "Mn"]
    return "".join(c.lower() if c != "\u03a3" else "\u03c3" for c in kept)


def ranges(name, holds):
    found = []
    for point in POINTS:
        if not holds(chr(point)):
            continue
        if found and found[-1][1] == point - 1:
            found[-1][1] = point
        else:
            found.append([point, point])
    print(f"constexpr Range k{name}[] = {{" + ", ".join(f"{{0x{a:X}, 0x{b:X}}}" for a, b in found) + "};")


def lines(text, width=138):
    while text:
        cut = len(text) if len(text) <= width else text.rfind(" ", 0, width)
        print(text[:cut].rstrip())
        text = text[cut:].lstrip()


print("// Written by tools/unicode_tables.py: Unicode " + u.unidata_version + ".")
print("// clang-format off")
ranges("Punctuation", lambda c: u.category(c).startswith("P"))
ranges("Control", lambda c: u.category(c) in ("Cc", "Cf", "Co", "Cs"))
ranges("Blank", lambda c: c.isspace() and c not in "\x1c\x1d\x1e\x1f")
entries = [(p, folded(p)) for p in POINTS if p not in HANGUL and folded(p) != chr(p)]
print(f"constexpr Fold kFolds[] = {{  // {len(entries)} characters, at most {max(len(t) for _, t in entries)} of what each becomes")
lines(" ".join(f"{{0x{p:X},{{{','.join(f'0x{ord(c):X}' for c in t)}}}}}," for p, t in entries))
print("};")
print("// clang-format on")
