#!/usr/bin/env bash
# The lab: every server against every workload, in turns, in one run.
#   bench/run.sh [--quick|--full] [FLAGS OF bench/lab/lab.py]
#   bench/run.sh --quick --servers=raw_epoll,sluice --workloads=echo_64
# --quick: 3 turns of a quarter of the messages; --full, the default: 7 turns.
# Prints a table for each workload; lab.json and lab.html in build/release/lab, or
# where --out says, have the same and more.
# On Debian, as root, it installs the servers' packages that are missing.
set -euo pipefail
# shellcheck source=cmake/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/common.sh"

flags=(--turns=7)
case ${1-} in
  --quick)
    flags=(--turns=3 --scale=0.25)
    shift
    ;;
  --full) shift ;;
esac

need_packages "${build_packages[@]}" "${test_packages[@]}" python3 \
  default-jdk-headless golang-go libasio-dev libnetty-java liburing-dev \
  libuv1-dev
build_preset release lab_client lab_sluice
programs=$sluice_root/build/release/bench/lab
# One that cannot be built is named here, and again in the results.
"$sluice_root/bench/lab/servers/build.sh" "$programs" || true
exec python3 -B "$sluice_root/bench/lab/lab.py" --programs="$programs" \
  --out="$sluice_root/build/release/lab" "${flags[@]}" "$@"
