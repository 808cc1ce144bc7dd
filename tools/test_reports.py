"""What a run of the tests leaves behind (for run_tests.py): lines about failed tries, the list of flaky tests, a JUnit file."""
import re
import xml.etree.ElementTree as xml

LAST_LINES = 40


def ending(said, indent="    "):
    return "\n".join(indent + line for line in said.strip().splitlines()[-LAST_LINES:])


def failure_text(test, tries):
    """A try that has just failed: its end of the log at once, as the run may never come to its own end."""
    return f"failed, try {len(test.failed)} of {tries}: {test.name} {ending(test.failed[-1]).strip()}"


def tell_flaky(path, flaky):
    """flaky.txt, and a line each. The file is there, and empty, when no test was tried twice."""
    with open(path, "w") as file:
        for test in flaky:
            file.write(f"{test.name}: passed in try {len(test.failed) + 1}\n")
            for number, said in enumerate(test.failed, 1):
                file.write(f"  try {number}: {ending(said).strip()}\n")
    for test in flaky:
        print(f"flaky: {test.name} passed in try {len(test.failed) + 1}, see {path}")


def printable(text):
    """Without what XML cannot hold."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]", "?", text)


def write_junit(path, tests):
    unmet = [test for test in tests if test.unmet]
    failures = sum(not test.passed for test in tests) - len(unmet)
    suite = xml.Element("testsuite", name="ctest", tests=str(len(tests)), failures=str(failures), skipped=str(len(unmet)))
    for test in tests:
        case = xml.SubElement(suite, "testcase", name=test.name, classname=test.name, time=f"{test.took:.3f}", status="run" if test.passed else "fail")
        if test.unmet:
            case.set("status", "notrun")
            xml.SubElement(case, "skipped", type="machine", message=printable(test.unmet))
        elif not test.passed:
            xml.SubElement(case, "failure", message="failed in every try").text = printable("\n".join(test.failed) or "it was not run")
    xml.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
