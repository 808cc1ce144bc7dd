#!/usr/bin/env python3
"""Adds up the JUnit files given and prints "N passed, M failed" alone on the last line, after the end of what each failed test said.

A test that was not run counts as failed: it proved nothing. Those that tools/run_tests.py skipped, because the machine refuses what they need,
are counted apart: "N passed, M failed, K skipped". The exit status is 0 only when something ran and nothing failed.
"""
import sys
import xml.etree.ElementTree as xml

LAST_LINES = 40  # of a failed test, so that the end of a log is enough to see why


def outcomes(path):
    """(name, passed, what it said) for every test case of the file; passed is None for one that the machine does not allow."""
    for case in xml.parse(path).getroot().iter("testcase"):
        name = ".".join(filter(None, dict.fromkeys([case.get("classname"), case.get("name")])))
        skipped = case.find("skipped")
        if skipped is not None and skipped.get("type") == "machine":
            yield name, None, skipped.get("message")
            continue
        bad = any(case.find(tag) is not None for tag in ("failure", "error", "skipped"))
        said = "".join(case.findtext(tag) or "" for tag in ("failure", "error", "system-out"))
        yield name, not bad and case.get("status", "run") == "run", said


def main(paths):
    results = [result for path in paths for result in outcomes(path)]
    skipped = [(name, why) for name, passed, why in results if passed is None]
    results = [result for result in results if result[1] is not None]
    for name, why in skipped:
        print(f"skipped: {name}: {why}")
    failed = [(name, said) for name, passed, said in results if not passed]
    for name, said in failed:
        print(f"failed: {name}", *said.strip().splitlines()[-LAST_LINES:], sep="\n    ")
    if not results:
        print("no test ran: the build or the set-up failed, see above")
    print(f"{len(results) - len(failed)} passed, {len(failed) or int(not results)} failed" + (f", {len(skipped)} skipped" if skipped else ""))
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
