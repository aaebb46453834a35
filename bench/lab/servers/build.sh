#!/usr/bin/env bash
# Builds the servers that the lab measures beside sluice.
#   bench/lab/servers/build.sh [FOLDER [NAME...]]
# FOLDER: build/release/bench/lab. NAMES: all. A server whose package is not there
# is left out, and said so. Exit code 1 if one was left out.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
out=${1:-$root/build/release/bench/lab}
mkdir -p "$out"
out=$(cd "$out" && pwd)
wanted=("${@:2}")
missing=0

# server NAME PACKAGE COMMAND...: what the command builds is $out/NAME.
server() {
  local name=$1 package=$2 log
  shift 2
  if ((${#wanted[@]})) && [[ " ${wanted[*]} " != *" $name "* ]]; then return; fi
  if log=$("$@" 2>&1); then
    echo "$name: $out/$name"
    return
  fi
  missing=1
  rm -rf "${out:?}/$name"
  echo "$name: NOT built. Debian's package is $package. What it said:" >&2
  tail -n 5 <<<"$log" | sed 's/^/    /' >&2
}

# cxx NAME WHAT IT LINKS...
# shellcheck disable=SC2317  # called by server
cxx() {
  local name=$1
  shift
  "${CXX:-g++}" -std=c++20 -O3 -DNDEBUG -pthread "-I$root" \
    "$here/$name.cc" "$here/serving.cc" -o "$out/$name" "$@"
}

# The classes, and a script that runs them.
# shellcheck disable=SC2317  # called by server
netty() {
  local jars=/usr/share/java class_path='' module
  for module in buffer codec common handler resolver transport \
    transport-native-epoll transport-native-unix-common; do
    class_path+=$jars/netty-$module.jar:
  done
  mkdir -p "$out/netty_classes"
  javac -cp "$class_path" -d "$out/netty_classes" "$here/netty/NettyEcho.java" &&
    cat >"$out/netty" <<EOF &&
#!/bin/sh
exec java -Dio.netty.leakDetection.level=disabled \\
  -cp "$class_path$out/netty_classes" NettyEcho "\$@"
EOF
    chmod +x "$out/netty"
}

server raw_epoll g++ cxx raw_epoll "$root/bench/raw_epoll.cc"
server raw_uring liburing-dev cxx raw_uring -luring
server libevent_plain libevent-dev cxx libevent_plain -levent_core
server libevent_buffer libevent-dev cxx libevent_buffer -levent_core
server uv libuv1-dev cxx uv -luv
server asio libasio-dev cxx asio -DASIO_STANDALONE
server go_net golang-go \
  env GO111MODULE=off go build -o "$out/go_net" "$here/go/main.go"
server netty "default-jdk-headless libnetty-java" netty
exit "$missing"
