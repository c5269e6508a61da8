#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Faults on a real device; they are described in tests/rdma/rdma_faults_*_test.cc.
exec "$(dirname "$0")/faults" '[rdma-faults],[rdma-faults-long]'
