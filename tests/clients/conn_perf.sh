#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# conn-perf: each mode over each transport, sweeps, its output, and its errors for a faulty peer and
# for wrong usage.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
conn_perf=$build/conn-perf
kv=$kv_server kv_server=$conn_perf  # what `start` starts

p() { timeout 30 "$conn_perf" client "$@" 2>&1; }
quick=(--warmup 0 --requests 200)
# The value of a CSV column, by name, in the last line.
cell() {  # FILE COLUMN
  awk -F, -v name="$2" 'NR == 1 {for (i = 1; i <= NF; ++i) if ($i == name) at = i} END {print $at}' "$1"
}
wrong_use() {  # NAME REGEX ARGUMENTS...: status 2, one line
  local out code
  out=$(timeout 20 "$conn_perf" "${@:3}" 2>&1 </dev/null)
  code=$?
  if [ $code != 2 ] || [ "$(wc -l <<<"$out")" != 1 ]; then fail "$1" "status $code: ${out:0:400}"
  else has "$1" "$2" "$out"; fi
}

urls_of=(tcp://127.0.0.1:0 "unix://$work/perf.sock")
query=''
if "$conn_perf" server --listen 'tls://127.0.0.1:0' 2>&1 | grep -q 'tls is not available'; then
  echo 'No test over TLS: this build is without it.'
elif openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=perf \
       -addext subjectAltName=IP:127.0.0.1 -keyout "$work/key.pem" -out "$work/cert.pem" 2>"$work/openssl"; then
  urls_of+=("tls://127.0.0.1:0?cert=$work/cert.pem&key=$work/key.pem")
  query="?ca=$work/cert.pem"
else
  fail 'a certificate' "$(cat "$work/openssl")"
fi
listen=()
for url in "${urls_of[@]}"; do listen+=(--listen "$url"); done

start server "${listen[@]}" || { total; exit; }
protocol=$server protocol_log=$log protocol_urls=("${urls[@]%%\?*}")
start server --echo "${listen[@]/perf.sock/echo.sock}" || { total; exit; }
echoing=$server echo_urls=("${urls[@]%%\?*}")

# ---- modes, over each transport -------------------------------------------------------------------
for i in "${!protocol_urls[@]}"; do
  url=${protocol_urls[i]} echo_url=${echo_urls[i]} scheme=${protocol_urls[i]%%:*}
  [ "$scheme" != tls ] || { url+=$query; echo_url+=$query; }
  csv=$work/$scheme.csv
  t() { echo "$scheme: $1"; }
  got() {  # NAME CSV-COLUMN=VALUE...: of what the last measurement wrote
    local pair
    for pair in "${@:2}"; do
      [ "$(cell "$csv" "${pair%%=*}")" = "${pair#*=}" ] && continue
      fail "$1" "no ${pair} in $(tail -n 1 "$csv"); $out"
      return
    done
    ok "$1"
  }
  out=$(p "$url" "${quick[@]}" --connections 3 --depths 4 --reply-size 1k --csv "$csv")
  got "$(t 'request-response')" transport=$scheme mode=request-response verify=yes connections=3 \
    depth=4 size=64 reply_size=1024 requests=200
  has "$(t 'the table says whose figures they are')" $'client: aeconn [0-9.]+, Linux .*MTU\nserver: aeconn [0-9.]+, Linux .*--listen tcp' "$out"
  [[ $(cell "$csv" p50_us) =~ ^[0-9.]+$ && $(cell "$csv" server_cpu_s_per_million) =~ ^[0-9.]+$ ]] &&
    ok "$(t 'latency and the CPU of both sides')" || fail "$(t 'latency and the CPU of both sides')" "$(cat "$csv")"
  out=$(p "$echo_url" --echo "${quick[@]}" --depths 4 --sizes 100k --csv "$csv")
  got "$(t 'request-response with a bare echo')" requests=200 size=102400 server_cpu_s_per_million=
  has "$(t 'whose own figures are unknown')" 'server: any echo server, unknown' "$out"
  out=$(p "$url" "${quick[@]}" --mode stream --sizes 64k --connections 2 --csv "$csv")
  got "$(t 'a stream')" mode=stream requests=200 size=65536 depth= p50_us=
  out=$(p "$url" "${quick[@]}" --mode stream --in-place --sizes 64k --connections 2 --csv "$csv")
  got "$(t 'a stream in place')" mode=stream requests=200 size=65536
  out=$(p "$url" "${quick[@]}" --mode stream --both-ways --csv "$csv")
  got "$(t 'a stream both ways')" mode=stream reply_size=64
  [ "$(cell "$csv" requests)" -ge 400 ] && ok "$(t 'both ways count')" || fail "$(t 'both ways count')" "$out"
  out=$(p "$url" --warmup 0.1 --requests 100 --mode connect --connections 4 --csv "$csv")
  got "$(t 'new connections')" mode=connect requests=100
  out=$(p "$echo_url" --echo --warmup 0 --requests 50 --mode connect --csv "$csv")
  got "$(t 'new connections to a bare echo')" mode=connect requests=50
  out=$(p "$url" --mode idle --connections 100 --csv "$csv")
  got "$(t 'idle connections have a descriptor each')" mode=idle connections=100 server_descriptors=1 client_descriptors=1
  [[ $(cell "$csv" server_rss_bytes),$(cell "$csv" client_rss_bytes) =~ ^[0-9]+,[1-9][0-9]+$ ]] && ok "$(t 'and memory')" || fail "$(t 'and memory')" "$out"
done
url=${protocol_urls[0]} echo_url=${echo_urls[0]}

# ---- several loops --------------------------------------------------------------------------------
start server --loops 2 "${listen[@]/perf.sock/loops.sock}" || { total; exit; }
serving=$server loops_urls=("${urls[@]%%\?*}")
threads() { grep -hs '^perf-' "/proc/$1/task/"*/comm | sort | tr '\n' ' '; }
is 'a server with two loops has a thread for each' 'perf-0 perf-1 ' "$(threads "$serving")"
is 'with one loop it has none' '' "$(threads "$protocol")"
for loops_url in "${loops_urls[@]}"; do
  scheme=${loops_url%%:*}
  [ "$scheme" != tls ] || loops_url+=$query
  t() { echo "$scheme, two loops: $1"; }
  evenly='client, by loop: connections 2 2, requests [0-9]+ [0-9]+
server, by loop: connections 2 2, requests [0-9]+ [0-9]+'
  out=$(p "$loops_url" "${quick[@]}" --loops 2 --connections 4,4 --depths 4 --csv "$work/loops.csv" --json "$work/loops.json")
  has "$(t 'both ends say how the load was spread')" "$evenly" "$(sed -n '/^ *4 /,$p' <<<"$out" | sed -n '2,3p')"
  has "$(t 'after each point of a sweep')" "$evenly" "$(tail -n 2 <<<"$out")"
  is "$(t 'the whole load is the same')" 200 "$(cell "$work/loops.csv" requests)"
  is "$(t 'each request has been on one loop')" '200 200' "$(perl -ne '
    for my $side (qw(client server)) {
      my ($list) = /"loops":\{.*?"$side":\[(.*?)\]/ or next;
      my $sum = 0; $sum += $1 while $list =~ /"requests":(\d+)/g;
      push @sums, $sum;
    } print "@sums"' "$work/loops.json")"
  has "$(t 'the client alone')" 'client, by loop: connections 2 2, .*
server, by loop: connections 4, requests 200' \
    "$(p "${protocol_urls[0]}" "${quick[@]}" --loops 2 --connections 4 | tail -n 2)"
  has "$(t 'the server alone')" 'client, by loop: connections 4, requests 200
server, by loop: connections 2 2, ' "$(p "$loops_url" "${quick[@]}" --connections 4 | tail -n 2)"
  has "$(t 'a stream both ways')" "$evenly" \
    "$(p "$loops_url" "${quick[@]}" --loops 2 --mode stream --both-ways --connections 4 | tail -n 2)"
  out=$(p "$loops_url" --loops 2 --warmup 0 --requests 100 --mode connect --connections 4 --csv "$work/loops.csv")
  has "$(t 'new connections')" 'client, by loop: connections 50 50, requests 50 50' "$out"
  is "$(t 'as many')" 100 "$(cell "$work/loops.csv" requests)"
  has "$(t 'idle connections')" 'client, by loop: connections 5 5
server, by loop: connections 5 5' "$(p "$loops_url" --loops 2 --mode idle --connections 10 | tail -n 2)"
done
is 'one loop at both ends: no word of loops' '' \
  "$(p "${protocol_urls[0]}" "${quick[@]}" --json "$work/one.json" | grep 'by loop'; grep -o '"loops"' "$work/one.json")"
has 'what an echo has done on its loops is unknown' '"loops":\{"client":\[\{"connections":1,"requests":[0-9]+\},.*\],"server":null\}' \
  "$(p "${echo_urls[0]}" --echo "${quick[@]}" --loops 2 --connections 2 --json -)"
for loops in 1 2; do
  start server --event-loop epoll --loops "$loops" --listen tcp://127.0.0.1:0 || { total; exit; }
  out=$(p "${urls[0]%%\?*}" "${quick[@]}" --event-loop epoll --loops "$loops" --connections 4 --depths 4 --csv "$work/epoll.csv")
  is "--event-loop epoll, $loops loops: the whole load" 200 "$(cell "$work/epoll.csv" requests)"
  out=$(p "${urls[0]%%\?*}" --event-loop epoll --loops "$loops" --warmup 0 --requests 100 --mode connect --connections 4 --csv "$work/epoll.csv")
  is "--event-loop epoll, $loops loops: new connections" 100 "$(cell "$work/epoll.csv" requests)"
  stop "$server"
done
start server --loops 0 --listen tcp://127.0.0.1:0 || { total; exit; }
processors=$(nproc)
is '--loops 0: one for each processor' "$([ "$processors" = 1 ] || echo "$processors")" \
  "$(threads "$server" | wc -w | sed 's/^0$//')"
stop "$server"
timeout 60 "$conn_perf" client "${loops_urls[0]}" --loops 2 --mode idle --connections 4 --hold 1000 >"$work/held" 2>&1 &
held=$!
held_shown() { grep -qs 'server, by loop' "$work/held"; }
{ soon held_shown || soon held_shown; } && kill -TERM $held
wait $held
is 'SIGTERM ends a hold on two loops' 0 $?
rm "$work/held"  # otherwise old output may be read before it is overwritten
timeout 60 "$conn_perf" client "${loops_urls[0]}" --loops 2 --mode idle --connections 4 --hold 1000 >"$work/held" 2>&1 &
held=$!
{ soon held_shown || soon held_shown; } && stop "$serving"
is 'SIGTERM ends a server of two loops' 0 "$status"
wait $held
is 'and with it who held connections there' 1 $?
has 'who says which' '^conn-perf: connection [0-3]: the server closed it' "$(tail -n 1 "$work/held")"

# ---- time, sweeps, what is written ------------------------------------------------------------------
is 'progress is for terminals only' '' "$(timeout 30 "$conn_perf" client "$url" --seconds 1 --warmup 0 2>&1 >/dev/null)"
out=$(p "$url" --seconds 0.3 --warmup 0.2 --sizes 16,1k --connections 1,2 --depths 1,8 --csv -)
is 'a sweep has a line for each of its points' '1,1,16 1,8,16 1,1,1024 1,8,1024 2,1,16 2,8,16 2,1,1024 2,8,1024' \
  "$(awk -F, 'NR > 1 {printf "%s%s,%s,%s", s, $4, $5, $6; s = " "}' <<<"$out")"
# Independent of the machine's speed: a warm-up that counted would be most of the time.
out=$(p "$url" --seconds 0.3 --warmup 5 --csv -)
is 'the warm-up is left out of the time' yes \
  "$(awk -F, 'NR == 2 {print (($9 >= 0.29 && $9 < 5) ? "yes" : $9)}' <<<"$out")"
out=$(p "$url" "${quick[@]}" --json -)
has 'JSON' '^\{"tool":"conn-perf","version":"[0-9.]+","client":\{.*"server":\{.*"verify":true.*"requests":200,.*"latency_us":\{"mean":[0-9.]+,"p50":.*"syscalls_per_request":\{.*"histogram":\[\[[0-9.]+,[0-9]+\]' "$out"
is 'JSON alone on standard output' 1 "$(wc -l <<<"$out")"
has 'JSON of an echo: null where nothing is known' '"server":null.*"cpu_s_per_million":\{"client":[0-9.]+,"server":null\}' \
  "$(p "$echo_url" --echo "${quick[@]}" --json -)"
has 'JSON of idle connections' '"mode":"idle","connections":10,"per_connection":\{"server_rss_bytes":[0-9]+,.*"server_descriptors":1,' \
  "$(p "$url" --mode idle --connections 10 --json -)"
# Spins long enough for an answer to arrive on one busy processor.
start server --listen "unix://$work/spin.sock" --spin 50ms || { total; exit; }
out=$(p "${urls[0]}" --warmup 0 --requests 50 --spin 50ms --json -)
for who in client server; do
  has "JSON of a $who that spins" "\"$who\":\{\"busy_ns\":[1-9][0-9]*,[^}]*\"spin_hits\":[1-9]" \
    "$(grep -o '"waiting":.*' <<<"$out")"
done
stop "$server"
is 'JSON without spins' '' "$(p "$url" "${quick[@]}" --json - | grep -o '"waiting"')"
out=$(p "$url" "${quick[@]}" --no-verify --json "$work/unverified.json" --csv "$work/unverified.csv")
has '--no-verify says so in the table' 'NOT verified' "$out"
has '--no-verify says so in JSON' '"verify":false' "$(cat "$work/unverified.json")"
is '--no-verify says so in CSV' no "$(cell "$work/unverified.csv" verify)"
case $out in
  *'system calls are not counted'*) has 'uncounted system calls: a dash, and why' ' - +-$' "$(tail -n 1 <<<"$out")" ;;
  *) has 'system calls are counted' '^[0-9.]+ [0-9.]+$' "$(tail -n 1 <<<"$out" | awk '{print $(NF-1), $NF}')" ;;
