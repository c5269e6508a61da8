#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# 100 MB to a replica over rdma and tls+rdma, cut in the middle; 2,000 connections.
exec "$(dirname "$0")/case_redis.sh" long
