#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Faults of the network between two devices; described in tests/rdma/rdma_faults_*_test.cc.
exec "$(dirname "$0")/faults" '[rdma-faults-veth],[rdma-faults-veth-long]'
