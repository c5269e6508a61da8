#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# kv-server as a systemd service: inherited listening sockets, notifications, and the example units
# of programs/service.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"

for loops in 1 2; do
  t() { echo "--loops $loops: $1"; }
  activated "$work/s$loops.sock" "$kv_server" --loops $loops
  is "$(t 'a socket of systemd is served')" PONG "$(timeout 20 "$kv_cli" -u "unix://$work/s$loops.sock" PING 2>&1)"
  stop "$server"
  is "$(t 'it, and no other; systemd is told when it is ready, and about to end')" \
    "listening on unix://$work/s$loops.sock"$'\nREADY=1\nSTOPPING=1\nstatus 0' "$(grep -v '^kv-server' "$log")"
  [ -S "$work/s$loops.sock" ] && ok "$(t 'the file of that socket stays')" ||
    fail "$(t 'the file of that socket stays')" 'it is gone'
done
activated 0 "$kv_server" --listen "unix://$work/own.sock"
port=$(sed -n 's/^port //p' "$log")
is 'a port of systemd, beside an own URL' $'PONG\nPONG' \
  "$(for at in "tcp://127.0.0.1:$port" "unix://$work/own.sock"; do timeout 20 "$kv_cli" -u "$at" PING 2>&1; done)"
stop "$server"
if "$kv_server" --listen tls://127.0.0.1:1 2>&1 | grep -q 'leaves TLS out'; then
  echo 'No test over TLS: this build is without it.'
else
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=IP:127.0.0.1 -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
  activated 0 "$kv_server" --activated tls --tls-cert "$work/cert.pem" --tls-key "$work/key.pem"
  port=$(sed -n 's/^port //p' "$log")
  is 'a port of systemd speaks TLS' PONG \
    "$(timeout 20 "$kv_cli" -u "tls://127.0.0.1:$port?ca=$work/cert.pem" PING 2>&1)"
  stop "$server"
fi
refuses '--activated' 'tcp or tls' "$kv_server" --listen "unix://$work/a" --activated udp
if command -v systemd-analyze >/dev/null; then
  units=$work/units
  mkdir "$units"
  for unit in kv-server.service kv-server.socket; do
    sed "s|^ExecStart=[^ ]*|ExecStart=$kv_server|" "programs/service/$unit" >"$units/$unit"
  done
  sandbox() {  # WHAT MOST
    local exposed
    is "systemd has nothing to say of $1" '' "$(systemd-analyze verify --man=no "$units"/kv-server.{service,socket} 2>&1)"
    exposed=$(systemd-analyze security --offline=yes "$units/kv-server.service" 2>&1 | sed -n 's/.*level for .*: \([0-9.]*\) .*/\1/p')
    awk -v e="$exposed" -v most="$2" 'BEGIN {exit !(e != "" && e <= most)}' && ok "$1: exposed by $exposed of 10" ||
      fail "$1: the sandbox" "systemd-analyze security gives it $exposed, more than $2"
  }
  sandbox 'the units' 2.0
  drop_in=$units/kv-server.service.d/rdma.conf
  mkdir "$units/kv-server.service.d"
  sed "s|^ExecStart=[^ ]\+|ExecStart=$kv_server|" programs/service/rdma.conf >"$drop_in"
  sandbox 'the units, with rdma' 2.5
else
  echo 'SKIPPED: the units: systemd-analyze is not here'
fi
total
