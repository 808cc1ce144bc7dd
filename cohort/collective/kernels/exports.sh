#!/bin/sh
# exports.sh <nm> <libcohort_collective.a>: each file compiled for an instruction set defines its reduce and its scale, no more.
# An inline function left there under wider flags could be the copy the linker keeps for the whole program, and stop it on older processors.
set -eu
symbols=$("$1" -A --defined-only --extern-only "$2" 2>/dev/null | grep -E '[:/](plain|avx2|avx512)\.cc')
stray=$(echo "$symbols" | grep -vE ' T _ZN6cohort10collective[0-9]+[a-z0-9]+(6reduce|5scale)E' || true)
[ -z "$stray" ] || { echo "symbols that other files may share:"; echo "$stray"; exit 1; }
[ "$(echo "$symbols" | wc -l)" -ge 2 ] || { echo "no reduce and scale found in $2"; exit 1; }
echo "$symbols"
