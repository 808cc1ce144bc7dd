#!/usr/bin/env python3
"""The rooms of the house and the arrows between them, read from the includes.

tools/rooms.py            prints the picture as text
tools/rooms.py --check    fails when an include points up or sideways, or when docs/rooms.svg is out of date
tools/rooms.py --draw     writes docs/rooms.svg

The layer of a room is the LAYER of its cohort_room(...) or cohort_module(...) line. A room includes rooms of lower layers only, never a sibling.
cohort/cohort.h is the door for outside programs: it includes what it likes, and no room includes it.
"""
import argparse
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SVG = ROOT / "docs" / "rooms.svg"
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]cohort/([^">]+)[">]')
ROOM = re.compile(r"^\s*cohort_(?:room|module)\(\s*(\w+)\s+LAYER\s+(\d+)", re.MULTILINE)
SUFFIXES = {".h", ".cc", ".inc", ".cu", ".cuh"}


def read_layers(root):
    """{room: layer}, from the CMakeLists.txt of every room."""
    layers = {}
    for file in sorted(root.glob("cohort/*/CMakeLists.txt")):
        layers.update({room: int(layer) for room, layer in ROOM.findall(file.read_text())})
    return layers


def read_includes(root):
    """(file, line number, room of the file, path included below cohort/) for every include of ours inside a room."""
    for file in sorted((root / "cohort").rglob("*")):
        path = file.relative_to(root / "cohort")
        if file.suffix not in SUFFIXES or len(path.parts) < 2:
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if match := INCLUDE.match(line):
                yield file.relative_to(root), number, path.parts[0], match[1]


def wrong(layers, room, included):
    """Why this include may not be, or None."""
    target = included.split("/")[0] if "/" in included else None
    if room not in layers:
        return f"room {room} has no cohort_room({room} LAYER n ...) line"
    if target is None:
        return f"cohort/{included} is for outside programs; include the header you need"
    if target == room:
        return None
    if target not in layers:
        return f"cohort/{target} is no room (no cohort_room line there)"
    if layers[target] > layers[room]:
        return f"{room} (layer {layers[room]}) points up at {target} (layer {layers[target]}); move the code down, or the need up"
    if layers[target] == layers[room]:
        return f"{room} points sideways at {target}: siblings of layer {layers[room]} do not know each other; share through a lower room"
    return None


def reduced(arrows):
    """Without the arrows that longer paths already tell (a -> c when a -> b -> c)."""

    def reach(start):
        seen, todo = set(), list(arrows[start])
        while todo:
            room = todo.pop()
            if room not in seen:
                seen.add(room)
                todo += arrows[room]
        return seen

    return {room: {t for t in targets if not any(t in reach(other) for other in targets if other != t)} for room, targets in arrows.items()}


def by_layer(layers):
    rows = collections.defaultdict(list)
    for room, layer in layers.items():
        rows[layer].append(room)
    return sorted(rows.items(), reverse=True)


def picture(layers, arrows):
    lines = []
    for layer, rooms in by_layer(layers):
        for room in rooms:
            lines.append(f"L{layer}  {room:<12} -> {', '.join(sorted(arrows[room], key=lambda r: -layers[r])) or '(nothing)'}")
    return "\n".join(lines)


def drawing(layers, arrows):
    """One row of boxes per layer, arrows downwards."""
    width, height, gap_x, gap_y, left = 120, 34, 40, 38, 60
    rows = by_layer(layers)
    across = max(len(rooms) for _, rooms in rows) * (width + gap_x)
    place, out = {}, []
    for y, (layer, rooms) in enumerate(rows):
        indent = (across - len(rooms) * (width + gap_x)) / 2
        for x, room in enumerate(rooms):
            place[room] = (left + indent + x * (width + gap_x) + gap_x / 2, 16 + y * (height + gap_y))
        out.append(f'<text x="12" y="{16 + y * (height + gap_y) + 22}" class="layer">L{layer}</text>')
    for room, targets in reduced(arrows).items():
        for target in sorted(targets):
            (ax, ay), (bx, by) = place[room], place[target]
            out.append(f'<line x1="{ax + width / 2:g}" y1="{ay + height:g}" x2="{bx + width / 2:g}" y2="{by - 3:g}" marker-end="url(#tip)"/>')
    for room, (x, y) in place.items():
        out.append(f'<rect x="{x:g}" y="{y:g}" width="{width}" height="{height}" rx="6"/>')
        out.append(f'<text x="{x + width / 2:g}" y="{y + 22:g}" text-anchor="middle">{room}</text>')
    total = len(rows) * (height + gap_y) + 8
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + across} {total}" font-family="sans-serif" font-size="14">',
        "<style>rect{fill:#eef3f8;stroke:#47627d}line{stroke:#47627d;stroke-width:1.3}.layer{fill:#888}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#47627d"/></marker></defs>',
        f'<rect x="0" y="0" width="{left + across}" height="{total}" style="fill:#fff;stroke:none"/>',
        *out, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail on an arrow that points up or sideways")
    parser.add_argument("--draw", action="store_true", help="write docs/rooms.svg")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="another source tree")
    args = parser.parse_args()

    layers = read_layers(args.root)
    arrows, faults = {room: set() for room in layers}, []
    for file, number, room, included in read_includes(args.root):
        if reason := wrong(layers, room, included):
            faults.append(f"{file}:{number}: {reason}")
        elif (target := included.split("/")[0]) != room and not file.stem.endswith("_test"):
            arrows[room].add(target)
    print(picture(layers, arrows))
    svg = args.root / SVG.relative_to(ROOT)
    if args.draw:
        svg.parent.mkdir(exist_ok=True)
        svg.write_text(drawing(layers, arrows))
    elif args.check and (not svg.exists() or svg.read_text() != drawing(layers, arrows)):
        faults.append("docs/rooms.svg: does not show these arrows; run `make format`")
    if args.check and faults:
        print("\n" + "\n".join(faults), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
