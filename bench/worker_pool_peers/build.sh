#!/usr/bin/env bash
# Builds the programs that worker_pool_bench measures beside sluice, into the
# folder given (default: build/release/bench/worker_pool_peers). They need
# Debian's libtbb-dev, libasio-dev and golang-go; a peer whose package is not
# there is left out, and said so. Exit code 1 if one was left out.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$root/build/release/bench/worker_pool_peers}
mkdir -p "$out"
out=$(cd "$out" && pwd)
missing=0

# peer NAME PACKAGE COMMAND...: what the command builds is $out/NAME.
peer() {
  local name=$1 package=$2 log
  shift 2
  if log=$("$@" 2>&1); then
    echo "$name: $out/$name"
    return
  fi
  missing=1
  rm -f "$out/$name"
  echo "$name: NOT built. Debian's package is $package. What it said:" >&2
  tail -n 5 <<<"$log" | sed 's/^/    /' >&2
}

cxx=("${CXX:-g++}" -std=c++20 -O3 -DNDEBUG -pthread "-I$root")
peer tbb libtbb-dev \
  "${cxx[@]}" "$here/tbb.cc" -o "$out/tbb" -ltbb
peer asio libasio-dev \
  "${cxx[@]}" -DASIO_STANDALONE "$here/asio.cc" -o "$out/asio"
peer goroutines golang-go \
  env GO111MODULE=off go build -o "$out/goroutines" "$here/goroutines.go"
exit "$missing"
