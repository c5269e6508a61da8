#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The programs of bench/: the echo servers return what they receive, and request-load drives servers
# of several kinds over several transports and detects wrong replies.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
config=release
case $build in */build/*) config=${build##*/} ;; esac
make bench-programs CONFIG="$config" >"$work/make.log" 2>&1 ||
  { echo "FAIL make bench-programs: $(tail -n 5 "$work/make.log")"; echo '0 passed, 1 failed'; exit 1; }
bench=$build/bench
load() { timeout 20 "$bench/request-load" "$@" 2>&1; }

answers() { load "$@" --requests 1 >/dev/null; }
# All requests must be answered; NUMBER is in the line of JSON.
counts() { has "$1" "^\\{\"connections\": .*\"requests\": $2, \"elapsed_s\": .*\\}\$" "$(load "${@:3}")"; }

head -c 5000000 /dev/urandom >"$work/random"
# --- echoes --------------------------------------------------------------------------------------
if begin "$bench/epoll-echo" tcp://127.0.0.1:0; then
  exec 3<>"/dev/tcp/127.0.0.1/${at##*:}"
  cat "$work/random" >&3 &
  is 'epoll-echo: 5 MB there and back' ok "$(timeout 20 head -c 5000000 <&3 | cmp - "$work/random" && echo ok)"
  exec 3>&-
  counts 'epoll-echo: many small ones' 20000 "$at" --protocol echo --value-size 64 -c 16 -d 16 -n 20000
  counts 'epoll-echo: 64 KiB' 500 "$at" --protocol echo --value-size 65536 -c 4 -d 4 -n 500
  counts 'epoll-echo: 3 MB' 6 "$at" --protocol echo --value-size 3000000 -c 2 -d 2 -n 6
  stop "$server"
  is 'epoll-echo: SIGTERM' 0 "$status"
fi
if begin "$bench/epoll-echo" "unix://$work/echo.sock"; then
  counts 'epoll-echo on a Unix socket' 5000 "$at" --protocol echo --value-size 64 -c 16 -n 5000
  stop "$server"
  is 'epoll-echo removes its socket' gone "$([ -e "$work/echo.sock" ] || echo gone)"
fi
for how in '' --handlers; do
  # shellcheck disable=SC2086
  if begin "$bench/co-echo" $how tcp://127.0.0.1:0; then
    counts "co-echo $how: many small ones" 20000 "$at" --protocol echo --value-size 64 -c 16 -d 16 -n 20000
    counts "co-echo $how: 3 MB" 6 "$at" --protocol echo --value-size 3000000 -c 2 -d 2 -n 6
    stop "$server"
  fi
done
refuses 'co-echo: no such transport' 'nothing' "$bench/co-echo" nothing://1
refuses 'epoll-echo: no such address' 'tcp://127.0.0.1' "$bench/epoll-echo" tcp://127.0.0.1

if [ -x "$bench/tls-echo" ]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
    -addext 'subjectAltName=IP:127.0.0.1' -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
  for options in '' '--read-ahead --no-tickets'; do
    name="tls-echo $options"
    # shellcheck disable=SC2086
    begin "$bench/tls-echo" tcp://127.0.0.1:0 --cert "$work/cert.pem" --key "$work/key.pem" $options || continue
    url="tls://${at#tcp://}?ca=$work/cert.pem"
    mkfifo "$work/open"
    # Keeps s_client's input open: it ends on a write error.
    is "$name: 5 MB there and back" ok "$({ cat "$work/random"; read -r _ <"$work/open"
        while echo 2>/dev/null; do sleep 0.05; done; } |
      timeout 20 openssl s_client -quiet -connect "${at#tcp://}" 2>/dev/null |
      { head -c 5000000 | cmp - "$work/random" && echo ok; echo >"$work/open"; })"
    rm "$work/open"
    counts "$name: many small ones" 10000 "$url" --protocol echo --value-size 64 -c 8 -d 16 -n 10000
    counts "$name: 3 MB" 6 "$url" --protocol echo --value-size 3000000 -c 2 -d 2 -n 6
    counts "$name: new connections" 50 "$url" --protocol echo --new-connections -c 4 -n 50
    stop "$server"
    is "$name: SIGTERM" 0 "$status"
  done
  refuses 'tls-echo: no certificate' '/nowhere' "$bench/tls-echo" tcp://127.0.0.1:0 --cert /nowhere --key /nowhere
