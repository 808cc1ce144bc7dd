#!/usr/bin/env bash
# tools/lint.sh format|check-format|tidy.
set -euo pipefail
cd "$(dirname "$0")/.."
sources() { find cohort bench examples fuzz tests -type f \( -name '*.cc' -o -name '*.h' \) | sort; }
case ${1:-} in
  format) sources | xargs clang-format-14 -i ;;
  check-format) sources | xargs clang-format-14 --dry-run --Werror ;;
  tidy) tools/tidy.py ;;
  *) echo "usage: tools/lint.sh format|check-format|tidy" >&2; exit 2 ;;
esac
