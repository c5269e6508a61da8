#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# aeconn-proxy as a program: the distribution's clients and servers at both ends, half-close, slow
# readers, limits, loops, SIGTERM, SIGHUP, systemd notifications and sockets, and error messages.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
# shellcheck source=tests/clients/kit_proxy
. tests/clients/kit_proxy
[ -x "$proxy" ] || { fail aeconn-proxy 'it is not built'; total; exit; }

# ---- options ------------------------------------------------------------------------------------
help=$("$proxy" --help)
of_help=$(grep -oE '^ +(-[a-z], ?)?--[a-z-]+' <<<"$help" | grep -oE -- '--[a-z-]+' |
          grep -vxE -- '--(help|version)' | sort)
of_page=$(grep -oE '^\| `--[a-z-]+' docs/proxy.md | grep -oE -- '--[a-z-]+' | sort)
is 'the page has each option, and no other' "$of_help" "$of_page"
is '--version' "aeconn-proxy $(sed -n 's/^VERSION *:= *//p' Makefile)" "$("$proxy" --version | head -n 1)"
to="unix://$work/nobody"
refuses 'nothing to listen on' 'give --listen URL' "$proxy" --connect "$to"
refuses 'an address that is none' 'nonsense' "$proxy" --listen 'nonsense' --connect "$to"
refuses 'a transport that is none' 'carrier' "$proxy" --listen "unix://$work/a" --connect carrier://x:1
refuses 'an option that is none' 'nonsense' "$proxy" --listen "unix://$work/a" --connect "$to?nonsense=1"
refuses 'a socket in a folder that is none' 'nowhere' "$proxy" --listen unix:///nowhere/a --connect "$to"
refuses '--activated' 'tcp or tls' "$proxy" --listen "unix://$work/a" --connect "$to" --activated udp

# ---- unmodified programs -------------------------------------------------------------------------
tls=yes
"$proxy" --connect 'tls://127.0.0.1:1' 2>&1 | grep -q 'tls is not available' && tls=no
if [ $tls = no ]; then
  echo 'No test over TLS: this build is without it.'
  carried=tcp listen=tcp://127.0.0.1:0 query=''
else
  make_certificate 127.0.0.1 || { total; exit; }
  carried=tls listen="tls://127.0.0.1:0?cert=$work/cert.pem&key=$work/key.pem" query="?ca=$work/cert.pem"
fi
redis_behind "unix, $carried, unix" "$listen" "$query" 20000
psql_behind "unix, $carried, unix" "$listen" "$query" 100000

# ---- bytes in one direction, half-close, a reader that is late ------------------------------------
through() {  # NAME LISTEN QUERY [OPTIONS...]
  between "$2" "$3" "$work/late.sock" "$work/late_near.sock" "${@:4}" || return
  timeout 200 python3 -B tests/clients/proxy_ends.py "$work/late_near.sock" "$work/late.sock" 100 \
    "$near" "$far" >"$work/out" 2>&1
  mapfile -t lines <"$work/out"
  is "$1: a reader that is late stops the writer" 'the writer had to wait' "${lines[0]-}"
  is "$1: half-close passes both proxies, and the answer comes" 'the same' "${lines[1]-}"
  # Allocators keep some memory; a hundred MiB were under way.
  awk '{for (i = 1; i <= NF; i++) if ($i > 16) exit 1} END {exit NF != 2}' <<<"${lines[2]-}" &&
    ok "$1: memory" || fail "$1: memory" "MiB more in each: ${lines[2]-$(cat "$work/out")}"
  end_between "$1"
  rm -f "$work/late.sock"
}
if [[ $build != */@(asan|tsan) ]]; then  # sanitizers keep what is free
  through 'over tcp' tcp://127.0.0.1:0 ''
  [ $tls = no ] || through 'over tls, two loops' "$listen" "$query" --loops 2
fi

# ---- loops, limits, statistics --------------------------------------------------------------------
(cd "$work" && exec redis-server --port 0 --unixsocket "$work/r.sock" --save '' --appendonly no) \
  >"$work/redis.log" 2>&1 &
