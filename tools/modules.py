#!/usr/bin/env python3
"""The modules and the arrows between them, read from the includes and the build files.

tools/modules.py            prints the picture as text
tools/modules.py --check    fails on a wrong arrow (below), or when docs/modules.svg is out of date
tools/modules.py --draw     writes docs/modules.svg

The layer of a module is the LAYER of its cohort_module(...) or cohort_python_module(...) line.
- A module includes modules of lower layers only, never a sibling, and only what its LINKS lead to; LINKS point down, too.
- The folders inside a module (its own files count as one more) include each other without a cycle.
cohort/cohort.h is the public header for outside programs: it includes what it likes, and no module includes it.
"""
import argparse
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SVG = ROOT / "docs" / "modules.svg"
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]cohort/([^">]+)[">]')
MODULE = re.compile(r"^\s*cohort_(?:python_)?module\(\s*(\w+)\s+LAYER\s+(\d+)", re.MULTILINE)
LIBRARY = re.compile(r"^\s*cohort_(?:python_module|module|torch_part)\(\s*(\w+)([^)]*)\)", re.MULTILINE)
PROGRAM = re.compile(r"^\s*target_link_libraries\((?:cohort_)?([\w-]+) (?:PRIVATE|PUBLIC) ([^)]*)\)", re.MULTILINE)
SUFFIXES = {".h", ".cc", ".inc", ".cu", ".cuh"}


def read_layers(root):
    """{module: layer}, from the CMakeLists.txt of every module."""
    layers = {}
    for file in sorted(root.glob("cohort/*/CMakeLists.txt")):
        layers.update({module: int(layer) for module, layer in MODULE.findall(file.read_text())})
    return layers


def read_links(root):
    """{library without cohort_: (its module, libraries it links)}. A torch-free module's part with torch is a library of its own."""
    libraries = {}
    for file in sorted(root.glob("cohort/**/CMakeLists.txt")):
        text, module = file.read_text(), file.relative_to(root).parts[1]
        named = [(name, arguments.partition("LINKS")[2]) for name, arguments in LIBRARY.findall(text)]
        for name, arguments in named + PROGRAM.findall(text):
            links = {word.removeprefix("cohort_") for word in arguments.split() if word.startswith("cohort_")}
            libraries[name] = module, links | libraries.get(name, (module, set()))[1]
    return libraries


def wrong_links(layers, libraries):
    """Why links may not be: those that point up or sideways."""
    for name, (module, links) in libraries.items():
        for link in sorted(links):
            target = libraries.get(link, (link, ()))[0]
            if target not in layers:
                yield f"cohort_{name} links cohort_{link}, which no cohort_module line makes"
            elif target != module and layers[target] >= layers[module]:
                yield f"cohort_{name} (layer {layers[module]}) links cohort_{link} of layer {layers[target]}: links point down, as includes do"


def reachable(arrows, start):
    seen, todo = set(), [start]
    while todo:
        at = todo.pop()
        if at not in seen:
            seen.add(at)
            todo += arrows.get(at, ())
    return seen


def unlinked(libraries, arrows):
    """Modules whose headers a module includes though no library of it leads there by its links."""
    links = {name: targets for name, (_, targets) in libraries.items()}
    for module, targets in sorted(arrows.items()):
        mine = [name for name, (owner, _) in libraries.items() if owner == module]
        there = {libraries[name][0] for start in mine for name in reachable(links, start) if name in libraries}
        for target in sorted(targets - there):
            yield f"{module} includes {target}, but its LINKS do not lead there: name cohort_{target}"


def find_cycle(arrows):
    """One cycle as a list of names that ends where it began, or None."""
    done = set()

    def walk(name, path):
        if name in path:
            return path[path.index(name):] + [name]
        if name in done:
            return None
        for target in sorted(arrows.get(name, ())):
            if cycle := walk(target, path + [name]):
                return cycle
        done.add(name)
        return None

    for name in sorted(arrows):
        if cycle := walk(name, []):
            return cycle
    return None


def folder_cycles(includes):
    """A line for every module whose folders include each other in a circle; "." are the module's own files."""
    arrows = collections.defaultdict(lambda: collections.defaultdict(set))
    example = {}
    for file, number, module, included in includes:
        to = pathlib.PurePath(included)
        if to.parts[0] != module or file.stem.endswith("_test"):
            continue
        here, there = "/".join(file.parts[2:-1]) or ".", "/".join(to.parts[1:-1]) or "."
        if here != there:
            arrows[module][here].add(there)
            example.setdefault((module, here, there), f"{file}:{number}")
    for module, folders in sorted(arrows.items()):
        if cycle := find_cycle(folders):
            steps = [f"{a} -> {b} ({example[module, a, b]})" for a, b in zip(cycle, cycle[1:])]
            yield f"folders of {module} go in a circle: {', '.join(steps)}"


def read_includes(root):
    """(file, line number, module of the file, path included below cohort/) for every include of ours inside a module."""
    for file in sorted((root / "cohort").rglob("*")):
        path = file.relative_to(root / "cohort")
        if file.suffix not in SUFFIXES or len(path.parts) < 2:
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if match := INCLUDE.match(line):
                yield file.relative_to(root), number, path.parts[0], match[1]


def wrong(layers, module, included):
    """Why this include may not be, or None."""
    target = included.split("/")[0] if "/" in included else None
    if module not in layers:
        return f"module {module} has no cohort_module({module} LAYER n ...) line"
    if target is None:
        return f"cohort/{included} is for outside programs; include the header you need"
    if target == module:
        return None
    if target not in layers:
        return f"cohort/{target} is no module (no cohort_module line there)"
    if layers[target] > layers[module]:
        return f"{module} (layer {layers[module]}) points up at {target} (layer {layers[target]}); move the code down, or the need up"
    if layers[target] == layers[module]:
        return f"{module} points sideways at {target}: siblings of layer {layers[module]} do not know each other; share through a lower module"
    return None


def reduced(arrows):
    """Without the arrows that longer paths already tell (a -> c when a -> b -> c)."""

    return {module: {t for t in targets if not any(t in reachable(arrows, other) for other in targets if other != t)}
            for module, targets in arrows.items()}


def by_layer(layers):
    rows = collections.defaultdict(list)
    for module, layer in layers.items():
        rows[layer].append(module)
    return sorted(rows.items(), reverse=True)


def picture(layers, arrows):
    lines = []
    for layer, modules in by_layer(layers):
        for module in modules:
            lines.append(f"L{layer}  {module:<12} -> {', '.join(sorted(arrows[module], key=lambda r: -layers[r])) or '(nothing)'}")
    return "\n".join(lines)


def drawing(layers, arrows):
    """One row of boxes per layer, arrows downwards."""
    width, height, gap_x, gap_y, left = 120, 34, 40, 38, 60
    rows = by_layer(layers)
    across = max(len(modules) for _, modules in rows) * (width + gap_x)
    place, out = {}, []
    for y, (layer, modules) in enumerate(rows):
        indent = (across - len(modules) * (width + gap_x)) / 2
        for x, module in enumerate(modules):
            place[module] = (left + indent + x * (width + gap_x) + gap_x / 2, 16 + y * (height + gap_y))
        out.append(f'<text x="12" y="{16 + y * (height + gap_y) + 22}" class="layer">L{layer}</text>')
    for module, targets in reduced(arrows).items():
        for target in sorted(targets):
            (ax, ay), (bx, by) = place[module], place[target]
            out.append(f'<line x1="{ax + width / 2:g}" y1="{ay + height:g}" x2="{bx + width / 2:g}" y2="{by - 3:g}" marker-end="url(#tip)"/>')
    for module, (x, y) in place.items():
        out.append(f'<rect x="{x:g}" y="{y:g}" width="{width}" height="{height}" rx="6"/>')
        out.append(f'<text x="{x + width / 2:g}" y="{y + 22:g}" text-anchor="middle">{module}</text>')
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
    parser.add_argument("--draw", action="store_true", help="write docs/modules.svg")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="another source tree")
    args = parser.parse_args()

    layers = read_layers(args.root)
    arrows, faults = {module: set() for module in layers}, []
    includes, libraries = list(read_includes(args.root)), read_links(args.root)
    for file, number, module, included in includes:
        if reason := wrong(layers, module, included):
            faults.append(f"{file}:{number}: {reason}")
        elif (target := included.split("/")[0]) != module and not file.stem.endswith("_test"):
            arrows[module].add(target)
    faults += [*wrong_links(layers, libraries), *unlinked(libraries, arrows), *folder_cycles(includes)]
    print(picture(layers, arrows))
    svg = args.root / SVG.relative_to(ROOT)
    if args.draw:
        svg.parent.mkdir(exist_ok=True)
        svg.write_text(drawing(layers, arrows))
    elif args.check and (not svg.exists() or svg.read_text() != drawing(layers, arrows)):
        faults.append("docs/modules.svg: does not show these arrows; run `make format`")
    if args.check and faults:
        print("\n" + "\n".join(faults), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
