#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Common behaviour of all programs: arguments, standard streams, and texts chosen by peers. See
# programs.py.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
python3 -B tests/clients/programs.py "$build" "$work"
