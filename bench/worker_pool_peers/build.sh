#!/usr/bin/env bash
# Builds the programs that worker_pool_bench measures beside sluice, into the
# folder given (default: build/release/bench/worker_pool_peers). They need
# Debian's libtbb-dev, libasio-dev and golang-go; a peer whose package is not
# there is left out, and said so. Exit code 1 if one was left out.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=bench/peers.sh
source "$here/../peers.sh"
peers_into "${1:-$sluice_root/build/release/bench/worker_pool_peers}"

peer tbb libtbb-dev \
  peer_cxx "$here/tbb.cc" -o "$out/tbb" -ltbb
peer asio libasio-dev \
  peer_cxx -DASIO_STANDALONE "$here/asio.cc" -o "$out/asio"
peer goroutines golang-go \
  env GO111MODULE=off go build -o "$out/goroutines" "$here/goroutines.go"
exit "$left_out"
