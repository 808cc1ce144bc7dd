"""Drawn hands of the American sign language alphabet: 24 letters (J and Z need motion), each a few strokes, and random warps of them.

A drawing is a palm and strokes: four fingers by a word each (up, folded, leaning ..) and a thumb by its points. It is no photograph of a
hand: what a network learns on it is to tell 24 shapes apart however they are turned, moved, scaled, sheared, lit and disturbed.
"""
import math
import random
import struct
import zlib

# Of each letter: index, middle, ring and little finger, the thumb's points, and how the whole hand is turned.
#   u up, l and r leaning to a side, f folded, h hooked, c curved, o towards the thumb, x crossed, - behind the hand
HANDS = {
    "A": ("ffff", [(.30, .66), (.27, .48)], 0), "B": ("uuuu", [(.30, .70), (.56, .66)], 0),
    "C": ("cccc", [(.32, .72), (.20, .66), (.18, .56)], 0), "D": ("uooo", [(.32, .70), (.40, .50)], 0),
    "E": ("ffff", [(.30, .72), (.66, .70)], 0), "F": ("oulr", [(.32, .66), (.26, .50)], 0),
    "G": ("u---", [(.34, .62), (.24, .38)], 90), "H": ("uu--", [(.34, .66), (.42, .60)], 90),
    "I": ("fffu", [(.32, .66), (.50, .62)], 0), "K": ("lr--", [(.34, .66), (.40, .46)], 0),
    "L": ("ufff", [(.34, .66), (.10, .64)], 0), "M": ("fff-", [(.34, .74), (.60, .74)], 0),
    "N": ("ff--", [(.34, .74), (.46, .76)], 0), "O": ("oooo", [(.32, .70), (.24, .58), (.32, .46)], 0),
    "P": ("lr--", [(.34, .66), (.40, .46)], 180), "Q": ("u---", [(.34, .62), (.24, .38)], 180),
    "R": ("xx--", [(.34, .68), (.50, .64)], 0), "S": ("ffff", [(.30, .62), (.62, .58)], 0),
    "T": ("ffff", [(.34, .68), (.41, .44)], 0), "U": ("uuff", [(.34, .68), (.56, .64)], 0),
    "V": ("lrff", [(.34, .68), (.56, .64)], 0), "W": ("lurf", [(.34, .70), (.62, .66)], 0),
    "X": ("hfff", [(.34, .68), (.52, .66)], 0), "Y": ("fffr", [(.34, .66), (.08, .50)], 0),
}
LETTERS = "".join(HANDS)
SIDE = 64  # of a drawing
BASES = (.36, .45, .54, .63)


def finger(base, word):
    x, y, up = base, .56, .36
    lean = lambda degrees: [(x, y), (x + up * math.sin(math.radians(degrees)), y - up * math.cos(math.radians(degrees)))]
    return {
        "u": [(x, y), (x, y - up)], "l": lean(-24), "r": lean(24), "f": [(x, y - .02), (x, y + .06)],
        "h": [(x, y), (x, y - .22), (x - .09, y - .16)], "c": [(x, y), (x - .02, y - .22), (x - .14, y - .26)],
        "o": [(x, y), (x - .02, y - .13), (.32 + (x - .36) / 3, .44)], "x": lean(20 if base < .4 else -14),
    }.get(word, [])


def strokes(letter):
    """(points, width, brightness) of each stroke, in the unit square."""
    words, thumb, turn = HANDS[letter]
    drawn = [([(.42, .68), (.58, .68)], .17, .55)]
    drawn += [(finger(base, word), .045, .80 - .06 * i) for i, (base, word) in enumerate(zip(BASES, words)) if word != "-"]
    drawn.append((thumb, .05, 1.0))
    angle = math.radians(turn)
    round_ = lambda x, y: (.5 + (x - .5) * math.cos(angle) - (y - .5) * math.sin(angle), .5 + (x - .5) * math.sin(angle) + (y - .5) * math.cos(angle))
    return [([round_(x, y) for x, y in points], width, light) for points, width, light in drawn]


def distance(x, y, a, b):
    """From a point to a line from a to b."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    along = max(0.0, min(1.0, ((x - a[0]) * dx + (y - a[1]) * dy) / (dx * dx + dy * dy)))
    return math.hypot(x - a[0] - along * dx, y - a[1] - along * dy)


def drawing(letter):
    """SIDE x SIDE brightnesses, 0 the ground."""
    image = [[0.0] * SIDE for _ in range(SIDE)]
    for points, width, light in strokes(letter):
        for row in range(SIDE):
            for column in range(SIDE):
                x, y = (column + .5) / SIDE, (row + .5) / SIDE
                near = min(distance(x, y, a, b) for a, b in zip(points, points[1:]))
                cover = max(0.0, min(1.0, (width - near) * SIDE + .5))
                image[row][column] += cover * (light * (1 - .35 * max(0.0, near) / width) - image[row][column])
    return image


def warp(image, draw):
    """28 x 28 bytes of the drawing: turned by up to 20 degrees, scaled by 0.8 to 1.25, moved by up to 15 %, sheared by up to 0.2; then
    contrast 0.5 to 1, an offset up to 0.3 and noise of 0.12. All drawn anew."""
    angle, scale, shear = math.radians(draw.uniform(-20, 20)), draw.uniform(.8, 1.25), draw.uniform(-.2, .2)
    dx, dy = draw.uniform(-.15, .15), draw.uniform(-.15, .15)
    contrast, offset = draw.uniform(.5, 1), draw.uniform(0, .3)
    c, s = math.cos(angle) / scale, math.sin(angle) / scale
    pixels = bytearray()
    for row in range(28):
        for column in range(28):
            u, v = (column + .5) / 28 - .5 - dx, (row + .5) / 28 - .5 - dy
            u += shear * v
            x, y = (c * u - s * v + .5) * SIDE - .5, (s * u + c * v + .5) * SIDE - .5
            left, top = math.floor(x), math.floor(y)
            value = 0.0
            if 0 <= left < SIDE - 1 and 0 <= top < SIDE - 1:
                fx, fy = x - left, y - top
                above, below = image[top], image[top + 1]
                value = (above[left] * (1 - fx) + above[left + 1] * fx) * (1 - fy) + (below[left] * (1 - fx) + below[left + 1] * fx) * fy
            value = contrast * value + offset + draw.gauss(0, .12)
            pixels.append(max(0, min(255, round(255 * value))))
    return bytes(pixels)


def warped(count, seed):
    """(letter, 784 bytes) of each sample, the letters in turn."""
    images = {letter: drawing(letter) for letter in LETTERS}
    draw = random.Random(seed)
    for i in range(count):
        letter = LETTERS[i % len(LETTERS)]
        yield letter, warp(images[letter], draw)


def png(rows):
    """A grey picture of rows of bytes."""
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + bytes(row) for row in rows), 9)) + chunk(b"IEND", b"")


def sheet(tiles, columns, gap=2):
    """One picture of many, each a list of rows."""
    side = len(tiles[0])
    lines = []
    for first in range(0, len(tiles), columns):
        part = tiles[first : first + columns]
        part += [[bytes(side)] * side] * (columns - len(part))
        lines += [bytes(gap).join(tile[y] for tile in part) for y in range(side)] + [bytes(columns * (side + gap) - gap)] * gap
    return png(lines[:-gap])
