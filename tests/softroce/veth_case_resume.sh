#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Connections with resume=yes whose path is lost; described in tests/rdma/rdma_resume_test.cc.
# AECONN_RESUME_ROUNDS: losses of each kind. AECONN_RESUME_TESTS: the tests.
here=$(dirname "$0")
undo() {
  for pref in 3 4 12 13 14 15; do ip rule del pref $pref; done 2>/dev/null
  rdma link delete rxc
  rdma link delete rxd
  ip link del vc
  "$here/veth"
}
trap undo EXIT
"$here/second_rail" || exit 1
"$here/faults" "${AECONN_RESUME_TESTS:-[rdma-resume-veth]}"
