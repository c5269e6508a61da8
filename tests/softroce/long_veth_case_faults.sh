#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Faults of the network between two devices; tests/rdma/rdma_faults_*_test.cc says which.
exec "$(dirname "$0")/faults" '[rdma-faults-veth],[rdma-faults-veth-long]'
