#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What every program does with its arguments, its standard streams, and texts that peers choose:
# programs.py.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
python3 -B tests/clients/programs.py "$build" "$work"
