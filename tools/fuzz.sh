#!/usr/bin/env bash
# Runs every fuzzer of build-fuzz for FUZZ_SECONDS (20); what they learn gathers in build-fuzz/corpus/, inputs that fail in build-fuzz/found/.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build-fuzz/found
status=0
for file in fuzz/*_fuzz.cc; do
  name=$(basename "$file" _fuzz.cc)
  log=build-fuzz/$name.log
  mkdir -p "build-fuzz/corpus/$name"
  if "build-fuzz/bin/${name}_fuzz" -max_total_time="${FUZZ_SECONDS:-20}" -timeout=5 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="build-fuzz/found/$name-" "build-fuzz/corpus/$name" "fuzz/corpus/$name" >"$log" 2>&1; then
    echo "$name: $(awk '/number_of_executed_units/ { print $2 }' "$log") inputs, none failed"
  else
    status=1
    tail -n 60 "$log"
    echo "$name: FAILED; the input is in build-fuzz/found/, the log in $log. Fix it, then keep the input in fuzz/corpus/$name/"
  fi
done
exit $status
