#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The conformance suite over EpollLoop, on a real device.
AECONN_LOOP=epoll AECONN_LOOPS=1 exec "$(dirname "$0")/long_case_loops.sh"
