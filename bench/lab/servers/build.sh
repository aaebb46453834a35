#!/usr/bin/env bash
# Builds the servers that the lab measures beside sluice.
#   bench/lab/servers/build.sh [FOLDER [NAME...]]
# FOLDER: build/release/bench/lab. NAMES: all. A server whose package is not there
# is left out, and said so. Exit code 1 if one was left out.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=bench/peers.sh
source "$here/../../peers.sh"
peers_into "${1:-$sluice_root/build/release/bench/lab}" "${@:2}"

# cxx NAME WHAT IT LINKS...
# shellcheck disable=SC2317  # called by peer
cxx() {
  local name=$1
  shift
  peer_cxx "$here/$name.cc" "$here/serving.cc" -o "$out/$name" "$@"
}

# The classes, and a script that runs them.
# shellcheck disable=SC2317  # called by peer
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

peer raw_epoll g++ cxx raw_epoll "$sluice_root/bench/raw_epoll.cc"
peer raw_uring liburing-dev cxx raw_uring -luring
peer libevent_plain libevent-dev cxx libevent_plain -levent_core
peer libevent_buffer libevent-dev cxx libevent_buffer -levent_core
peer uv libuv1-dev cxx uv -luv
peer asio libasio-dev cxx asio -DASIO_STANDALONE
peer go_net golang-go \
  env GO111MODULE=off go build -o "$out/go_net" "$here/go/main.go"
peer netty "default-jdk-headless libnetty-java" netty
exit "$left_out"
