#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# kv-server --metrics with one loop and three, over TCP, a Unix socket and TLS; read by Python's
# http.client, a strict parser of the format, and curl.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
for tool in python3 curl; do
  command -v $tool >/dev/null || { fail $tool "it is not installed (package $tool)"; total; exit; }
done
have_tls=yes
if "$kv_server" --listen tls://127.0.0.1:0 2>&1 | grep 'tls is not available'; then
  echo 'No metrics over TLS: this kv-server was built without it.'
  have_tls=
else
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=kv \
    -addext subjectAltName=IP:127.0.0.1 -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
fi
read_by() {  # NAME ARGUMENTS OF metrics.py...
  local line lines
  mapfile -t lines < <(timeout 120 python3 -B tests/clients/metrics.py "${@:2}" 2>&1)
  [ ${#lines[@]} -ge 13 ] || fail "$1: cases" "${lines[*]}"
  for line in "${lines[@]}"; do
    case $line in
      'ok '*) ok "$1: ${line#ok }" ;;
      *) fail "$1" "${line#FAIL }" ;;
    esac
  done
}

for loops in 1 3; do
  arguments=(--metrics tcp://127.0.0.1:0 --metrics "unix://$work/m$loops.sock")
  [ -z "$have_tls" ] ||
    arguments+=(--metrics "tls://127.0.0.1:0?cert=$work/cert.pem&key=$work/key.pem"
      --listen "tls://127.0.0.1:0?cert=$work/cert.pem&key=$work/key.pem")
  start --loops $loops --listen tcp://127.0.0.1:0 "${arguments[@]}" || continue
  for key in a b c; do "$kv_cli" -u "${urls[0]}" set $key v >/dev/null; done
  "$kv_cli" -u "${urls[0]}" incr a >/dev/null 2>&1
  "$kv_cli" -u "${urls[0]}" get a >/dev/null
  [ -z "$have_tls" ] ||
    "$kv_cli" -u "${urls[1]}?ca=$work/cert.pem" ping >"$work/tls.log" 2>&1 || cat "$work/tls.log"
  tcp=$(sed -n 's,^metrics on tcp://127.0.0.1:,,p' "$log")
  tls=$(sed -n 's,^metrics on tls://127.0.0.1:,,p' "$log")
  read_by "$loops loops, tcp" 127.0.0.1 "$tcp"
  read_by "$loops loops, unix" "unix:$work/m$loops.sock"
  [ -z "$have_tls" ] || read_by "$loops loops, tls" 127.0.0.1 "$tls" "$work/cert.pem"
  text=$(curl -sS -m 20 "http://127.0.0.1:$tcp/metrics")
  has "$loops loops: curl reads it" "kv_loops $loops" "$text"
  is "$loops loops: curl sees 404" 404 \
    "$(curl -s -m 20 -o "$work/body" -w '%{http_code}' "http://127.0.0.1:$tcp/nothing")"
  # A silent client and one in the middle of a request must not delay the server's end.
  exec 5<>"/dev/tcp/127.0.0.1/$tcp"
  printf 'GET /met' >&5
  stop "$server"
  is "$loops loops: it ends as asked" 0 "$status"
  exec 5>&-
done
refuses 'a URL that is none' 'not a URL' "$kv_server" --listen tcp://127.0.0.1:0 --metrics 9121
total
