#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The conformance suite over vsock and tls+vsock: the kernel's loopback, context ID 1.
cd "$(dirname "$0")/../.." || exit 1
tally=$(mktemp) || exit 1
AECONN_TRANSPORTS=vsock,tls+vsock AECONN_TEST_TALLY=$tally \
  "${AECONN_BUILD:-build}/tests/unit-tests" -d yes '[conformance]~[long]'
status=$?
grep '^FAIL' "$tally"
last=$(tail -n 1 "$tally")
rm -f "$tally"
[[ $last = *passed* ]] || last="0 passed, 1 failed"
echo "$last"
[ $status = 0 ]