esac
timeout 30 "$conn_perf" client "$url" --mode idle --connections 5 --hold 1000 >"$work/held" 2>&1 &
held=$!
shown() { grep -qs '^ *5 ' "$work/held"; }
# Waiting for a steady server alone may take ten seconds.
{ soon shown || soon shown; } && kill -0 $held 2>/dev/null && ok '--hold keeps the connections' || fail '--hold keeps the connections' "$(cat "$work/held")"
kill -TERM $held; wait $held
is 'SIGTERM ends it' 0 $?
rm "$work/held"
timeout 60 "$conn_perf" client "$url" --mode idle --connections 5,6 --hold 60 >"$work/held" 2>&1 &
held=$!
soon shown || soon shown
sleep 0.5  # between the figures and the hold
SECONDS=0
kill -TERM $held; wait $held
is 'SIGTERM ends a sweep that is held' '0, 5, at once' \
  "$?, $(awk '/^ *[56] / {printf "%s", $1}' "$work/held"), $([ $SECONDS -lt 2 ] && echo at once)"

# ---- plot -------------------------------------------------------------------------------------------
for i in 0 1; do
  p "${protocol_urls[i]}" --warmup 0 --requests 2000 --depths 1,4,16 --json "$work/plot$i.json" >/dev/null
done
if command -v gnuplot >/dev/null; then
  out=$("$conn_perf" plot "$work/plot0.json" "$work/plot1.json" --out "$work/pictures" 2>&1)
  is 'plot' '' "$out"
  for name in throughput-depth latency-depth latency-distribution; do
    is "$name.png is a picture" PNG "$(head -c 4 "$work/pictures/$name.png" | tail -c 3)"
    has "$name.svg has a line for each transport" $'>tcp\n>unix' "$(cat "$work/pictures/$name.svg")"
  done
