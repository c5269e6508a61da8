#!/usr/bin/env bash
# Faults on a real device; tests/rdma_faults_*_test.cc says which.
exec "$(dirname "$0")/faults" '[rdma-faults],[rdma-faults-long]'
