#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# kv-server with Debian's redis-cli, over TCP and a Unix socket: commands, redis-cli's modes,
# limits, and the server's start and end.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
command -v redis-cli >/dev/null || { echo 'FAIL redis-cli: it is not installed (package redis-tools)'; total; exit; }

filled() { head -c "$1" /dev/zero | tr '\0' x; }  # COUNT: so many bytes
# RESP for "SET key:N value:N", 500 times, with one error among them if requested.
load() {
  local i
  for ((i = 0; i < 500; i++)); do
    printf '*3\r\n$3\r\nSET\r\n$%d\r\nkey:%d\r\n$%d\r\nvalue:%d\r\n' $((4 + ${#i})) $i $((6 + ${#i})) $i
  done
  [ -z "${1-}" ] || printf '*1\r\n$4\r\nNOPE\r\n'
}

# Lines as typed by a person: each after the answer to the one before, and ended by Return.
typed() {
  local line before=-1
  prompted() { grep -q '> *$' "$work/screen" && [ "$(wc -c <"$work/screen")" -gt "$before" ]; }
  quiet() { local size; size=$(wc -c <"$work/screen"); sleep 0.1; prompted && [ "$size" = "$(wc -c <"$work/screen")" ]; }
  for line; do
    soon quiet
    before=$(wc -c <"$work/screen")
    printf '%s\r' "$line"
  done
}

# ---- the same over each transport ---------------------------------------------------------------
sock=$work/kv.sock
for served in 'tcp 3' 'unix 3' 'tcp 1' 'unix 1'; do
  transport=${served% *} loops=${served#* }
  if [ $transport = tcp ]; then
    start --listen tcp://127.0.0.1:0 --listen "unix://$sock" --loops "$loops" || { total; exit; }
    main=$server port=${urls[0]##*:}
  fi
  if [ $transport = tcp ]; then cli=(redis-cli -h 127.0.0.1 -p "$port"); else cli=(redis-cli -s "$sock"); fi
  r() { timeout 20 "${cli[@]}" "$@" 2>&1; }
  t() { [ "$loops" = 1 ] && echo "$transport: $1" || echo "$transport, $loops loops: $1"; }

  is "$(t 'PING')" PONG "$(r PING)"
  is "$(t 'FLUSHALL')" OK "$(r FLUSHALL)"
  is "$(t 'SET and GET')" 'OK hello world' "$(r SET greeting 'hello world') $(r GET greeting)"
  is "$(t 'a missing key')" '(nil)' "$(r --no-raw GET missing)"
  is "$(t 'binary values')" '"\x00\xff\r\n\""' "$(printf '\0\377\r\n"' | r -x SET bytes >/dev/null; r --no-raw GET bytes)"
  is "$(t 'SET NX XX GET')" $'\nOK\nhello world\n' \
    "$(r SET greeting no NX; r SET greeting yes XX; r SET greeting 'hello world' GET >/dev/null
       r GET greeting; r SET new no XX)"$'\n'
  is "$(t 'numbers')" $'1\n11\n10\n-5' "$(r INCR n; r INCRBY n 10; r DECR n; r INCRBY n -15)"
  is "$(t 'APPEND STRLEN')" $'3\n6\n6\nabcdef' \
    "$(r APPEND s abc; r APPEND s def; r STRLEN s; r GET s)"
  is "$(t 'MSET MGET')" $'OK\n1\n\n3' "$(r MSET a 1 c 3; r MGET a b c)"
  is "$(t 'keys')" $'2\n1\n1' "$(r EXISTS a c b; r DEL a; r EXISTS a c)"
  is "$(t '-r repeats')" $'PONG\nPONG\nPONG' "$(r -r 3 PING)"
  is "$(t 'commands from standard input')" $'OK\n8\n8' "$(printf 'SET i 7\nINCR i\nGET i\n' | r)"
  is "$(t 'an unknown command')" "ERR unknown command 'NOPE', with args beginning with: 'a' 'b' " \
    "$(r NOPE a b | head -n 1)"
  is "$(t 'MULTI is unknown')" "ERR unknown command 'MULTI', with args beginning with: " "$(r MULTI | head -n 1)"
  is "$(t 'a wrong number of arguments')" "ERR wrong number of arguments for 'get' command" "$(r GET | head -n 1)"
  is "$(t 'no integer')" 'ERR value is not an integer or out of range' "$(r INCR greeting | head -n 1)"
  is "$(t '-e gives errors a status')" 1 "$(r -e INCR greeting >/dev/null; echo $?)"

  has "$(t 'RESP3: a map')" '1# "maxmemory" => "0"' "$(r -3 --no-raw CONFIG GET maxmemory)"
  has "$(t 'RESP3: null, verbatim')" $'^\\(nil\\)\nresp=3' "$(r -3 --no-raw GET missing; r -3 CLIENT INFO)"
  has "$(t 'RESP3: HELLO')" '"proto" => \(integer\) 3' "$(r -3 --no-raw HELLO 3)"

  r FLUSHALL >/dev/null
  has "$(t '--pipe')" 'errors: 0, replies: 500' "$(load | r --pipe)"
  has "$(t '--pipe counts errors')" $'unknown command \'NOPE\'\nerrors: 1, replies: 501' "$(load e | r --pipe)"
  filled 5000 | r -x SET key:big >/dev/null
  has "$(t '--stat')" 'keys.*mem.*clients.*requests
^.*501 ' "$(timeout 1 stdbuf -oL "${cli[@]}" -i 0.2 --stat 2>&1)"
  has "$(t '--latency')" '^[0-9]' "$(timeout 1 "${cli[@]}" --raw --latency -i 0.3 2>&1)"
  if command -v script >/dev/null; then
    : >"$work/screen"
    typed 'PING' 'GET key:7' 'DBSIZE' 'quit' |
      timeout 20 script -qefc "stty cols 80 rows 24; ${cli[*]}" "$work/screen" >/dev/null 2>&1
    has "$(t 'on a terminal')" $'PONG\n"value:7"\n\\(integer\\) 501' "$(cat "$work/screen")"
  fi

  has "$(t 'CLIENT LIST names the transport')" "transport=$transport" "$(r CLIENT LIST)"
  has "$(t 'INFO has a section for the transport')" "# Transport_$transport
accepted:[1-9]
bytes_read:[1-9]
bytes_written:[1-9]" "$(r INFO "Transport_$transport")"
  has "$(t 'INFO')" '# Server
redis_version:
# Clients
connected_clients:1
# Memory
# Stats
# Keyspace
db0:keys=501,expires=0' "$(r INFO)"
  is "$(t 'COMMAND DOCS is empty')" '(empty array)' "$(r --no-raw COMMAND DOCS)"
  has "$(t 'CONFIG SET, CONFIG GET')" $'OK\nmaxclients\n5000' "$(r CONFIG SET maxclients 5000; r CONFIG GET maxclients)"
  filled 3000000 >"$work/big"
  r -x SET large <"$work/big" >/dev/null
  is "$(t '3 MB come back')" "$(cksum <"$work/big")" "$(r GET large | head -c 3000000 | cksum)"
  is "$(t 'CONFIG GET loops')" $'loops\n'"$loops" "$(r CONFIG GET loops)"
  if [ "$served" = 'unix 3' ]; then stop "$server"; fi
done

# ---- raw bytes ----------------------------------------------------------------------------------
lines() {  # COUNT: so many lines from fd 7, without CR
  local i line
  for ((i = 0; i < $1; i++)); do IFS= read -r -t 10 line <&7 || break; echo "${line%$'\r'}"; done
}
exec 7<>"/dev/tcp/127.0.0.1/$port"
printf 'SET inline "a \\x41 b"\r\nGET inline\nping\r\n\r\n' >&7
is 'inline commands' $'+OK\n$5\na A b\n+PONG' "$(lines 4)"
printf '*3\r\n$3\r\nSET\r\n$5\r\nsp' >&7; sleep 0.05; printf 'lit\r\n$2\r\no' >&7; sleep 0.05; printf 'k\r\n' >&7
is 'a request in pieces' '+OK' "$(lines 1)"
{ for ((i = 0; i < 1000; i++)); do printf 'INCR count\r\n'; done; } >&7
is 'a thousand at once' ':1000' "$(lines 1000 | tail -n 1)"
printf '*1\r\nPING\r\n' >&7
is 'a protocol error ends the connection' "-ERR Protocol error: expected '\$', got 'P'" "$(lines 2)"
exec 7>&-
printf 'POST / HTTP/1.1\r\nHost: x\r\n\r\n' >"$work/post"
exec 7<>"/dev/tcp/127.0.0.1/$port"; cat "$work/post" >&7
is 'a web browser gets nothing' '' "$(lines 1)"
exec 7>&-

# ---- starting and ending ------------------------------------------------------------------------
refuses 'a port in use' "127.0.0.1:$port.*[Aa]ddress already in use" "$kv_server" --listen "tcp://127.0.0.1:$port"
refuses 'a Unix socket in use' "$sock" "$kv_server" --listen "unix://$sock"
refuses 'a bad URL' 'nonsense' "$kv_server" --listen nonsense
refuses 'a bad port' '70000' "$kv_server" --listen tcp://127.0.0.1:70000
refuses 'an unknown transport' 'carrier' "$kv_server" --listen carrier://127.0.0.1:1
refuses 'an unknown option' 'wings' "$kv_server" --listen 'tcp://127.0.0.1:0?wings=2'
for loops in -1 257 many; do
  refuses "--loops $loops" 'a number from 0 to 256' "$kv_server" --listen tcp://127.0.0.1:0 --loops "$loops"
done
refuses 'an unknown event loop' 'there is no event loop kqueue: libev or epoll' \
  "$kv_server" --listen tcp://127.0.0.1:0 --event-loop kqueue
refuses 'a port in use, of 2 loops' "127.0.0.1:$port.*[Aa]ddress already in use" \
  "$kv_server" --listen "tcp://127.0.0.1:$port" --loops 2
[ -n "$(ls /sys/class/infiniband 2>/dev/null)" ] ||
  refuses 'rdma:// without RDMA' '(RDMA|rdma)' "$kv_server" --listen rdma://127.0.0.1:0
is '--version' "kv-server $(sed -n 's/^VERSION *:= *//p' Makefile)" "$("$kv_server" --version | head -n 1)"
has '--help' $'--listen\n--loops\n--requirepass\n--maxclients\n--maxmemory\n--proto-max-bulk-len\n--client-output-limit' \
  "$("$kv_server" --help)"

redis-cli -p "$port" SHUTDOWN NOSAVE >"$work/out" 2>&1
ended "$main"
is 'SHUTDOWN: status' 0 "$status"
is 'SHUTDOWN: the socket is gone' no "$([ -e "$sock" ] && echo yes || echo no)"
for ending in 'TERM 1' 'INT 1' 'TERM 3' 'INT 3'; do
  signal=${ending% *} loops=${ending#* }
  start --listen tcp://127.0.0.1:0 --listen "unix://$sock" --loops "$loops" || continue
  exec 7<>"/dev/tcp/127.0.0.1/${urls[0]##*:}"
  printf 'PING\r\n' >&7; lines 1 >/dev/null
  kill -$signal "$server"; ended "$server"
  exec 7>&-
  is "SIG$signal with a client there, loops $loops: status" 0 "$status"
done
start --listen "unix://$sock" --loops 2 && { redis-cli -s "$sock" SHUTDOWN NOSAVE >"$work/out" 2>&1; ended "$server"
  is 'SHUTDOWN of 2 loops: status' 0 "$status"; }
for loops in 1 2; do
  start --listen "unix://$sock" --event-loop epoll --loops "$loops" || continue
  is "--event-loop epoll, loops $loops" 'aeconn (epoll)' \
    "$(redis-cli -s "$sock" INFO server | tr -d '\r' | sed -n 's/^multiplexing_api://p')"
  is "CONFIG GET event-loop, loops $loops" $'event-loop\nepoll' "$(redis-cli -s "$sock" CONFIG GET event-loop)"
  kill -TERM "$server"; ended "$server"
  is "SIGTERM of --event-loop epoll, loops $loops: status" 0 "$status"
done
start --listen "unix://$sock" && { kill -KILL "$server"; ended "$server" 2>/dev/null; }
start --listen "unix://$sock" && is 'a stale socket is replaced' PONG "$(redis-cli -s "$sock" PING)"
stop "$server"

# ---- a password ---------------------------------------------------------------------------------
if start --listen tcp://127.0.0.1:0 --requirepass 'open sesame'; then
  cli=(redis-cli -p "${urls[0]##*:}")
  is 'no password' 'NOAUTH Authentication required.' "$("${cli[@]}" GET x 2>&1 | head -n 1)"
  has 'a wrong password' 'WRONGPASS invalid username-password pair or user is disabled.' "$("${cli[@]}" AUTH wrong 2>&1)"
  is '-a' PONG "$("${cli[@]}" --no-auth-warning -a 'open sesame' PING 2>&1)"
  is '-a with RESP3' PONG "$("${cli[@]}" -3 --no-auth-warning --user default -a 'open sesame' PING 2>&1)"
  is 'AUTH' $'OK\nPONG' "$(printf 'AUTH "open sesame"\nPING\n' | "${cli[@]}" 2>&1)"
  stop "$server"
fi

# ---- limits -------------------------------------------------------------------------------------
if start --listen tcp://127.0.0.1:0 --maxclients 2; then
  port=${urls[0]##*:}
  exec 5<>"/dev/tcp/127.0.0.1/$port" 6<>"/dev/tcp/127.0.0.1/$port"
  clients() { [[ $(printf 'INFO clients\r\n' >&5; while IFS= read -r -t 5 line <&5; do
                     case $line in connected_clients:*) echo "${line%$'\r'}" ;; connected_clients_*) break ;; esac
                   done) = "connected_clients:$1" ]]; }
  soon clients 2
  exec 7<>"/dev/tcp/127.0.0.1/$port"
  is '--maxclients: one too many' '-ERR max number of clients reached' "$(lines 2)"
  exec 7>&- 6>&-
  soon clients 1
  is '--maxclients: room again' PONG "$(redis-cli -p "$port" PING 2>&1)"
  exec 5>&-
  stop "$server"
fi
if start --listen tcp://127.0.0.1:0 --maxmemory 2mb; then
  cli=(redis-cli -p "${urls[0]##*:}")
  { for ((i = 0; i < 40; i++)); do echo "APPEND part:$i $(filled 100000)"; done; } | "${cli[@]}" >"$work/out" 2>&1
  is '--maxmemory: a write' "OOM command not allowed when used memory > 'maxmemory'." "$(grep -m 1 OOM "$work/out")"
  is '--maxmemory: what fits is taken' 100000 "$(sed -n 15p "$work/out")"
  is '--maxmemory: reading, deleting, and a write again' $'100000\n2\nOK' \
    "$("${cli[@]}" STRLEN part:0; "${cli[@]}" DEL part:0 part:1; "${cli[@]}" SET part:0 x)"
  stop "$server"
fi
if start --listen tcp://127.0.0.1:0 --proto-max-bulk-len 1mb; then
  exec 7<>"/dev/tcp/127.0.0.1/${urls[0]##*:}"
  printf '*2\r\n$3\r\nGET\r\n$1048577\r\n' >&7
  is '--proto-max-bulk-len' '-ERR Protocol error: invalid bulk length' "$(lines 2)"
  exec 7>&-
  stop "$server"
fi
if start --listen tcp://127.0.0.1:0 --client-output-limit 1mb; then
  cli=(redis-cli -p "${urls[0]##*:}")
  filled 1000000 | "${cli[@]}" -x SET big >/dev/null
  exec 7<>"/dev/tcp/127.0.0.1/${urls[0]##*:}"
  { for ((i = 0; i < 100; i++)); do printf 'GET big\r\n'; done; } >&7
  closed() { [ "$("${cli[@]}" INFO stats | tr -d '\r' | sed -n 's/^client_output_buffer_limit_disconnections://p')" = 1 ]; }
  if soon closed; then ok '--client-output-limit: who does not read goes'; else fail '--client-output-limit: who does not read goes' "$("${cli[@]}" CLIENT LIST)"; fi
  is '--client-output-limit: the others stay' PONG "$("${cli[@]}" PING)"
  is '--client-output-limit: a large reply is none' 1000000 "$("${cli[@]}" GET big | head -c 1000000 | wc -c)"
  exec 7>&-
  stop "$server"
fi
total
