#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Flaps under load: clients that redial send requests over rdma while the server, an address, a
# device or a link (whose port reports an error and becomes active again) repeatedly disappears and
# comes back. After each return all clients must get answers; afterwards answers must be as fast as
# before; in the end nothing may be left in the kernel.
#
# AECONN_FLAPS: maximum number of flaps of each kind; AECONN_FLAP_SECONDS: time limit for all of
# them together; AECONN_FLAP_KINDS: the kinds.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
[ -e /sys/class/infiniband/rxa ] || { echo 'skipped: this is for rxa and rxb in the microVM'; total; exit; }
here=$(dirname "$0")
# shellcheck source=tests/softroce/link
. "$here/link"
trap '"$here/veth" >/dev/null; finish' EXIT
flaps=${AECONN_FLAPS:-200} seconds=${AECONN_FLAP_SECONDS:-100} clients=4
kinds=${AECONN_FLAP_KINDS:-server address device link}
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
# Compares sizes in bytes, not lines, so that the files need not be read again each time.
sizes() { stat -c %s "$work"/answers*; }
all_more() {
  local i=0 size
  while read -r size; do
    [ "$size" -gt "${had[i]}" ] || return 1
    i=$((i + 1))
  done < <(sizes)
}
patient() {  # COMMAND...: waits up to half a minute
  local until=$((SECONDS + 30 * ${AECONN_SLOWER:-1}))
  until "$@"; do
    [ $SECONDS -lt $until ] || return 1
    sleep 0.05
  done
}
now() { date +%s%3N; }
total_size() { sizes | awk '{s += $1} END {print s}'; }
rate() { local was; was=$(total_size); sleep 2; echo $((($(total_size) - was) / 2)); }

# Diagnosis of a failure: the clients, the server, or a network that was not restored?
what_is_there() {
  tail -qn 4 "$work"/life*
  tail -n 3 "$work/server.log"
  ip -o addr show scope global
  ip route show table 101
  ip route show table 102
  ip neigh
  rdma link show
  rdma resource show
  timeout 20 "$kv_cli" -u "$url?source=$AECONN_RDMA_ADDRESS2" PING 2>&1
}

had=(0 0 0 0)
if patient all_more; then ok 'all clients have answers'
else fail 'all clients have answers' "$(tail -qn 3 "$work"/life*)"; fi
rate_before=$(rate)
side_of() { [ $(($1 % 2)) = 0 ] && echo va || echo vb; }
end_of() { [ $(($1 % 2)) = 0 ] && echo "$AECONN_RDMA_ADDRESS/24" || echo "$AECONN_RDMA_ADDRESS2/24"; }
flap() {  # KIND TURN
  case $1 in
    link) link_down 0.2 ;;
    # Alternates between the server's end and the clients' end.
    address) ip addr del "$(end_of $2)" dev "$(side_of $2)"; sleep 0.2; "$here/veth" >/dev/null ;;
    device) rdma link delete "rx$(side_of $2 | tail -c 2)"; "$here/veth" >/dev/null ;;
    server) { kill -KILL "$server" && wait "$server"; } 2>/dev/null; serve ;;
  esac
}
deaf=0 last=$((SECONDS + seconds)) left=$(wc -w <<<"$kinds")
for kind in $kinds; do
  # Time that one kind does not use is available to the others.
  slowest=0 done=0 soon_back=0 end=$((SECONDS + (last - SECONDS) / left)) bad=''
  left=$((left - 1))
  while [ $done -lt "$flaps" ] && [ $SECONDS -lt $end ]; do
    flap $kind $done
    returned=$(now)
    mapfile -t had < <(sizes)
    # Answers already under way may arrive: two more answers from each client prove new traffic.
    for i in "${!had[@]}"; do had[i]=$((had[i] + 12)); done
    if ! patient all_more && ! can_connect; then
      deaf=$((deaf + 1))
      make_devices_anew
      returned=$(now)
    fi
    patient all_more || { bad="after $done: $(what_is_there)"; break; }
    took=$(($(now) - returned))
    [ $took -le $slowest ] || slowest=$took
    [ $took -gt 2000 ] || soon_back=$((soon_back + 1))
    done=$((done + 1))
  done
  if [ -z "$bad" ]; then ok "$done of $flaps flaps of $kind: everybody was back, $soon_back times within 2 s, the slowest after $slowest ms"
  else fail "flaps of $kind" "$bad"; fi
done
[ $deaf = 0 ] || echo "$deaf times soft-RoCE itself took no connection after its link was down (nor rping's): made anew"
# A busy machine may disturb one measurement, but not all of them.
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
