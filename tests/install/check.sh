#!/usr/bin/env bash
# check.sh BUILD SCRATCH COMPONENTS PYTHON LIBDIR COMPILER: installs BUILD into SCRATCH/prefix, moves it (a package must not remember where
# it was installed), builds and runs consumer/ against it, trains and plans with the installed program. Nothing of the source tree is in
# reach but the consumer and the Makefile, which is only asked what it would do.
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

echo "== make says where the program is"
# would ARGS...: the commands of `make ARGS`, none of them run.
would() { env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS -u PREFIX make -C "$consumer/../../.." --no-print-directory -n "$@"; }
said=$(would build)
[[ $(tail -n 1 <<<"$said") == *"build/bin/cohort"*"export PATH="* ]] || { echo "make build ends with: $said" >&2; exit 1; }
said=$(would test)
[[ $said != *"export PATH="* ]] || { echo "make test talks of PATH: $said" >&2; exit 1; }
said=$(would install PREFIX=/some/where)
[[ $said == *"cmake --install build --prefix \"/some/where\""* ]] || { echo "make install does: $said" >&2; exit 1; }

echo "== the installed program"
cohort=$scratch/prefix/bin/cohort
"$cohort" --version
"$cohort" doctor >"$scratch/doctor.log" || { cat "$scratch/doctor.log"; exit 1; }
if [[ $components != torch ]]; then exit 0; fi
grep -q "^OK *worker" "$scratch/doctor.log" || { cat "$scratch/doctor.log"; exit 1; }

tiny=(--set "model=mlp(in=784, hidden=16, out=10)" --set "data.train=synthetic(shape=1x28x28, classes=10, samples=200)" --set data.test=
      --set data.batch=10)
few=(--set epochs=0 --set steps=3)
cd "$scratch"
unset LD_LIBRARY_PATH COHORT_BACKENDS
echo "== cohort train, plan and verify from there"
"$cohort" train -n 2 "${tiny[@]}" "${few[@]}" --out "$scratch/run"
COHORT_CALIBRATION=none "$cohort" plan -n 2 "${tiny[@]}" >"$scratch/plan.log"
"$cohort" verify -n 2 "${tiny[@]}" >"$scratch/verify.log"
if [[ -f $scratch/prefix/libexec/cohort/libcohort_backend_gloo.so ]]; then
  echo "== backend gloo"
  "$cohort" train -n 2 "${tiny[@]}" "${few[@]}" --set backend=gloo --set deterministic=false --out "$scratch/gloo"
fi

echo "== doctor starts the worker it speaks of"
mkdir -p "$scratch/broken/bin" "$scratch/broken/libexec/cohort"
cp "$cohort" "$scratch/broken/bin"
printf '#!/bin/sh\necho "libtorch_cpu.so: cannot open shared object file" >&2\nexit 127\n' >"$scratch/broken/libexec/cohort/cohort-worker"
chmod +x "$scratch/broken/libexec/cohort/cohort-worker"
if "$scratch/broken/bin/cohort" doctor >"$scratch/broken.log"; then
  echo "doctor is satisfied with a worker that does not start" >&2
  exit 1
fi
grep -q "^FAIL *worker .*libtorch_cpu.so" "$scratch/broken.log" || { cat "$scratch/broken.log"; exit 1; }
