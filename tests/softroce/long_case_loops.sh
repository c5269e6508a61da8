#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The conformance suite with listeners on three loops, on a real device.
AECONN_TRANSPORTS=rdma,tls+rdma AECONN_LOOPS=3 exec "$(dirname "$0")/conformance"