redis=$!
servers+=("$redis")
soon test -S "$work/r.sock" || fail 'redis-server' "$(cat "$work/redis.log")"
for loops in 0 2; do
  start --listen "unix://$work/p.sock" --listen tcp://127.0.0.1:0 --connect "unix://$work/r.sock" \
    --loops $loops --statistics 1 || continue
  timeout 60 redis-benchmark -s "$work/p.sock" -t set,get -c 50 -n 10000 -q >"$work/out" 2>&1
  is "--loops $loops: a Unix socket" 2 "$(tr '\r' '\n' <"$work/out" | grep -c 'requests per second')"
  timeout 60 redis-benchmark -p "${urls[1]##*:}" -t set,get -c 50 -n 10000 -q >"$work/out" 2>&1
  is "--loops $loops: and a port" 2 "$(tr '\r' '\n' <"$work/out" | grep -c 'requests per second')"
  counted() { grep -qE 'open=0 accepted=[1-9][0-9]+ joined=[1-9][0-9]+ failed=0 left=0 broken=0 idle=0 bytes-up=[1-9][0-9]{5,} bytes-down=[1-9][0-9]{4,}$' "$log"; }
  if soon counted; then ok "--loops $loops: --statistics while it runs"
  else fail "--loops $loops: --statistics" "$(tail -n 3 "$log")"; fi
  stop "$server"
  is "--loops $loops: it ends" 0 "$status"
done

# Sessions of redis-cli that stay open, on descriptors 5 and 6: one line in, one line out.
session() {  # NUMBER SOCKET
  mkfifo "$work/in$1" "$work/out$1"
  redis-cli -s "$2" <"$work/in$1" >"$work/out$1" 2>&1 &
  servers+=($!)
  eval "exec $1>'$work/in$1' $(($1 + 2))<'$work/out$1'"
}
say() {  # NUMBER COMMAND: its answer
  local answer=''
  echo "$2" >&"$1"
  read -t 60 -r answer <&$(($1 + 2))
  echo "$answer"
}
hang_up() { eval "exec $1>&- $(($1 + 2))<&-"; rm -f "$work/in$1" "$work/out$1"; }

if start --listen "unix://$work/p.sock?max-connections=1" --connect "unix://$work/r.sock"; then
  session 5 "$work/p.sock"
  is 'max-connections: the first is served' PONG "$(say 5 PING)"
  out=$(timeout 20 redis-cli -s "$work/p.sock" PING 2>&1)
  is 'max-connections: one more is refused' '' "$(grep PONG <<<"$out")"
  is 'max-connections: the first goes on' PONG "$(say 5 PING)"
  hang_up 5
  again() { [ "$(timeout 20 redis-cli -s "$work/p.sock" PING 2>/dev/null)" = PONG ]; }
  soon again && ok 'max-connections: then another is' || fail 'max-connections: then another is' "$(cat "$log")"
  stop "$server"
fi
if start --listen "unix://$work/p.sock" --connect "unix://$work/r.sock" --idle-timeout 1; then
  session 5 "$work/p.sock"
  is '--idle-timeout: who speaks is served' PONG "$(say 5 PING)"
  idle() { grep -q 'closed: no byte in 1 s' "$log"; }
  soon idle && ok '--idle-timeout: who does not is closed' || fail '--idle-timeout' "$(cat "$log")"
  hang_up 5
  stop "$server"
fi
if start --listen "unix://$work/p.sock" --connect "unix://$work/nobody"; then
  timeout 20 redis-cli -s "$work/p.sock" PING >"$work/out" 2>&1
  unreachable() { grep -q "aeconn-proxy: .*$work/nobody" "$log"; }
  soon unreachable && ok 'nobody listens: a sentence' || fail 'nobody listens: a sentence' "$(cat "$log")"
  stop "$server"
  has 'nobody listens: it is counted' 'accepted=1 joined=0 failed=1' "$(tail -n 1 "$log")"
fi

# ---- PROXY protocol -------------------------------------------------------------------------------
# kv-server shows the address that the client has towards the proxy, also behind two proxies.
refuses '--proxy-protocol: another version' 'v3 not in' \
  "$proxy" --listen "unix://$work/a" --connect tcp://127.0.0.1:1 --proxy-protocol v3
if [ $tls = yes ]; then
  refuses '--proxy-protocol: TLS' 'comes before TLS' \
    "$proxy" --listen "unix://$work/a" --connect tls://127.0.0.1:1 --proxy-protocol v2
