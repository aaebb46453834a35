#!/usr/bin/env bash
# Measures Netty's decoders, as Debian packages them, on the work of codec_bench.
#   bench/netty_codec/run.sh [SECONDS]      # of each of ten rounds; 1
# Exit code 2: Java or Netty is missing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

missing() {
  echo "netty_codec: $1 is not there." >&2
  echo "On Debian: apt-get install default-jdk-headless libnetty-java" >&2
  exit 2
}
command -v java >/dev/null || missing "java"
command -v javac >/dev/null || missing "javac"

jars=/usr/share/java
class_path=
for module in buffer codec common resolver transport; do
  jar=$jars/netty-$module.jar
  [[ -r $jar ]] || missing "$jar"
  class_path+=$jar:
done

classes=$(mktemp -d)
trap 'rm -r "$classes"' EXIT
javac -cp "$class_path" -d "$classes" "$here/NettyCodecBench.java"
java -Dio.netty.leakDetection.level=disabled -cp "$class_path$classes" \
  NettyCodecBench "$@"
