#!/usr/bin/env bash
# check.sh BUILD SCRATCH COMPONENTS PYTHON LIBDIR COMPILER: installs BUILD into SCRATCH/prefix, moves it (a package must not remember where
# it was installed), builds and runs consumer/ against it, trains and plans with the installed program, also with a plugin built against
# it. Nothing of the source tree is in reach but the consumer and the Makefile, which is only asked what it would do.
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

if [[ $components == torch ]]; then
  no_python=$scratch/no_such_python
  torch=$("$python" -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])")
  # with_torch NAME ARGS...: configures the consumer for a libtorch that no Python names.
  with_torch() {
    cmake -S "$consumer" -B "$scratch/$1" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DWITH=torch -DCOHORT_PYTHON="$no_python" \
      "${@:2}" >"$scratch/$1.log" 2>&1 || { cat "$scratch/$1.log"; exit 1; }
  }
  # libtorch FOLDER VERSION: what the zip of pytorch.org has, of this torch.
  libtorch() {
    mkdir -p "$1/lib"
    ln -s "$torch/include" "$torch/share" "$1"
    ln -s "$torch"/lib/*.so* "$1/lib"
    echo "$2" >"$1/build-version"
  }
  version=$(sed -n "s/^__version__ = '\([^'+]*\).*/\1/p" "$torch/version.py")

  echo "== find_package(Torch), then find_package(Cohort), and both linked"
  with_torch first -DTORCH_FIRST=ON -DCMAKE_PREFIX_PATH="$scratch/prefix;$torch"
  grep -q "named by the target torch" "$scratch/first.log" || { cat "$scratch/first.log"; exit 1; }
  cmake --build "$scratch/first" --target outside_torch
  "$scratch/first/outside_torch"

  echo "== a libtorch folder, with CUDA's libraries and no CUDA toolkit"
  libtorch "$scratch/zip" "$version+cu999"
  touch "$scratch/zip/lib/libtorch_cuda.so" "$scratch/zip/lib/libc10_cuda.so"
  for named in "-DTorch_DIR=$scratch/zip/share/cmake/Torch -DCMAKE_PREFIX_PATH=$scratch/prefix" "-DCMAKE_PREFIX_PATH=$scratch/prefix;$scratch/zip"; do
    rm -rf "$scratch/cuda"
    read -r -a words <<<"$named"
    with_torch cuda "${words[@]}"
    ninja -C "$scratch/cuda" -t commands outside_torch >"$scratch/cuda.commands"
    grep -q -- "-idirafter $scratch/zip/include " "$scratch/cuda.commands" || { cat "$scratch/cuda.log" "$scratch/cuda.commands"; exit 1; }
    grep -q "$scratch/zip/lib/libtorch_cuda.so" "$scratch/cuda.commands" || { cat "$scratch/cuda.commands"; exit 1; }
  done
fi

echo "== pkg-config cohort"
export PKG_CONFIG_PATH=$scratch/prefix/$libdir/pkgconfig
read -r -a flags <<<"$(pkg-config --cflags --libs cohort)"
"$compiler" -std=c++20 "$consumer/outside.cc" -o "$scratch/outside_pc" "${flags[@]}"
"$scratch/outside_pc"

# refused NAME MESSAGE ARGS...: configuring with these arguments fails and says why.
refused() {
  local log=$scratch/$1.log message=$2
  if cmake -S "$consumer" -B "$scratch/refused_$1" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/prefix" -DCMAKE_CXX_COMPILER="$compiler" "${@:3}" \
    >"$log" 2>&1; then
    echo "find_package was satisfied with ${*:3}" >&2
    exit 1
  fi
  tr -s ' \n' ' ' <"$log" | grep -q "$message" || { cat "$log"; exit 1; }
}
echo "== what find_package refuses"
refused version "considered but not accepted" -DVERSION=99
if [[ $components == torch ]]; then
  # refused_torch NAME MESSAGE: with the libtorch in SCRATCH/NAME.
  refused_torch() { refused "$1" "$2" -DWITH=torch -DTorch_DIR="$scratch/$1/share/cmake/Torch" -DCOHORT_PYTHON="$no_python"; }
  refused no_torch "no target torch and no libtorch in Torch_DIR or CMAKE_PREFIX_PATH, and $no_python did not run" \
    -DWITH=torch -DCOHORT_PYTHON="$no_python"
  refused_torch nowhere "nowhere (named by Torch_DIR=.*) is no libtorch for Linux"
  libtorch "$scratch/newer" 99.1.0+cpu
  refused_torch newer "Cohort was built with torch $version.*, but .*/newer (named by .*) is 99.1.0+cpu; rebuild Cohort against it"
  libtorch "$scratch/older" 2.4.1
  refused_torch older "torch 2.4.1 in .* is too old"
  libtorch "$scratch/old_abi" "$version"
  rm "$scratch/old_abi/lib/libc10.so"
  "$compiler" -shared -x c /dev/null -o "$scratch/old_abi/lib/libc10.so"
  refused_torch old_abi "is built with _GLIBCXX_USE_CXX11_ABI=0"
fi

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
hello=$(cd / && PATH=/usr/bin:/bin "$cohort" run -n 2 01_hello_all_reduce) || { echo "$hello"; exit 1; }
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

echo "== a plugin: the example that is installed, built against what is installed, with the torch that this was built with"
cp -r "$scratch/prefix/libexec/cohort/examples/own_model" "$scratch/own_model"
env -u COHORT_PYTHON cmake -S "$scratch/own_model" -B "$scratch/own_build" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/prefix" \
  -DCMAKE_CXX_COMPILER="$compiler" >"$scratch/own.log" 2>&1 || { cat "$scratch/own.log"; exit 1; }
cmake --build "$scratch/own_build" --target mine
"$cohort" train -n 2 --plugin "$scratch/own_build/libmine.so" --set "model=mine(depth=1)" --set data.train=stripes --set data.test= \
  "${few[@]}" --out "$scratch/own"

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