fi
kv_of() {  # URL: starts kv-server there
  local kv_server=$build/kv-server
  start --listen "$1"
}
# Prints what kv-server says of the client that asks at URL, and the address that client has itself.
addresses() {  # URL
  timeout 60 python3 -B - "$1" <<'END'
import re
import socket
import sys
host, port = sys.argv[1].removeprefix("tcp://").rsplit(":", 1)
with socket.create_connection((host, int(port)), 30) as client:
    client.sendall(b"*2\r\n$6\r\nCLIENT\r\n$4\r\nLIST\r\n")
    answer = b""
    while b"laddr=" not in answer:
        answer += client.recv(4096) or sys.exit(f"the end after {answer}")
    print(re.search(rb" addr=(\S+)", answer)[1].decode(), "%s:%d" % client.getsockname())
END
}
told() {  # NAME URL-OF-KV-SERVER VERSION URL-OF-THE-PROXY...
  local name=$1 version=$3 each started=() at shown own
  kv_of "$2" || return
  at=${urls[0]} started=("$server")
  for each in "${@:4}"; do
    start --listen "$each" --connect "$at" --proxy-protocol "$version" || return
    at=${urls[0]%%\?*} started+=("$server")
  done
  read -r shown own <<<"$(addresses "$at" 2>&1)"
  is "$name" "$own" "$shown"
  for each in "${started[@]}"; do stop "$each"; done
  is "$name: kv-server ends" 0 "$status"
}
trusted='proxy-protocol=127.0.0.1'
told '--proxy-protocol v1' "tcp://127.0.0.1:0?$trusted" v1 tcp://127.0.0.1:0
told '--proxy-protocol v2' "tcp://127.0.0.1:0?$trusted" v2 tcp://127.0.0.1:0
told '--proxy-protocol v2 to a Unix socket' "unix://$work/kv.sock?proxy-protocol=yes" v2 tcp://127.0.0.1:0
told '--proxy-protocol of two proxies' "tcp://127.0.0.1:0?$trusted" v2 \
  "tcp://127.0.0.1:0?$trusted" tcp://127.0.0.1:0

# ---- SIGTERM --------------------------------------------------------------------------------------
refused() { ! timeout 20 redis-cli -s "$work/p.sock" PING >/dev/null 2>&1; }
if start --listen "unix://$work/p.sock" --connect "unix://$work/r.sock" --grace 100 --loops 2; then
  session 5 "$work/p.sock"
  session 6 "$work/p.sock"
  is 'SIGTERM: before it' 'PONG PONG' "$(say 5 PING) $(say 6 PING)"
  kill -TERM "$server"
  soon refused && ok 'SIGTERM: nobody else is served' || fail 'SIGTERM: nobody else is served' ''
  is 'SIGTERM: who is there is' 'PONG PONG' "$(say 5 PING) $(say 6 PING)"
  hang_up 5
  is 'SIGTERM: the last one still is' PONG "$(say 6 PING)"
  hang_up 6
  ended "$server"
  is 'SIGTERM: it ends with the last one' 0 "$status"
  has 'SIGTERM: and says what there was' 'open=0 accepted=[2-9]' "$(tail -n 1 "$log")"
fi
# timeout(1) and terminals signal a process and its group. SIGINT is not merged with SIGTERM.
if start --listen "unix://$work/p.sock" --connect "unix://$work/r.sock" --grace 100; then
  session 5 "$work/p.sock"
  is 'two signals at once: before them' PONG "$(say 5 PING)"
  kill -TERM "$server" && kill -INT "$server"
  soon refused
  is 'two signals at once are one request to end' PONG "$(say 5 PING)"
  hang_up 5
  ended "$server"
  is 'two signals at once: it ends with the last one' 0 "$status"
fi
for how in '--grace 1' 'a second SIGTERM'; do
  grace=100; [ "$how" != '--grace 1' ] || grace=1
  start --listen "unix://$work/p.sock" --connect "unix://$work/r.sock" --grace $grace || continue
  session 5 "$work/p.sock"
  is "$how: before it" PONG "$(say 5 PING)"
  kill -TERM "$server"
  soon refused
  again() { kill -TERM "$server" 2>/dev/null; ! kill -0 "$server" 2>/dev/null; }
  [ $grace = 1 ] || soon again
  ended "$server"
  is "$how: ends also with an open connection" 0 "$status"
  has "$how: which is counted" 'open=1 ' "$(tail -n 1 "$log")"
  hang_up 5
