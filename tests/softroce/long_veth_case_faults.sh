#!/usr/bin/env bash
# Faults of the network between two devices; tests/rdma_faults_*_test.cc says which.
exec "$(dirname "$0")/faults" --durations yes '[rdma-faults-veth],[rdma-faults-veth-long]'