else
  fail 'plot' 'gnuplot is not installed (package gnuplot-nox)'
fi
refuses 'plot without gnuplot' 'gnuplot is not installed: install the package gnuplot-nox$' env PATH= "$conn_perf" plot "$work/plot0.json" --out "$work"
refuses 'plot of a file that is not there' 'cannot read /nowhere' "$conn_perf" plot /nowhere
refuses 'plot of something else' 'is not what conn-perf --json writes, .*: name files' "$conn_perf" plot "$protocol_log"
: >"$work/empty.json"
head -c 200 "$work/plot0.json" >"$work/part.json"
echo '{"tool": "other", "results": []}' >"$work/other.json"
echo '{"tool": "conn-perf", "results": []}' >"$work/none.json"
for each in empty part; do
  refuses "plot: $each" "$each.json is not what conn-perf --json writes, or not all of it: name files" "$conn_perf" plot "$work/$each.json"
done
refuses 'plot: results of another tool' 'is of another tool: name files that conn-perf client --json wrote$' "$conn_perf" plot "$work/other.json"
refuses 'plot: a folder' 'is a folder: name files that conn-perf client --json wrote$' "$conn_perf" plot "$work"
refuses 'plot: no results' 'measure with conn-perf client --mode request-response --json FILE$' "$conn_perf" plot "$work/none.json"
refuses 'plot into a file' 'cannot make the folder .*; name another one with --out$' \
  "$conn_perf" plot "$work/plot0.json" --out "$work/none.json"
