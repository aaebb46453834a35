#!/usr/bin/env bash
# Builds c1000k in Release and runs it, sized to this machine. On Debian, as
# root, it installs the packages that are missing. Arguments go to c1000k:
# examples/run_c1000k.sh --connections=100000 --hold=5
set -euo pipefail
# shellcheck source=cmake/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/common.sh"

need_packages "${build_packages[@]}"
build_preset examples c1000k
exec "$sluice_root/build/examples/examples/c1000k" "$@"
