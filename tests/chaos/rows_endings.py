"""How jobs end that cannot go on, and how they go on where they can: 29 errors of the program, 30 killed at the start, 31 connections to the coordinator
reset, 32 a stopped coordinator, 33 no last checkpoint, 34 a coordinator out of descriptors. Also rows that are other tests: 41 files that are larger inside
than outside, 42 Python ranks that wait for each other."""
from suites import run_claim, run_python, run_suite


def claims(*names, script="elastic/check.py"):
    def row(chaos, tries):
        for _ in range(tries):
            for name in names:
                run_claim(chaos, script, name)

    row.most = 4
    return row


def row34(chaos, tries):
    run_suite(chaos, "elastic_test", "ElasticCoordinator.OutOfDescriptors*")


def row41(chaos, tries):
    run_suite(chaos, "data_test", "Limited.*:Jpeg.OfTooMany*:Input.RefusesToInflate*")


def row42(chaos, tries):
    run_python(chaos, "test_timeouts.py")


ROWS = {"29": claims("failing"), "30": claims("killed_early"), "31": claims("reset"), "32": claims("stalled"),
        "33": claims("last_checkpoint"), "34": row34, "41": row41, "42": row42}
