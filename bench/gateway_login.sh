#!/usr/bin/env bash
# Do logins that block in the worker pool slow the players down? Runs
# examples/gateway on one CPU and gateway_client on another, in turns: moves
# only, and moves while visitors log in. README.md says how to read it.
#
#   bench/gateway_login.sh [--check] [--turns=N] [--seconds=N] [--players=N]
#       [--rate=N] [--logins=N] [--query=50ms] [--gateway_cpu=0]
#       [--client_cpu=1] [--programs=FOLDER]
#
# Builds the programs (preset examples) unless it is told where they are. Exit
# code 0: measured; 1: with --check, the ratio is above 2; 2: something failed.
set -euo pipefail
# shellcheck source=cmake/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/common.sh"

limit=2
turns=5
seconds=5
players=100
rate=20
logins=100
query=50ms
gateway_cpu=0
client_cpu=1
programs=
check=false

fail() {
  echo "gateway_login: $*" >&2
  exit 2
}

for argument in "$@"; do
  value=${argument#*=}
  case $argument in
    --check) check=true ;;
    --turns=* | --seconds=* | --players=* | --rate=* | --logins=* | \
      --gateway_cpu=* | --client_cpu=*)
      [[ $value =~ ^[0-9]+$ ]] || fail "$argument: a whole number is wanted"
      name=${argument%%=*}
      printf -v "${name#--}" %s "$value"
      ;;
    --query=*) query=$value ;;
    --programs=*) programs=$value ;;
    *) fail "$argument: there is no such flag" ;;
  esac
done
((turns > 0)) || fail "--turns=$turns: at least 1 is wanted"
((logins > 0)) || fail "--logins=$logins: at least 1 is wanted"

if [[ -z $programs ]]; then
  need_packages "${build_packages[@]}"
  build_preset examples gateway gateway_client >/dev/null
  programs=$sluice_root/build/examples/examples
fi
for program in gateway gateway_client; do
  [[ -x $programs/$program ]] || fail "$programs/$program is not there"
done

folder=$(mktemp -d)
gateway=
finish() {
  if [[ -n $gateway ]]; then kill -KILL "$gateway" 2>/dev/null || true; fi
  rm -r "$folder"
}
trap finish EXIT

# A number of the client's result.
figure() {
  local found
  found=$(sed -n "$1" "$folder/result")
  [[ $found =~ ^[0-9]+$ ]] || fail "the client's result has no such figure: $1"
  echo "$found"
}

# turn LOGINS_PER_SECOND: sets p99 (microseconds). A fresh process each time.
turn() {
  local address='' i
  taskset -c "$gateway_cpu" "$programs/gateway" --listen=tcp://127.0.0.1:0 \
    --reactors=1 --login_query="$query" >"$folder/gateway" 2>&1 &
  gateway=$!
  for ((i = 0; i < 1000; ++i)); do
    address=$(sed -n 's/^ready //p' "$folder/gateway")
    if [[ -n $address ]]; then break; fi
    kill -0 "$gateway" 2>/dev/null || break
    sleep 0.01
  done
  [[ -n $address ]] || fail "the gateway did not start: $(<"$folder/gateway")"
  taskset -c "$client_cpu" "$programs/gateway_client" --address="$address" \
    --players="$players" --rate="$rate" --seconds="$seconds" \
    --logins_per_second="$1" --json="$folder/result" >"$folder/client" 2>&1 ||
    fail "the client was not content: $(<"$folder/client")"
  kill -TERM "$gateway"
  wait "$gateway" || fail "the gateway failed: $(<"$folder/gateway")"
  gateway=

  p99=$(figure 's/.*"move_us": {.*"p99": \([0-9]*\),.*/\1/p')
  # A login that was turned away did not block anything.
  local done_logins
  done_logins=$(figure 's/.*"logins_ok": \([0-9]*\),.*/\1/p')
  ((done_logins * 10 >= $1 * seconds * 9)) ||
    fail "only $done_logins of $(($1 * seconds)) logins went through the pool"
}

# Of the numbers given.
median() {
  printf '%s\n' "$@" | sort -n | awk '
    { v[NR] = $1 }
    END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

echo "$players players, $rate moves a second each, $turns turns of $seconds s;" \
  "with: $logins logins a second that block for $query"
printf '%6s  %16s  %16s\n' turn 'p99 without, us' 'p99 with, us'
without=()
with=()
for ((n = 1; n <= turns; ++n)); do
  # A B, B A, A B ...: what drifts goes to both.
  order=(0 "$logins")
  if ((n % 2 == 0)); then order=("$logins" 0); fi
  for each in "${order[@]}"; do
    turn "$each"
    if ((each == 0)); then without+=("$p99"); else with+=("$p99"); fi
  done
  printf '%6d  %16s  %16s\n' "$n" "${without[-1]}" "${with[-1]}"
done

a=$(median "${without[@]}")
b=$(median "${with[@]}")
verdict=$(awk -v a="$a" -v b="$b" -v limit="$limit" 'BEGIN {
  printf "%.2f times, limit %s: %s", b / a, limit, b <= limit * a ? "met" : "MISSED"
}')
printf '%6s  %16s  %16s\n' median "$a" "$b"
echo "ratio of medians: $verdict"
if $check && [[ $verdict == *MISSED ]]; then exit 1; fi
