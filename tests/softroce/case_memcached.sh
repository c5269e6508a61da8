#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# memcached with aeconn's ports over rdma and tls+rdma: the tests of tests/drop_ins/memcached.sh that
# are not about its start. That script builds it, and tests other transports.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
# shellcheck source=tests/drop_ins/kit
. tests/drop_ins/kit
[ -x "$build/memcached/memcached" ] || { echo 'SKIPPED: memcached is not built: make memcached'; total; exit; }
address=$AECONN_RDMA_ADDRESS
make_certificate "$address" || { total; exit 1; }
mv "$work/cert" "$work/other.cert" && mv "$work/key" "$work/other.key"
make_certificate "$address" || { total; exit 1; }
AECONN_LIBRARY=$build/libaeconn-c.so PYTHONDONTWRITEBYTECODE=1 timeout 560 /usr/bin/python3 \
  tests/drop_ins/memcached.py "$build/memcached/memcached" "$work" "rdma://$address:*" \
  "tls+rdma://$address:*?cert=$work/cert&key=$work/key"
