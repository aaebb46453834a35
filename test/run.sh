#!/usr/bin/env bash
# Builds sluice in Release and runs every test. On Debian, as root, it installs
# the packages that are missing. Arguments go to ctest: test/run.sh -R address
set -euo pipefail
# shellcheck source=cmake/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/common.sh"

need_packages "${build_packages[@]}" "${test_packages[@]}"
build_preset release
cd "$sluice_root"
exec ctest --preset release "$@"
