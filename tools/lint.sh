#!/usr/bin/env bash
# tools/lint.sh format|check-format|tidy. Tidy looks at the torch-free rooms (a torch file takes half a minute each).
set -euo pipefail
cd "$(dirname "$0")/.."
sources() { find cohort bench examples fuzz tests -type f \( -name '*.cc' -o -name '*.h' \) | sort; }
case ${1:-} in
  format) sources | xargs clang-format-14 -i ;;
  check-format) sources | xargs clang-format-14 --dry-run --Werror ;;
  tidy)
    find cohort -name '*.cc' ! -name '*_test.cc' ! -path 'cohort/nn/*' ! -path 'cohort/sync/*' ! -path 'cohort/engine/*' ! -path 'cohort/train/loop/*' ! -path 'cohort/cli/worker/*' | sort |
      xargs -P "$(nproc)" -n 1 clang-tidy-14 -p build --quiet --extra-arg=-Wno-unknown-warning-option 2> >(grep -v ' warnings\? generated' >&2)
    ;;
  *) echo "usage: tools/lint.sh format|check-format|tidy" >&2; exit 2 ;;
esac
