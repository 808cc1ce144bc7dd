#!/usr/bin/env bash
# Runs every test of a finished build: ctest, which runs pytest on each file of Python tests, and whose closing lines end the output.
# Results as JUnit files in build/results/ (tools/counts.py adds them up). Exit status: 0 only when everything passed.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf build/results
mkdir -p build/results
failed=0

# Limits in seconds are for an idle machine; what is right must be right on any. `make chaos` and the benchmarks take them as they are.
export COHORT_TEST_SLOWDOWN="${COHORT_TEST_SLOWDOWN:-3}"

# The ranks of a multi-process test count as two cores (cmake/CohortRooms.cmake), so a small machine is not overrun.
ctest --preset default --parallel "$(nproc)" --no-tests=error --output-junit "$PWD/build/results/ctest.xml" || failed=1
exit $failed
