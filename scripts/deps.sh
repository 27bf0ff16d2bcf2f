#!/usr/bin/env bash
# Installs the Debian packages that a task needs, or lists them.
#   scripts/deps.sh build|test|sweep|python|parity|llamacpp|ranks|slurm|release|docs|valgrind|ci ...
#   scripts/deps.sh --list build      prints them, whatever is installed
# ROPEWALK_NO_INSTALL=1 only lists what is missing and fails if anything is.
set -euo pipefail

packages() {
  case "$1" in
    build)  # compilers and the libraries that the program links (oneDNN's CMake file asks for OpenCL)
      echo g++ cmake ninja-build pkg-config libhwy-dev libdnnl-dev ocl-icd-opencl-dev nlohmann-json3-dev \
        libcli11-dev libfmt-dev libsentencepiece-dev libpcre2-dev libutf8proc-dev libxxhash-dev \
        libcpp-httplib-dev libjs-chart.js
      # Newer sentencepiece.pc refer to protobuf-lite.pc, which libsentencepiece-dev does not bring.
      (. /etc/os-release && [ "${VERSION_ID:-}" = 12 ]) || echo libprotobuf-dev ;;
    test)   # test framework, exact reference arithmetic, python3 for tests of the program, comparison of ABIs, packages
      echo libgtest-dev libgmock-dev libmpfr-dev python3 abigail-tools dpkg-dev ;;
    sweep)  # the public-domain text that the embedded model is measured on
      echo bible-kjv bible-kjv-text ;;
    python) # what compiles the Python package, and virtual environments for it
      echo python3 python3-venv python3-dev ;;
    parity) # a virtual environment with PyTorch and transformers
      echo python3 python3-venv ;;
    llamacpp) # what llama.cpp is built with for comparisons
      echo libopenblas-dev ;;
    release) # Debian packages; a clean system to try one in
      echo dpkg-dev debootstrap python3 python3-venv python3-dev bible-kjv bible-kjv-text ;;
    ranks)  # MPI, and what slows a link between network namespaces
      echo libopenmpi-dev openmpi-bin iproute2 ;;
    slurm)  # a batch system of one node and an MPI, on which sweeps by several processes are tried
      echo slurm-wlm munge openmpi-bin procps ;;
    docs)   # a virtual environment with mkdocs
      echo python3 python3-venv ;;
    valgrind) # memcheck
      echo valgrind ;;
    ci)     # second compiler, sanitizers, its OpenMP with Archer, fuzzing, formatter, linter, headless browser
      echo clang clang-format clang-tidy libclang-rt-14-dev libomp-dev chromium ;;
    *) echo "scripts/deps.sh: unknown task '$1' (build test sweep python parity llamacpp ranks slurm release docs valgrind ci)" >&2; exit 2 ;;
  esac
}

if [ "${1:-}" = --list ]; then
  for task in "${@:2}"; do packages "$task"; done | paste -sd' '
  exit
fi
if ! command -v dpkg-query >/dev/null; then
  echo "This is no Debian system: install what README.md lists under 'Other systems'." >&2
  exit 0
fi

missing=()
for task in "$@"; do
  list=$(packages "$task")
  for package in $list; do
    state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
  done
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "Ropewalk needs these Debian packages for: $*" >&2
printf '  %s\n' "${missing[@]}" >&2
if [ -n "${ROPEWALK_NO_INSTALL:-}" ]; then
  echo "ROPEWALK_NO_INSTALL is set: nothing is installed. Install them with:" >&2
  echo "  apt-get install ${missing[*]}" >&2
  exit 1
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "Installing needs root and there is no sudo: run the line below as root, then again." >&2
    echo "  apt-get install ${missing[*]}" >&2
    exit 1
  }
  echo "Installing them with sudo (it may ask for your password)." >&2
  sudo=(sudo)
fi
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
  --no-install-recommends "${missing[@]}" >&2
