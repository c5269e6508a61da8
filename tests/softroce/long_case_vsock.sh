#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The conformance suite over vsock and tls+vsock: the kernel's loopback, context ID 1.
AECONN_TRANSPORTS=vsock,tls+vsock exec "$(dirname "$0")/conformance"