refuses 'plot into a folder that takes no files' 'cannot write into the folder /proc: .*; name another one with --out$' \
  "$conn_perf" plot "$work/plot0.json" --out /proc
refuses 'plot into nothing' '^conn-perf: --out is empty: name a folder' "$conn_perf" plot "$work/plot0.json" --out ''
refuses 'plot without temporary files' 'set TMPDIR to a folder' env TMPDIR=/nowhere "$conn_perf" plot "$work/plot0.json" --out "$work"
mkdir -p "$work/fake"
fake() {  # COMMAND: what gnuplot does
  printf '#!/bin/sh\n%s\n' "$1" >"$work/fake/gnuplot" && chmod +x "$work/fake/gnuplot"
}
fake 'exit 3'
refuses 'gnuplot fails' 'gnuplot failed, with exit status 3$' env PATH="$work/fake" "$conn_perf" plot "$work/plot0.json" --out "$work"
fake 'kill -9 $$'
refuses 'gnuplot is killed' 'gnuplot was ended by signal 9$' env PATH="$work/fake" "$conn_perf" plot "$work/plot0.json" --out "$work"
chmod -x "$work/fake/gnuplot"
refuses 'gnuplot is no program' 'gnuplot cannot be started: ' env PATH="$work/fake" "$conn_perf" plot "$work/plot0.json" --out "$work"
p "$url" "${quick[@]}" --mode stream --json "$work/stream.json" >/dev/null
refuses 'plot without requests' 'nothing to plot: .*--mode request-response' "$conn_perf" plot "$work/stream.json"

