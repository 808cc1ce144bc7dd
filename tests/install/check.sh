#!/usr/bin/env bash
# check.sh BUILD SCRATCH COMPONENTS PYTHON LIBDIR COMPILER: installs BUILD into SCRATCH/prefix, moves it (a package must not remember where
# it was installed), and builds and runs consumer/ against it. Nothing of the source tree is in reach but the consumer.
set -euo pipefail
build=$1 scratch=$2 components=$3 python=$4 libdir=$5 compiler=$6
consumer=$(cd "$(dirname "$0")" && pwd)/consumer
rm -rf "$scratch"
mkdir -p "$scratch"
cmake --install "$build" --prefix "$scratch/first" >"$scratch/install.log"
mv "$scratch/first" "$scratch/prefix"

echo "== find_package(Cohort COMPONENTS $components)"
cmake -S "$consumer" -B "$scratch/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/prefix" -DCMAKE_CXX_COMPILER="$compiler" \
  -DWITH="$components" -DCOHORT_PYTHON="$python" >"$scratch/configure.log" 2>&1 || { cat "$scratch/configure.log"; exit 1; }
cmake --build "$scratch/cmake"
"$scratch/cmake/outside"
if [[ $components == torch ]]; then "$scratch/cmake/outside_torch"; fi

echo "== pkg-config cohort"
export PKG_CONFIG_PATH=$scratch/prefix/$libdir/pkgconfig
read -r -a flags <<<"$(pkg-config --cflags --libs cohort)"
"$compiler" -std=c++20 "$consumer/outside.cc" -o "$scratch/outside_pc" "${flags[@]}"
"$scratch/outside_pc"

# refused NAME MESSAGE ARGS...: configuring with these arguments fails and says why.
refused() {
  local log=$scratch/$1.log message=$2
  if cmake -S "$consumer" -B "$scratch/$1" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/prefix" -DCMAKE_CXX_COMPILER="$compiler" "${@:3}" >"$log" 2>&1; then
    echo "find_package was satisfied with ${*:3}" >&2
    exit 1
  fi
  grep -q "$message" "$log" || { cat "$log"; exit 1; }
}
echo "== what find_package refuses"
refused version "considered but not accepted" -DVERSION=99
if [[ $components == torch ]]; then refused torch "COHORT_PYTHON" -DWITH=torch -DCOHORT_PYTHON="$scratch/no_such_python"; fi

echo "== the installed program"
"$scratch/prefix/bin/cohort" --version