done

# ---- certificates that change ---------------------------------------------------------------------
pong() { timeout 20 redis-cli -s "$work/p.sock" PING 2>&1; }
if [ $tls = yes ] && start --listen "$listen" --connect "unix://$work/r.sock"; then
  behind=$server behind_log=$log at=${urls[0]%%\?*}
  asks() {  # CA
    start --listen "unix://$work/p.sock" --connect "$at?ca=$1" || return
    out=$(pong)
    stop "$server"
  }
  cp "$work/cert.pem" "$work/old.pem"
  asks "$work/old.pem"
  is 'SIGHUP: before it' PONG "$out"
  make_certificate 127.0.0.1 new
  cp "$work/newcert.pem" "$work/cert.pem" && cp "$work/newkey.pem" "$work/key.pem"
  kill -HUP "$behind"
  read_again() { [ "$(grep -c "$1" "$behind_log")" -ge 1 ]; }
  soon read_again 'certificates reloaded' || fail 'SIGHUP: it says so' "$(cat "$behind_log")"
  asks "$work/newcert.pem"
  is 'SIGHUP: the new certificate serves' PONG "$out"
  asks "$work/old.pem"
  has 'SIGHUP: who trusts the old one is told' 'certificate' "$(cat "$log")"
  echo nonsense >"$work/cert.pem"
  kill -HUP "$behind"
  soon read_again 'not reloaded, the old ones remain' && ok 'SIGHUP: a file that is none' ||
    fail 'SIGHUP: a file that is none' "$(cat "$behind_log")"
  asks "$work/newcert.pem"
  is 'SIGHUP: the certificate before it serves on' PONG "$out"
  stop "$behind"
  is 'SIGHUP: it ends' 0 "$status"
fi

# ---- systemd --------------------------------------------------------------------------------------
activated "$work/s.sock" "$proxy" --connect "unix://$work/r.sock"
is 'a socket of systemd is served' PONG "$(timeout 20 redis-cli -s "$work/s.sock" PING 2>&1)"
stop "$server"
has 'systemd is told that it is ready, about to end, and with what' \
  $'listening on unix://.*/s.sock\nREADY=1\nSTOPPING=1\nSTATUS=open=0 accepted=1 \nstatus 0' "$(cat "$log")"
[ -S "$work/s.sock" ] && ok 'the file of that socket stays' || fail 'the file of that socket stays' 'it is gone'
if [ $tls = yes ]; then
  make_certificate 127.0.0.1
  activated 0 "$proxy" --connect "unix://$work/r.sock" --activated "tls?cert=$work/cert.pem&key=$work/key.pem"
  port=$(sed -n 's/^port //p' "$log") activated=$server activated_log=$log
  if start --listen "unix://$work/p.sock" --connect "tls://127.0.0.1:$port?ca=$work/cert.pem"; then
    is 'a port of systemd speaks TLS' PONG "$(pong)"
    stop "$server"
  fi
  kill -HUP "$activated"
  reloaded() { [ "$(grep -cx READY=1 "$activated_log")" = 2 ]; }
  soon reloaded && has 'systemd is told of a reload' $'RELOADING=1\nMONOTONIC_USEC=[0-9]+' "$(cat "$activated_log")" ||
    fail 'systemd is told of a reload' "$(cat "$activated_log")"
  stop "$activated"
fi
stop "$redis"

# ---- comparison with other proxies ---------------------------------------------------------------
# bench/proxy, with few requests, with this build.
carriers=tcp,tls; [ $tls = yes ] || carriers=tcp
out=$(AECONN_BUILD=$build timeout 100 bench/proxy -r 1 -n 200 -c $carriers -w direct,aeconn-proxy 2>&1)
is 'bench/proxy: a figure for each row' $((${#carriers} > 3 ? 8 : 4)) \
  "$(grep -cE '^(tcp|tls) .* aeconn-proxy +[1-9][0-9]* ' <<<"$out")"
total
