#!/usr/bin/env bash
# Brings what a target of the Makefile needs onto this machine: tools/setup.sh build|lint|fuzz|bench ...
# System packages by apt-get, only those that are missing; `build` also sees to a Python with torch and writes its path to
# build/python_path. A second run finds everything in place and takes a fraction of a second.
#   COHORT_PYTHON=/path/python   use this Python (torch 2.11 or newer) instead of making .venv
#   COHORT_SETUP=skip            install nothing, take what the machine has
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A packages=(
  [build]="g++ cmake ninja-build ccache mold pkg-config libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libyaml-cpp-dev
           libssl-dev libhwloc-dev zlib1g-dev libjpeg-dev libpng-dev libgtest-dev libgmock-dev libbenchmark-dev python3 python3-dev python3-venv ca-certificates iproute2 nftables libopenmpi-dev openmpi-bin
           libfaketime dataset-fashion-mnist"
  [lint]="clang-format-14 clang-tidy-14"
  [fuzz]="clang-14 libclang-rt-14-dev"
)
torch_wanted="torch==2.13.0"
python_packages="$torch_wanted numpy pytest safetensors"

say() { echo "setup: $*"; }

# Names of the packages given that dpkg does not have.
missing_packages() {
  local name installed
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "$@" 2>/dev/null | awk '$2 == "installed" { print $1 }') || true
  for name in "$@"; do
    grep -qx -- "$name" <<<"$installed" || echo "$name"
  done
}

install_packages() {
  local wanted=("$@") missing=() sudo=()
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "no apt-get on this machine: taking the compilers and libraries it has (needed: ${wanted[*]})"
    return
  fi
  mapfile -t missing < <(missing_packages "${wanted[@]}")
  if ((${#missing[@]} == 0)); then return; fi
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      say "missing: ${missing[*]}. Neither root nor sudo here: ask for them to be installed, or set COHORT_SETUP=skip to try without" >&2
      exit 1
    fi
    sudo=(sudo)
  fi
  say "installing ${missing[*]}"
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=2 -o DPkg::Lock::Timeout=300)
  if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } >build/setup.log 2>&1; then
    tail -n 5 build/setup.log >&2
    say "apt-get could not install them (build/setup.log); going on with what the machine has" >&2
  fi
}

# "2.13.0+cpu" of this Python's torch, without importing it; fails when there is none or it is older than 2.11.
torch_version() {
  "$1" - <<'PY' 2>/dev/null
import importlib.util, pathlib, re, sys
spec = importlib.util.find_spec("torch")
if not spec or not spec.submodule_search_locations:
    sys.exit(1)
text = pathlib.Path(spec.submodule_search_locations[0], "version.py").read_text()
version = re.search(r"__version__ = '([^']+)'", text)[1]
print(version)
sys.exit(tuple(map(int, version.split(".")[:2])) < (2, 11))
PY
}

use_python() {
  if [[ ! -f build/python_path || $(<build/python_path) != "$1" ]]; then echo "$1" >build/python_path; fi
}

python_with_torch() {
  local version stamp=.venv/.installed
  if [[ -n ${COHORT_PYTHON:-} ]]; then
    if ! version=$(torch_version "$COHORT_PYTHON"); then
      say "COHORT_PYTHON=$COHORT_PYTHON has no torch 2.11 or newer (${version:-none}); install it there, or unset COHORT_PYTHON" >&2
      exit 1
    fi
    use_python "$COHORT_PYTHON"
  elif [[ -f $stamp && $(<$stamp) == "$python_packages" ]]; then
    use_python "$PWD/.venv/bin/python"
  elif version=$(torch_version python3); then
    say "python3 has torch $version: using it"
    use_python "$(python3 -c 'import sys; print(sys.executable)')"
  elif [[ ${COHORT_SETUP:-} == skip ]]; then
    say "no torch, and COHORT_SETUP=skip: building without the modules that use it"
    use_python none
  else
    say "making .venv with $python_packages (about 1 GB)"
    rm -rf .venv
    python3 -m venv .venv
    # shellcheck disable=SC2086  # a list of words
    if ! .venv/bin/python -m pip install -q --disable-pip-version-check $python_packages; then
      say "pip could not install $python_packages; set COHORT_PYTHON to a Python that has torch 2.11 or newer to do without" >&2
      exit 1
    fi
    version=$(torch_version .venv/bin/python)
    echo "$python_packages" >$stamp
    say "torch $version is in .venv"
    use_python "$PWD/.venv/bin/python"
  fi
}

mkdir -p build
wanted=()
for group in "$@"; do
  if [[ -z ${packages[$group]:-} ]]; then
    say "unknown group '$group' (one of: ${!packages[*]})" >&2
    exit 2
  fi
  read -r -d '' -a words <<<"${packages[$group]}" || true
  wanted+=("${words[@]}")
done
if [[ ${COHORT_SETUP:-} != skip ]]; then install_packages "${wanted[@]}"; fi
if [[ " $* " == *" build "* ]]; then python_with_torch; fi
