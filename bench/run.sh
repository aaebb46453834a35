#!/usr/bin/env bash
# The lab: every server against every workload, in turns, in one run.
#   bench/run.sh [--quick|--full] [FLAGS OF bench/lab/lab.py]
#   bench/run.sh --quick --servers=raw_epoll,sluice --workloads=echo_64
# --quick: 5 turns; --full, the default: 21 where goals are close, else fewer.
# Prints a table for each workload; lab.json and lab.html in build/release/lab, or
# where --out says, have the same and more. Unless --workloads or --servers asks
# for a part, the programs that measure one thing each follow (README.md).
# On Debian, as root, it installs the servers' packages that are missing.
# Exit code: lab.py's, then that of the programs.
set -euo pipefail
# shellcheck source=cmake/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/common.sh"

flags=(--turns=21)
turns=7
case ${1-} in
  --quick)
    flags=(--turns=5)
    turns=3
    shift
    ;;
  --full) shift ;;
esac

need_packages "${build_packages[@]}" "${test_packages[@]}" python3 \
  default-jdk-headless golang-go libasio-dev libnetty-java liburing-dev \
  libtbb-dev libuv1-dev
build_preset release lab_client lab_sluice
bench=$sluice_root/build/release/bench
# One that cannot be built is named here, and again in the results.
"$sluice_root/bench/lab/servers/build.sh" "$bench/lab" || true
status=0
python3 -B "$sluice_root/bench/lab/lab.py" --programs="$bench/lab" \
  --out="$sluice_root/build/release/lab" "${flags[@]}" "$@" || status=$?
if ((status == 2)) || [[ " $* " == *" --workloads"* ]] ||
  [[ " $* " == *" --servers"* ]]; then
  exit "$status"
fi

check=()
if [[ " $* " == *" --check "* ]]; then check=(--check); fi
one() {
  printf '\n'
  "$@" || status=$?
}
build_preset release worker_pool_bench close_turns idle_memory idle_wakeups \
  slow_reader broadcast parts_bench codec_bench
"$sluice_root/bench/worker_pool_peers/build.sh" "$bench/worker_pool_peers" ||
  true
one "$bench/worker_pool_bench" --peers_dir="$bench/worker_pool_peers" \
  --turns="$turns" "${check[@]}"
one "$bench/close_turns" --turns="$turns" "${check[@]}"
one "$bench/idle_memory" "${check[@]}"
one "$bench/idle_wakeups" "${check[@]}"
one "$bench/slow_reader" --turns="$turns" "${check[@]}"
one "$bench/broadcast" "${check[@]}"
one "$bench/parts_bench" --benchmark_min_time=0.2
one "$bench/codec_bench" --benchmark_min_time=0.2
exit "$status"
