"""The files that `horovodrun --config-file` takes, turned into the words of its command line.

    params:
      fusion-threshold-mb: 32          # --fusion-threshold-mb 32
    timeline:
      filename: /tmp/timeline.json     # --timeline-filename /tmp/timeline.json
    stall-check:
      enabled: false                   # --no-stall-check

That is sections of `key: value`, a small part of YAML; anything else in the file is refused by its line.
"""
_PREFIX = {"params": "", "library-options": "", "autotune": "autotune-", "timeline": "timeline-", "stall-check": "stall-check-",
           "logging": "log-"}
_BOOLEAN = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _entries(text):
    """(section or None, key, value) of each line that has one."""
    section = None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split(" #")[0].rstrip() if not line.lstrip().startswith("#") else ""
        if not line or line == "---":
            continue
        key, colon, value = line.strip().partition(":")
        if not colon or key.startswith("-"):
            raise ValueError(f"line {number}: '{line.strip()}' is not `key: value`")
        key, value = key.strip().replace("_", "-"), value.strip().strip("'\"")
        indented = line[0] in " \t"
        if indented and section is None:
            raise ValueError(f"line {number}: '{key}' is indented and stands under no section")
        if not indented:
            section = key if not value else None
            if section is not None and section not in _PREFIX:
                raise ValueError(f"line {number}: there is no section '{section}', only {', '.join(_PREFIX)}")
        if value:
            yield (section if indented else None), key, value


def words_of(path):
    """["--fusion-threshold-mb", "32", ...]; ValueError names the line that is not understood."""
    with open(path, encoding="utf-8") as file:
        entries = list(_entries(file.read()))
    words = []
    for section, key, value in entries:
        name = _PREFIX.get(section, "") + key
        if key == "enabled" and section:
            name = section
        truth = _BOOLEAN.get(value.lower())
        if truth is None:
            words += [f"--{name}", value]
        elif truth:
            words.append(f"--{name}")
        elif name in ("stall-check", "autotune", "timeline-mark-cycles", "hierarchical-allreduce", "hierarchical-allgather", "torus-allreduce"):
            words.append(f"--no-{name}")
    return words
