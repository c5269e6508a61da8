#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Metrics of a server on rdma: durations of connects, and the counters of the device's ports.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
for loops in 1 2; do
  start --loops $loops --listen "rdma://$AECONN_RDMA_ADDRESS:0" --metrics tcp://127.0.0.1:0 ||
    continue
  tcp=$(sed -n 's,^metrics on tcp://,,p' "$log")
  scrape() { curl -sS -m 20 "http://$tcp/metrics"; }
  sent() { sed -n 's/^aeconn_rdma_port_hw_counter_total{.*counter="sent_pkts"} //p'; }
  is "$loops loops: a client" OK "$("$kv_cli" -u "${urls[0]}" set a "$(printf %02000d 1)")"
  first=$(scrape)
  has "$loops loops: times and ports" \
    'aeconn_accept_seconds_count\{scheme="rdma"\} 1
aeconn_rdma_port_hw_counter_total\{scheme="rdma",device="[a-z0-9_]+",port="1",counter="sent_pkts"\} [1-9]
# TYPE aeconn_rdma_port_hw_counter_total counter' "$first"
  for _ in 1 2 3; do "$kv_cli" -u "${urls[0]}" get a >/dev/null; done
  before=$(sent <<<"$first") after=$(scrape | sent)
  if [ "$after" -gt "$before" ]; then
    ok "$loops loops: the port has sent more"
  else
    fail "$loops loops: the port has sent more" "$before, then $after"
  fi
  # Counted since the process opened the device, not since the device exists.
  whole=0
  for file in /sys/class/infiniband/*/ports/1/hw_counters/sent_pkts; do
    whole=$((whole + $(<"$file")))
  done
  if [ "$loops" = 2 ]; then
    if [ "$after" -lt "$whole" ]; then
      ok 'a difference: an earlier server is not in it'
    else
      fail 'a difference' "$after of $whole"
    fi
  fi
  stop "$server"
  is "$loops loops: it ends as asked" 0 "$status"
done
total
