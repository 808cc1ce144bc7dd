#!/usr/bin/env bash
# Runs every test of a finished build: pytest where there are Python tests, then ctest, whose closing lines end the output.
# Results as JUnit files in build/results/ (tools/counts.py adds them up). Exit status: 0 only when everything passed.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf build/results
mkdir -p build/results
failed=0

mapfile -t python_tests < <(find python tests -name 'test_*.py' 2>/dev/null | sort)
if ((${#python_tests[@]} > 0)); then
  "$(<build/python)" -m pytest -q --junitxml=build/results/pytest.xml "${python_tests[@]}" || failed=1
fi
# The ranks of a multi-process test count as two cores (cmake/CohortRooms.cmake), so a small machine is not overrun.
ctest --preset default --parallel "$(nproc)" --no-tests=error --output-junit "$PWD/build/results/ctest.xml" || failed=1
exit $failed
