#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What a message over rdma costs above the simulation's devices, counted by callgrind: within two per
# cent of bench/messages/simulation.txt.
set -u
cd "$(dirname "$0")/../.." || exit 1
if [ "${TLS-}" = no ] || [ "${RDMA-}" = no ]; then
  echo 'SKIPPED: the cost of a message: the simulation needs TLS and RDMA'
  echo '0 passed, 0 failed'
  exit 0
fi
exec bench/messages/simulation --check