fi

# --- servers of requests -------------------------------------------------------------------------
set_and_get=(--prepare 'SET key value' --command 'GET key' --value-size)
if start --listen tcp://127.0.0.1:0 --listen "unix://$work/kv.sock"; then
  for url in "${urls[@]}"; do
    name="kv-server, ${url%%:*}"
    counts "$name" 10000 "$url" -c 16 -d 4 -n 10000 "${set_and_get[@]}" 64
    counts "$name: a value of 1 MB" 40 "$url" -c 2 -d 4 -n 40 "${set_and_get[@]}" 1000000
    counts "$name: commands that take turns" 9000 "$url" -c 3 -d 5 -n 9000 "${set_and_get[@]}" 64 \
      --command 'SET key value' --command PING
    counts "$name: new connections" 500 "$url" -c 4 -n 500 --new-connections
    has "$name: by time, after a warm-up" '"requests": [1-9][0-9]*, "elapsed_s": 0\.[1-4]' \
      "$(load "$url" --seconds 0.2 --warmup 0.1)"
  done
  has 'the bytes of request and reply' '"request_bytes": 22, "reply_bytes": 71,' "$(load "${urls[0]}" "${set_and_get[@]}" 64 -n 10)"
  "$kv_cli" -u "${urls[0]}" DEL n >/dev/null
  refuses 'a wrong reply' 'a reply differs from the first one: "2\.\." instead of "1\.\."' \
    "$bench/request-load" "${urls[0]}" --command 'INCR n'
  refuses 'a reply of another length' 'a reply differs' \
    "$bench/request-load" "${urls[0]}" --command 'APPEND text value' --value-size 3 -n 50
  refuses 'an error as a reply' 'unknown command' "$bench/request-load" "${urls[0]}" --command NOPE
  refuses 'an unknown protocol' 'resp, memcached, echo, frames' "$bench/request-load" "${urls[0]}" --protocol nonsense
  stop "$server"
  refuses 'nobody listens' 'refused' "$bench/request-load" "${urls[0]}"
fi

# Another project's server, which does not report when it listens.
foreign() {  # NAME URL COMMAND...
  "${@:3}" >"$work/foreign.log" 2>&1 &
  server=$!
  servers+=("$server")
  soon answers "$2" "${extra[@]}" || { fail "$1 starts" "$(cat "$work/foreign.log")"; return 1; }
}
free_port() { begin "$bench/epoll-echo" tcp://127.0.0.1:0 && stop "$server" && port=${at##*:}; }

extra=()
free_port
if foreign redis-server "tcp://127.0.0.1:$port" \
  redis-server --port "$port" --bind 127.0.0.1 --unixsocket "$work/redis.sock" --save '' --dir "$work"; then
  for url in "tcp://127.0.0.1:$port" "unix://$work/redis.sock"; do
    counts "redis-server, ${url%%:*}" 5000 "$url" -c 8 -d 4 -n 5000 "${set_and_get[@]}" 64
    counts "redis-server, ${url%%:*}: new connections" 200 "$url" -c 4 -n 200 --new-connections
  done
  stop "$server"
fi

if command -v memcached >/dev/null; then
  extra=(--protocol memcached --command version)
  free_port
  if foreign memcached "tcp://127.0.0.1:$port" \
    memcached -u "$(id -un)" -l 127.0.0.1 -p "$port" -t 1; then
    counts memcached 5000 "tcp://127.0.0.1:$port" -c 8 -d 4 -n 5000 --protocol memcached "${set_and_get[@]}" 64
    counts 'memcached: a value of 500 kB' 40 "tcp://127.0.0.1:$port" -c 2 -d 4 -n 40 --value-size 500000 \
      --protocol memcached --prepare 'set key value' --command 'get key' --command 'set key value'
    refuses 'memcached: an error' 'ERROR' "$bench/request-load" "tcp://127.0.0.1:$port" --protocol memcached --command NOPE
    stop "$server"
  fi
else
  echo 'skipped memcached: it is not installed (package memcached)'
fi
total
