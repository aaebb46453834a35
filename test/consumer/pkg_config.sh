#!/usr/bin/env bash
# pkg_config.sh COMPILER OUTPUT [FLAGS...]: builds the consumer with what
# pkg-config says of sluice, and runs it.
set -euo pipefail

compiler=$1 output=$2
shift 2
read -ra flags <<<"$(pkg-config --cflags --libs sluice)"
"$compiler" -std=c++20 "$@" "$(dirname "$0")/echo_once.cc" \
  -o "$output" "${flags[@]}"
exec "$output"
