#!/usr/bin/env python3
"""Adds up the JUnit files given and prints "N passed, M failed" alone on the last line.

A test that was not run counts as failed: it proved nothing. The exit status is 0 only when something ran and nothing failed.
"""
import sys
import xml.etree.ElementTree as xml


def outcomes(path):
    """(name, passed) for every test case of the file."""
    for case in xml.parse(path).getroot().iter("testcase"):
        bad = any(case.find(tag) is not None for tag in ("failure", "error", "skipped"))
        name = ".".join(filter(None, dict.fromkeys([case.get("classname"), case.get("name")])))
        yield name, not bad and case.get("status", "run") == "run"


def main(paths):
    results = [result for path in paths for result in outcomes(path)]
    failed = [name for name, passed in results if not passed]
    for name in failed:
        print(f"failed: {name}")
    if not results:
        print("no test ran: the build or the set-up failed, see above")
    print(f"{len(results) - len(failed)} passed, {len(failed) or int(not results)} failed")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
