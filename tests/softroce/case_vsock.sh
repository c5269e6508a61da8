#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# vsock and TLS over it, between programs of one machine: the kernel's loopback, context ID 1.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
for module in vsock_loopback vmw_vsock_virtio_transport_common vsock; do
  grep -q "^$module " /proc/modules && continue
  if [ "${RDMA-}" = host ]; then echo "skipped: this kernel has not loaded $module"; total; exit; fi
  fail "the module $module is loaded" "$(cut -d' ' -f1 /proc/modules | tr '\n' ' ')"
done

tests=$build/tests/unit-tests
if AECONN_TEST_TALLY=$work/tally timeout 500 "$tests" '[vsock]' >"$work/tests" 2>&1 &&
  grep -q '^[1-9][0-9]* passed, 0 failed$' "$work/tally" && ! grep -q 'skipped' "$work/tests"; then
  ok "unit tests: $(tail -n 2 "$work/tests" | tr '\n' ' ')"
else
  fail 'unit tests' "$(tail -n 40 "$work/tests")"
fi

serves() {  # NAME SERVER-ARGUMENTS...; uses the client's arguments `more`
  local name=$1 large
  start "${@:2}" || return
  has "$name: it listens on a port of context ID 1" '^[a-z+]*vsock://1:[0-9]+$' "${urls[0]}"
  is "$name: SET" OK "$(timeout 60 "$kv_cli" "${more[@]}" -u "${urls[0]}" SET key value 2>&1)"
  is "$name: GET" value "$(timeout 60 "$kv_cli" "${more[@]}" -u "${urls[0]}" GET key 2>&1)"
  large=$(head -c 60000 /dev/urandom | base64 -w 0)
  is "$name: SET of 80 kB" OK "$(timeout 60 "$kv_cli" "${more[@]}" -u "${urls[0]}" SET large "$large" 2>&1)"
  is "$name: GET gives the same" "$large" "$(timeout 60 "$kv_cli" "${more[@]}" -u "${urls[0]}" GET large 2>&1)"
  has "$name: CLIENT LIST has context IDs" 'addr=1:[0-9]+ laddr=1:[0-9]+ ' \
    "$(timeout 60 "$kv_cli" "${more[@]}" -u "${urls[0]}" CLIENT LIST 2>&1)"
  stop "$server"
  is "$name: it ends as asked" 0 "$status"
  has "$name: without a listener it is refused" 'Connection refused' \
    "$(timeout 60 "$kv_cli" "${more[@]}" -u "${urls[0]}" PING 2>&1)"
}

more=()
serves vsock --listen vsock://1:7100

if "$kv_server" --listen tls+vsock://1:7101 2>&1 | grep -q 'leaves TLS out'; then
  echo 'No test over TLS: this build is without it.'
else
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=vsock \
    -addext subjectAltName=DNS:kv.test -keyout "$work/key.pem" -out "$work/cert.pem" \
    2>"$work/openssl.log" || fail 'a certificate is made' "$(cat "$work/openssl.log")"
  more=(--cacert "$work/cert.pem" --sni kv.test)
  serves tls+vsock --listen tls+vsock://1:7101 --tls-cert "$work/cert.pem" --tls-key "$work/key.pem"
  start --listen tls+vsock://1:7102 --tls-cert "$work/cert.pem" --tls-key "$work/key.pem"
  has 'tls+vsock: a context ID is not the name of a certificate' 'certificate' \
    "$(timeout 60 "$kv_cli" --cacert "$work/cert.pem" -u "${urls[0]}" PING 2>&1)"
fi
total
