#!/usr/bin/env bash
# Flaps under load: clients that redial ask without end over rdma while a link or the server goes and
# comes back, again and again; the simulation takes addresses, devices and paths away as well. After
# each return every client has answers; afterwards they come as fast as before; in the end nothing is
# left in the kernel.
# AECONN_FLAPS: how many of each at most; AECONN_FLAP_SECONDS: and how long.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
[ -e /sys/class/infiniband/rxa ] || { echo 'skipped: this is for rxa and rxb in the microVM'; total; exit; }
here=$(dirname "$0")
trap '"$here/veth" >/dev/null; finish' EXIT
flaps=${AECONN_FLAPS:-200} seconds=${AECONN_FLAP_SECONDS:-100} clients=4
url=rdma://$AECONN_RDMA_ADDRESS:7000
state() {
  rdma resource show | awk '{for (i = 3; i < NF; i += 2) n[$i] += $(i + 1)} END {for (k in n) print k, n[k]}' | sort
  grep -E '^(nr_mlock|nr_unevictable) ' /proc/vmstat
}
before=$(state)

serve() {
  "$kv_server" --listen "$url" >"$work/server.log" 2>&1 &
  server=$!
  servers+=("$server")
}
serve
asking=()
for ((i = 0; i < clients; i++)); do
  "$kv_cli" --redial -r -1 -u "$url?source=$AECONN_RDMA_ADDRESS2" PING >"$work/answers$i" 2>"$work/life$i" &
  asking+=($!)
  servers+=($!)
done
# Bytes, not lines: nobody reads it all again each time.
sizes() { stat -c %s "$work"/answers*; }
all_more() {
  local i=0 size
  while read -r size; do
    [ "$size" -gt "${had[i]}" ] || return 1
    i=$((i + 1))
  done < <(sizes)
}
patient() {  # COMMAND...: a minute
  local i
  for ((i = 0; i < 1200 * ${AECONN_SLOWER:-1}; i++)); do
    "$@" && return 0
    sleep 0.05
  done
  return 1
}
now() { date +%s%3N; }
total_size() { sizes | awk '{s += $1} END {print s}'; }
rate() { local was; was=$(total_size); sleep 2; echo $((($(total_size) - was) / 2)); }

had=(0 0 0 0)
if patient all_more; then ok 'all clients have answers'
else fail 'all clients have answers' "$(tail -qn 3 "$work"/life*)"; fi
rate_before=$(rate)
flap() {  # KIND
  case $1 in
    link) ip link set va down; sleep 0.2; "$here/veth" >/dev/null ;;
    server) { kill -KILL "$server" && wait "$server"; } 2>/dev/null; serve ;;
  esac
}
for kind in server link; do
  slowest=0 done=0 end=$((SECONDS + seconds / 2)) bad=''
  while [ $done -lt "$flaps" ] && [ $SECONDS -lt $end ]; do
    flap $kind
    returned=$(now)
    mapfile -t had < <(sizes)
    # What was under way counts as before: two more answers each.
    for i in "${!had[@]}"; do had[i]=$((had[i] + 12)); done
    patient all_more || { bad="after $done: $(tail -qn 2 "$work"/life*; tail -n 3 "$work/server.log")"; break; }
    took=$(($(now) - returned))
    [ $took -le $slowest ] || slowest=$took
    done=$((done + 1))
  done
  if [ -z "$bad" ]; then ok "$done flaps of $kind: everybody was back, the slowest after $slowest ms"
  else fail "flaps of $kind" "$bad"; fi
done
# A busy machine may disturb one look, not all of them.
for ((i = 0; i < 10; i++)); do
  rate_after=$(rate)
  [ $((rate_after * 10)) -ge $((rate_before * 7)) ] && break
done
if [ $((rate_after * 10)) -ge $((rate_before * 7)) ]; then ok "as fast as before: $rate_before and $rate_after bytes of answers in a second"
else fail 'as fast as before' "$rate_before bytes of answers in a second, and $rate_after"; fi
{ kill "${asking[@]}" "$server" && wait "${asking[@]}" "$server"; } 2>/dev/null
clean() { after=$(state); [ "$after" = "$before" ]; }
if soon clean; then ok 'nothing is left behind'; else fail 'left behind' "$before -- $after"; fi
total
