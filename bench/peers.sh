# Sourced by the scripts that build what sluice is measured beside.
# shellcheck shell=bash

# shellcheck source=cmake/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/common.sh"

# peers_into FOLDER [NAME...]: where they go, made if need be, is $out; with
# names, only those are built.
peers_into() {
  mkdir -p "$1"
  out=$(cd "$1" && pwd)
  wanted=("${@:2}")
  left_out=0
}

# peer NAME PACKAGE COMMAND...: what the command builds is $out/NAME. If it
# fails, that is said, and $left_out is 1: the script's exit code.
peer() {
  local name=$1 package=$2 log
  shift 2
  if ((${#wanted[@]})) && [[ " ${wanted[*]} " != *" $name "* ]]; then return; fi
  if log=$("$@" 2>&1); then
    echo "$name: $out/$name"
    return
  fi
  # shellcheck disable=SC2034  # used by the scripts that source this
  left_out=1
  rm -rf "${out:?}/$name"
  echo "$name: NOT built. Debian's package is $package. What it said:" >&2
  tail -n 5 <<<"$log" | sed 's/^/    /' >&2
}

# peer_cxx ARGUMENT...: the compiler, as sluice itself is compiled.
peer_cxx() {
  "${CXX:-g++}" -std=c++20 -O3 -DNDEBUG -pthread "-I$sluice_root" "$@"
}
