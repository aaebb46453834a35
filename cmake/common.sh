# Sourced by the scripts that build: packages, and a configured build of one
# preset. Nothing here depends on the folder it is called from.
# shellcheck shell=bash

sluice_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Debian's names. What the scripts' users may want for themselves as well.
# shellcheck disable=SC2034  # used by the scripts that source this
build_packages=(cmake g++ libabsl-dev libevent-dev libgflags-dev ninja-build
  pkgconf)
# shellcheck disable=SC2034
test_packages=(busybox-static libbenchmark-dev libgmock-dev libgtest-dev)

# need_packages NAME...: installs what is missing, or says what to install and
# ends the script.
need_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "Not a Debian system: it is up to you that it has what Debian calls" \
      "$*" >&2
    return
  fi
  local missing=() name
  for name in "$@"; do
    case $(dpkg-query -W -f '${db:Status-Status} ' "$name" 2>/dev/null) in
      *'installed '*) ;;
      *) missing+=("$name") ;;
    esac
  done
  if ((${#missing[@]} == 0)); then return; fi
  if ((EUID != 0)); then
    echo "Packages are missing. Install them, then start this again:" >&2
    echo "  sudo apt-get install ${missing[*]}" >&2
    exit 1
  fi
  echo "Installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q
  apt-get install -q -y --no-install-recommends "${missing[@]}"
}

# build_preset PRESET [TARGET...]: the programs end up in build/PRESET.
build_preset() {
  local preset=$1
  shift
  # In the root, where the presets are.
  (cd "$sluice_root" && cmake --preset "$preset")
  cmake --build "$sluice_root/build/$preset" ${1:+--target "$@"}
}
