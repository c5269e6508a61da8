#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Faults on a real device; tests/rdma/rdma_faults_*_test.cc says which.
exec "$(dirname "$0")/faults" '[rdma-faults],[rdma-faults-long]'
