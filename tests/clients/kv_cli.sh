#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# kv-cli against kv-server: a single command, commands from standard input, --pipe, --bench, and
# error messages.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"

start --listen tcp://127.0.0.1:0 --listen "unix://$work/kv.sock" || { total; exit; }
for url in "${urls[@]}"; do
  k() { timeout 20 "$kv_cli" -u "$url" "$@" 2>&1; }
  t() { echo "${url%%:*}: $1"; }
  k FLUSHALL >/dev/null
  is "$(t 'a command')" $'PONG\n0' "$(k PING; echo $?)"
  is "$(t 'SET and GET')" $'OK\nhello world' "$(k SET greeting 'hello world'; k GET greeting)"
  is "$(t 'no value, a number')" $'\n1' "$(k GET missing; k INCR n)"
  is "$(t 'arguments with dashes')" $'OK\n-u' "$(k SET dash -u; k GET dash)"
  is "$(t 'commands from standard input')" $'OK\n8\n8' "$(printf 'SET i 7\n\nINCR i\nGET i\nquit\nGET n\n' | k)"
  is "$(t 'an error')" "ERR unknown command 'NOPE', with args beginning with: " "$(k NOPE)"
  is "$(t 'an error with -e')" 1 "$(k -e NOPE >/dev/null; echo $?)"
  is "$(t '-r')" $'OK\nOK' "$(k -r 2 SET there 1)"
  is "$(t 'RESP3')" 3 "$(k -3 HELLO 3 | sed -n '/^proto$/{n;p}')"
  has "$(t 'CLIENT LIST names the transport')" "transport=${url%%:*}" "$(k CLIENT LIST)"
  path="${url%%:*} ([^ ]+ > )?[^ ]*$(echo "${url#*://}" | sed 's/.*://')"
  has "$(t '--verbose says what carries it')" "^kv-cli: $path" "$(k --verbose PING)"
  has "$(t 'CLIENT LIST says it, too')" " path=${path// /_}" "$(k CLIENT LIST)"
  has "$(t 'CLIENT INFO says it, too')" " path=${path// /_}" "$(k CLIENT INFO)"
  k CONFIG SET loglevel verbose >/dev/null
  k PING >/dev/null
  has "$(t 'the log says it, too')" "kv-server: client [0-9]+: ${url%%:*} [^ ]*$(echo "${url#*://}" | sed 's/.*://')" "$(cat "$log")"
  k CONFIG SET loglevel notice >/dev/null
  is "$(t 'a loglevel that is none')" 1 "$(k -e CONFIG SET loglevel chatty >/dev/null; echo $?)"
  is "$(t '3 MB there and back')" ok "$(
    head -c 2250000 /dev/urandom | base64 -w 0 >"$work/big"
    { printf '*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$%d\r\n' "$(wc -c <"$work/big")"; cat "$work/big"; printf '\r\n'; } |
      k --pipe >"$work/out"
    k GET big | head -c -1 | cmp - "$work/big" && echo ok)"
  has "$(t '--pipe')" 'errors: 0, replies: 5000' \
    "$(for ((i = 0; i < 5000; i++)); do printf '*2\r\n$4\r\nINCR\r\n$4\r\npipe\r\n'; done | k --pipe)"
  is "$(t '--pipe did all of it')" 5000 "$(k GET pipe)"
  has "$(t '--pipe with errors')" $'unknown command \'NOPE\'\nerrors: 1, replies: 2' "$(printf 'NOPE\r\nPING\r\n' | k --pipe)"
  is "$(t '--pipe with errors: status')" 1 "$(printf 'NOPE\r\n' | k --pipe >/dev/null; echo $?)"
  has "$(t '--bench')" '^200 round trips, [1-9][0-9]* per second, latency us: mean ' "$(k --bench 200 GET greeting)"
  has "$(t '--bench of errors')" 'p99 [0-9.]+, 20 errors$' "$(k --bench 20 NOPE)"
  is "$(t '--bench of errors: status')" '0 1' "$(k --bench 20 NOPE >/dev/null; echo -n "$? "; k -e --bench 20 NOPE >/dev/null; echo $?)"
  printf '*1\r\n$4\r\nPING\r\n*1\r\nbad' >"$work/bad"
  is "$(t '--pipe with bytes that are no RESP: status')" 1 "$(k --pipe <"$work/bad" >/dev/null; echo $?)"
done
port=${urls[0]##*:}
for rounds in -1 0 99999999999 99999999999999999999; do
  refuses "--bench $rounds" '--bench: .*1' "$kv_cli" -u "${urls[0]}" --bench=$rounds
done
refuses '--redial and --bench' 'exclude' "$kv_cli" -u "${urls[0]}" --redial --bench 5
refuses '--redial and --pipe' 'exclude' "$kv_cli" -u "${urls[0]}" --redial --pipe
refuses '--pipe and --bench' 'exclude' "$kv_cli" -u "${urls[0]}" --pipe --bench 5
refuses '--pipe and a command' 'takes no command' "$kv_cli" -u "${urls[0]}" --pipe PING
"$kv_cli" -u "${urls[0]}" SHUTDOWN >"$work/out" 2>&1
ended "$server"
is 'SHUTDOWN ends the server' 0 "$status"

# ---- spinning ------------------------------------------------------------------------------------
start --listen "unix://$work/spin.sock" --spin 20ms || { total; exit; }
spinning() { timeout 20 "$kv_cli" -u "${urls[0]}" INFO 2>&1 | tr -d '\r'; }
"$kv_cli" -u "${urls[0]}" PING >/dev/null
has 'a loop that spins says so in INFO' '# Loop
loop_busy_ns:[1-9][0-9]*
loop_spun_ns:[1-9][0-9]*
spin_hits:[0-9]+' "$(spinning)"
stop "$server"
start --listen "unix://$work/calm.sock" || { total; exit; }
is 'one that does not says nothing' '' "$(spinning | grep -E '^(loop|spin)_')"
stop "$server"

# maxclients is no promise that the soft limit of descriptors breaks.
log=$work/limit.log
bash -c "ulimit -Sn 40; exec '$kv_server' --listen 'unix://$work/limit.sock'" >"$log" 2>&1 &
server=$!
servers+=("$server")
listening() { grep -q '^listening on ' "$log"; }
soon listening || fail 'a low soft limit of descriptors' "$(cat "$log")"
is 'a low soft limit of descriptors is raised' "$(ulimit -Hn)" \
  "$(sed -n 's/^Max open files *\([0-9]*\) .*/\1/p' "/proc/$server/limits")"
stop "$server"

refuses 'nobody listens' "tcp://127.0.0.1:$port.*refused" "$kv_cli" -u "tcp://127.0.0.1:$port" PING
refuses 'no such socket' "unix:///nowhere/kv.sock" "$kv_cli" -u unix:///nowhere/kv.sock PING
refuses 'a bad URL' 'nonsense' "$kv_cli" -u nonsense PING
refuses 'an unknown transport' 'carrier' "$kv_cli" -u carrier://127.0.0.1:1 PING
refuses 'an unknown option' 'wings' "$kv_cli" -u "tcp://127.0.0.1:$port?wings=2" PING
[ -n "$(ls /sys/class/infiniband 2>/dev/null)" ] ||
  refuses 'rdma:// without RDMA' '(RDMA|rdma)' "$kv_cli" -u rdma://127.0.0.1:1 PING

if start --listen tcp://127.0.0.1:0 --requirepass sesame; then
  is '-a' PONG "$("$kv_cli" -u "${urls[0]}" -a sesame PING 2>&1)"
  refuses 'a wrong password' 'WRONGPASS' "$kv_cli" -u "${urls[0]}" -a wrong PING
  is 'no password' 'NOAUTH Authentication required.' "$("$kv_cli" -u "${urls[0]}" PING 2>&1)"
  {  # hides the shell's messages about killed jobs
    kill -STOP "$server"
    { sleep 0.3; kill -KILL "$server"; } &
    refuses 'the server dies' 'closed the connection' "$kv_cli" -u "${urls[0]}" PING
    wait "$server"
  } 2>/dev/null
fi
total
