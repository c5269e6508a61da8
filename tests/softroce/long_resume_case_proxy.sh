#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A client of tcp whose bytes go over rdma between two proxies, while the link of rdma is down for
# three seconds. With resume=yes the client notices nothing but the pause; with resume=no it is cut.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
# shellcheck source=tests/clients/kit_proxy
. tests/clients/kit_proxy
[ -e /sys/class/infiniband/rxa ] || { echo 'skipped: this is for rxa and rxb in the microVM'; total; exit; }
[ -x "$proxy" ] || { fail aeconn-proxy 'it is not built'; total; exit; }
here=$(dirname "$0")
# shellcheck source=tests/softroce/link
. "$here/link"
trap '"$here/veth" >/dev/null; finish' EXIT
one=${AECONN_RDMA_ADDRESS:?} two=${AECONN_RDMA_ADDRESS2:?}
flap=3

received() { local bytes=0; [ ! -s "$work/received" ] || bytes=$(<"$work/received"); echo $((10#$bytes)); }
client_ended() { ! kill -0 "$client" 2>/dev/null; }

stop_all() { stop "$client"; stop "$near"; stop "$far"; }
show() {  # what the proxies said of it
  grep -hv '^listening' "$near_log" "$far_log" | sed 's/^/    /'
  return 9
}
through() {  # OPTIONS "goes on"|"is cut"
  local name=$1 client before
  rm -f "$work/received"
  begin python3 -B tests/clients/steady.py serve || return
  start --listen "rdma://$one:0?$1&keepalive=300ms" --connect "$at" --verbose || return
  far=$server far_log=$log
  start --listen tcp://127.0.0.1:0 --connect "${urls[0]%%\?*}?$1&keepalive=300ms&source=$two" --verbose || return
  near=$server near_log=$log
  python3 -B tests/clients/steady.py ask "${urls[0]##*:}" "$work/received" >"$work/out" 2>&1 &
  client=$!
  servers+=("$client")
  flows() { [ "$(received)" -gt 100000 ] || client_ended; }
  soon flows
  [ "$(received)" -gt 100000 ] || { stop_all; show; return; }
  link_down $flap
  before=$(received)
  # More than what the buffers of the way back may still have had.
  goes_on() { [ "$(received)" -gt $((before + 1000000)) ] || client_ended; }
  soon goes_on
  if [ "$2" = 'is cut' ]; then
    stop_all
    echo "$name: $(cat "$work/out")"
    has "$name: the client $2" '^error: Connection reset by peer' "$(cat "$work/out")"
    return
  fi
  [ "$(received)" -gt $((before + 1000000)) ] || { stop_all; show; return; }
  stop "$client"
  echo "$name: $(cat "$work/out")"
  is "$name: the client $2" 0 "$status"
  has "$name: its bytes" '^[0-9]+ bytes, the same, longest pause [3-9][0-9][0-9][0-9] ms' "$(cat "$work/out")"
  end_between "$name"
}

despite_deafness through 'resume=yes&resume-time=20s' 'goes on'
despite_deafness through resume=no 'is cut'
total