# ---- peers that are wrong -----------------------------------------------------------------------------
# An echo that changes one bit of byte 40 of each message from the 100th on.
perl -MIO::Socket::INET -e '
  my $at = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1") or die;
  $| = 1;
  print $at->sockport, "\n";
  while (my $peer = $at->accept) {
    for (my $n = 0; sysread($peer, my $bytes, 64); ++$n) {
      substr($bytes, 40, 1) ^= "\1" if $n >= 100 && length $bytes > 40;
      syswrite($peer, $bytes);
    }
  }' >"$work/corrupting" 2>&1 &
servers+=($!)
disown
listening() { [ -s "$work/corrupting" ]; }
soon listening
wrong=tcp://127.0.0.1:$(cat "$work/corrupting")
fails() {  # NAME REGEX ARGUMENTS...: status 1, and the reason in the last line
  local out code
  out=$(p "${@:3}"); code=$?
  [ $code = 1 ] || { fail "$1" "status $code: ${out:0:400}"; return; }
  has "$1" "$2" "$(tail -n 1 <<<"$out")"
}
fails 'a changed byte is found' 'conn-perf: connection 0: request [0-9]+ of 64 bytes: the checksum is' \
  "$wrong" --echo --warmup 0 --requests 1000
has 'unless nobody looks' 'NOT verified' "$(p "$wrong" --echo --no-verify --warmup 0 --requests 1000)"
fails 'an echo is no server' 'does not answer as a conn-perf server: unexpected hello' "$echo_url"
"$kv" --listen tcp://127.0.0.1:0 >"$work/kv" 2>&1 &
servers+=($!)
disown
kv_listens() { grep -q '^listening on' "$work/kv"; }
soon kv_listens
fails 'something else is no echo' '^conn-perf: nothing arrived for 1 s; 1 of 1 connections are open, 0 requests' \
  "$(sed -n 's/^listening on //p' "$work/kv")" --echo --patience 1
fails 'a patience below a second' '^conn-perf: nothing arrived for 0.1 s; 1 of 1 connections are open, 0 requests' \
  "$(sed -n 's/^listening on //p' "$work/kv")" --echo --patience 0.1
has 'no warm-up, as a fraction' ' 200 ' "$(p "$url" --requests 200 --warmup 0.0 | tail -n 1)"
# An echo that closes idle connections, while they are counted or later.
perl -MIO::Socket::INET -e '
  my $at = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1") or die;
  $| = 1;
  print $at->sockport, "\n";
  for (my $wait = 0.5; my $peer = $at->accept; $wait = 3) { select undef, undef, undef, $wait }
  ' >"$work/closing" 2>&1 &
servers+=($!)
disown
closing() { [ -s "$work/closing" ]; }
soon closing
for moment in 'while they are counted' 'later'; do
  fails "a server closes idle connections $moment" '^conn-perf: connection 0: the server closed it' \
    "tcp://127.0.0.1:$(cat "$work/closing")" --echo --mode idle --hold 20
