"""The command horovodrun: Horovod's options, understood by `cohort run`.

    horovodrun -np 4 -H localhost:4 python train.py
    horovodrun -np 4 -H h1:2,h2:2 python train.py

What each option comes to is a row in horovodrun_options.py. Sentences about options without effect go to stderr; a refusal ends with status 2.
"""
import os
import socket
import sys
from dataclasses import dataclass

from cohort.horovodrun_config import words_of
from cohort.horovodrun_options import BY_NAME, OPTIONS


class Refused(Exception):
    """An error message for the user."""


class AnotherHost(ValueError):
    """A host that is not this one."""


def slots_on_this_host(hosts, hostfile):
    """How many slots "-H" and "--hostfile" grant, 0 without either; AnotherHost for any host but this one, ValueError for what is no host."""
    entries = [h.strip() for h in (hosts or "").split(",") if h.strip()]
    if hostfile:
        with open(hostfile, encoding="utf-8") as file:
            lines = [line.split("#")[0].split() for line in file]
        entries += [f"{words[0]}:{_slots_word(words)}" if len(words) > 1 else words[0] for words in lines if words]
    total = 0
    for entry in entries:
        host, _, slots = entry.partition(":")
        if host not in ("localhost", socket.gethostname(), socket.getfqdn()) and not host.startswith("127."):
            raise AnotherHost(f"'{host}' is another host, and ranks are started on this one only")
        if slots and not (slots.isdigit() and int(slots) > 0):
            raise ValueError(f"'{entry}': slots are a whole number above 0")
        total += int(slots or 1)
    return total


def _slots_word(words):
    name, _, number = words[1].partition("=")
    if name != "slots":
        raise ValueError(f"'{' '.join(words)}' is no line of a host file: `localhost slots=4`")
    return number


@dataclass
class Plan:
    """What a command line comes to."""

    run: list  # options of `cohort run`
    env: dict
    notes: list  # messages about options without effect
    command: list
    asked: str = ""  # help, version, check-build


def _taken(args):
    """(row, name, values) of each option in front of the command, then the command itself."""
    found, at = [], 0
    while at < len(args) and args[at].startswith("-"):
        if args[at] == "--":
            at += 1
            break
        name, equals, value = args[at].partition("=") if args[at].startswith("--") else (args[at], "", "")
        name = name.replace("_", "-") if name.startswith("--") else name
        option = BY_NAME.get(name)
        if option is None:
            raise Refused(f"there is no option {name}; `horovodrun --help` lists them; options of your program go after it")
        at += 1
        values = [value] if equals else args[at:at + option.values]
        if equals and option.values != 1:
            raise Refused(f"{name} takes {'no value' if option.values == 0 else f'{option.values} values'}")
        if len(values) < option.values:
            raise Refused(f"{name} needs {'a value' if option.values == 1 else f'{option.values} values'}")
        at += 0 if equals else option.values
        found.append((option, name, values))
    return found, args[at:]


def _scaled(name, text, scale):
    try:
        return str(int(float(text) * scale))
    except ValueError:
        raise Refused(f"{name}: '{text}' is no number") from None


def plan(args):
    """Pure but for the host file and the config file: the words of horovodrun into those of `cohort run`."""
    found, command = _taken(args)
    done, given = Plan([], {}, [], command), {}
    configured = [file for option, _, values in found if "--config-file" in option.names for file in values]
    for file in configured:
        try:
            found = _taken(words_of(file))[0] + found  # the command line comes later and counts
        except (OSError, ValueError) as error:
            raise Refused(f"--config-file {file}: {error}") from None
    for option, name, values in found:
        if option.refused:
            raise Refused(f"{name} is refused: {option.refused}")
        if option.idle:
            done.notes.append(f"{name} has no effect here: {option.idle}")
        elif option.env:
            done.env[option.env] = option.fixed or (_scaled(name, values[0], option.scale) if option.scale else values[0])
        else:
            given[option.names.split()[0]] = (option, values)
    done.asked = next((word for word in ("-h", "-v", "-cb") if word in given), "")
    if not done.asked:
        _settle(done, given)
    return done


