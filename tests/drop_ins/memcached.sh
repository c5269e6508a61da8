#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Debian's memcached with aeconn's ports, built from its source package: clients over each transport
# of this machine, limits, certificates, and every way to stop (docs/memcached.md).
# tests/softroce/case_memcached.sh does so over rdma, tests/drop_ins/memcached_suite runs memcached's
# own tests.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
# shellcheck source=tests/drop_ins/kit
. tests/drop_ins/kit
folder=$(bindings/drop_ins/memcached/build 2>"$work/why")
case $? in
  0) ok 'memcached is built' ;;
  77) echo "SKIPPED: memcached: $(cat "$work/why")"; total; exit ;;
  *) fail 'memcached is built' "$(cat "$work/why")"; total; exit 1 ;;
esac
make_certificate 127.0.0.1 || { total; exit 1; }
mv "$work/cert" "$work/other.cert" && mv "$work/key" "$work/other.key"
make_certificate 127.0.0.1 || { total; exit 1; }
tls="cert=$work/cert&key=$work/key"
AECONN_LIBRARY=$build/libaeconn-c.so PYTHONDONTWRITEBYTECODE=1 timeout 500 /usr/bin/python3 \
  tests/drop_ins/memcached.py "$folder/memcached" "$work" 'tcp://127.0.0.1:*' "unix://$work/u*" \
  "shm://$work/s*" "tls://127.0.0.1:*?$tls" "tls+unix://$work/tu*?$tls" "tls+shm://$work/ts*?$tls" \
  >"$work/checks" 2>"$work/trouble"
cat "$work/checks" "$work/trouble"
if [[ $(tail -n 1 "$work/checks") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
  passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
else
  fail 'the checks end' "$(tail -n 3 "$work/checks" "$work/trouble")"
fi
total