done
exec 7<>"/dev/tcp/127.0.0.1/${url##*:}"
printf 'GET / HTTP/1.1\r\n\r\n' >&7
refused() { grep -q 'tcp connection [0-9]* of 127.0.0.1:[0-9]*: a message of' "$protocol_log"; }
soon refused && ok 'a stranger is refused, with one line' || fail 'a stranger is refused, with one line' "$(cat "$protocol_log")"
exec 7>&-
has 'and the others go on' ' 200 ' "$(p "$url" "${quick[@]}" | tail -n 1)"
{  # hides the shell's messages about killed jobs
  { sleep 0.7; kill -KILL "$echoing"; } &
  fails 'the server dies' '^conn-perf: connection 0: ' "$echo_url" --echo --seconds 20
  wait "$echoing"
} 2>/dev/null

# ---- a user's mistakes ----------------------------------------------------------------------------------
port=${echo_url##*:}
refuses 'nobody listens' "127.0.0.1:$port.*refused" "$conn_perf" client "tcp://127.0.0.1:$port"
refuses 'a file that cannot be written' 'cannot write /nowhere/x' "$conn_perf" client "$url" --json /nowhere/x
refuses 'an address in use' 'in use' "$conn_perf" server --listen "$url"
refuses 'more connections than descriptors' '20000 connections do not fit: this process may have 1000 descriptors' \
  bash -c "ulimit -n 1000 && '$conn_perf' client '$url' --connections 20000"
wrong_use 'no subcommand' 'ubcommand'
wrong_use 'no URL' 'url is required' client
wrong_use 'plot of no file' 'plot needs files that conn-perf client --json wrote$' plot
wrong_use 'a bad URL' 'nonsense' client nonsense
wrong_use 'an unknown transport' 'carrier' client carrier://127.0.0.1:1
wrong_use 'an unknown option of a URL' 'wings' client "$url?wings=2"
wrong_use 'an unknown option' 'wings' client "$url" --wings
wrong_use 'a size below the header' '--sizes=15.*16' client "$url" --sizes 64,15
wrong_use 'a size above the most' '--sizes=65m' client "$url" --sizes 65m
wrong_use 'no connections' '--connections=0' client "$url" --connections 0
for number in many -1 257; do
  for side in "client $url" "server --listen $url"; do
    # shellcheck disable=SC2086
    wrong_use "$number loops" "conn-perf: --loops $number: a number from 0 to 256 is wanted, 0 for one on each processor" $side --loops=$number
  done
done
for side in "client $url" "server --listen $url"; do
  # shellcheck disable=SC2086
  wrong_use 'an unknown event loop' '--event-loop: there is no event loop kqueue: libev or epoll is wanted' $side --event-loop kqueue
done
wrong_use 'an unknown mode' 'there is request-response, stream, connect, idle' client "$url" --mode fast
wrong_use 'requests and seconds' 'xclude' client "$url" --requests 5 --seconds 5
wrong_use 'a time that is none' '--seconds=soon' client "$url" --seconds soon
wrong_use 'depths of a stream' '--depths requires' client "$url" --mode stream --depths 2
wrong_use 'both ways of requests' '--both-ways requires' client "$url" --both-ways
wrong_use 'requests in place' '--in-place requires' client "$url" --in-place
wrong_use 'a stream through an echo' 'cannot be combined' client "$url" --echo --mode stream
wrong_use 'a reply size of an echo' 'cannot be combined' client "$url" --echo --reply-size 5k
wrong_use 'hold without idle' '--hold requires' client "$url" --hold 5
wrong_use 'two things on standard output' 'only one of' client "$url" --json - --csv -
wrong_use 'one file for two reports' 'two files' client "$url" --json "$work/both" --csv "$work/./both"
[ -e "$work/both" ] && fail 'one file for two reports: nothing is written' "$(cat "$work/both")"
wrong_use 'one file under two names' 'two files' client "$url" --json no.such.file --csv ./no.such.file
for number in 0 -1 many 18446744073709551616 99999999999999999999; do
  wrong_use "$number requests" "--requests=$number: must be a number from 1" client "$url" --requests=$number
done
wrong_use 'a bad URL of a server' 'nonsense: not a URL' server --listen nonsense
wrong_use 'an unknown transport of a server' 'carrier' server --listen carrier://127.0.0.1:1
wrong_use 'an unknown option of a server' 'wings' server --loops 2 --listen 'tcp://127.0.0.1:0?wings=2'
wrong_use 'a server without a URL' '--listen is required' server

stop "$protocol"
is 'SIGTERM ends the server' 0 "$status"
total