def _settle(done, given):
    value = {name: values[0] for name, (_, values) in given.items() if values}
    elsewhere = []  # several hosts: `cohort run` reads them itself
    try:
        slots = slots_on_this_host(value.get("-H"), value.get("--hostfile"))
    except AnotherHost:
        slots = 0
        elsewhere = ["-H", value["-H"]] if "-H" in value else ["--hostfile", value["--hostfile"]]
    except (ValueError, OSError) as error:
        raise Refused(str(error)) from None
    ranks = value.get("-np") or str(slots or "")
    if not ranks and not elsewhere and "--host-discovery-script" not in value:
        raise Refused("give the number of ranks: horovodrun -np 2 python train.py")
    if ranks and (not ranks.isdigit() or int(ranks) < 1):
        raise Refused(f"-np: '{ranks}' is not a number of ranks")
    if slots and int(ranks) > slots:
        raise Refused(f"{ranks} ranks were asked for, and the hosts have {slots} slots")
    if not done.command:
        raise Refused("nothing to run: horovodrun -np 2 python train.py")
    done.run = (["-n", ranks] if ranks else []) + elsewhere
    _settle_elastic(done, given, ranks)
    for option, values in given.values():
        if option.to and option.to != "-n":
            done.run += [option.to, *values]


_LONGEST_COOL_DOWN = 64  # times the first: what `cohort run` lets it grow to


def _settle_elastic(done, given, ranks):
    """A job is elastic with --min-np, which is -np where a discovery script or --max-np is given without it."""
    asked = [name for name in ("--host-discovery-script", "--max-np", "--elastic-timeout", "--blacklist-cooldown-range") if name in given]
    asked += ["--reset-limit"] if "COHORT_RESET_LIMIT" in done.env else []
    if "--min-np" not in given and ("--max-np" in asked or "--host-discovery-script" in asked) and ranks:
        done.run += ["--min-n", ranks]
    elif "--min-np" not in given and asked and asked != ["--host-discovery-script"]:
        raise Refused(f"{asked[0]} is for elastic jobs: give the smallest number of ranks, --min-np")
    if "--blacklist-cooldown-range" in given:
        least, most = (_scaled("--blacklist-cooldown-range", text, 1) for text in given["--blacklist-cooldown-range"][1])
        done.run += ["--host-cool-down", least]
        if int(most) != int(least) * _LONGEST_COOL_DOWN:
            done.notes.append(f"--blacklist-cooldown-range: the back-off of a lost host doubles from {least} s to {_LONGEST_COOL_DOWN} times that, "
                              f"not to {most} s")
    if not done.env.get("COHORT_RESET_LIMIT", "0").isdigit():
        raise Refused(f"--reset-limit: '{done.env['COHORT_RESET_LIMIT']}' is no number of changes")


def usage():
    """What --help prints."""
    lines = ["horovodrun: start a program as several ranks of one job, as Horovod's launcher did", "",
             "usage: horovodrun -np N [options] program [arguments]", ""]
    for title, rows in (("options:", [o for o in OPTIONS if o.about]), ("understood, without effect:", [o for o in OPTIONS if o.idle]),
                        ("refused:", [o for o in OPTIONS if o.refused])):
        lines.append(title)
        for option in rows:
            value = {0: "", 1: " VALUE", 2: " MIN MAX"}[option.values]
            lines.append(f"  {', '.join(option.names.split())}{value}\n        {option.about or option.idle or option.refused}")
    return "\n".join(lines)


def check_build():
    """What --check-build prints: the table that Horovod's users know."""
    import cohort
    import cohort.torch as hvd
    tables = {"Available Frameworks": {"TensorFlow": False, "PyTorch": True, "MXNet": False},
              "Available Controllers": {"MPI": hvd.mpi_built(), "Gloo": hvd.gloo_built()},
              "Available Tensor Operations": {"NCCL": hvd.nccl_built(), "DDL": hvd.ddl_built(), "CCL": hvd.ccl_built(), "MPI": hvd.mpi_built(),
                                              "Gloo": hvd.gloo_built()}}
    lines = [f"Cohort {cohort.__version__} (Horovod's interface; Cohort's native backend takes Gloo's place):"]
    for title, rows in tables.items():
        lines += ["", f"{title}:", *(f"    [{'X' if there else ' '}] {word}" for word, there in rows.items())]
    return "\n".join(lines)


def main(args=None):
    """The console command."""
    from cohort import _program
    try:
        what = plan(sys.argv[1:] if args is None else args)
        if what.asked:
            import cohort
            print({"-h": usage, "-v": lambda: cohort.__version__, "-cb": check_build}[what.asked]())
            return 0
    except Refused as refusal:
        print(f"horovodrun: {refusal}", file=sys.stderr)
        return 2
    for note in what.notes:
        print(f"horovodrun: {note}", file=sys.stderr)
    sys.stderr.flush()
    program = _program.path()
    os.execve(program, [program, "run", *what.run, "--", *what.command], {**os.environ, **what.env})


if __name__ == "__main__":
    sys.exit(main())
