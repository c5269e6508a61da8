#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The Python package against kv-server: blocking sockets, asyncio and redis-py, of this release and
# newer ones, over the transports that need no device; redis-py's pub/sub and health checks against
# this machine's redis-server.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
AECONN_LIBRARY=$build/libaeconn-c.so
export AECONN_LIBRARY PYTHONDONTWRITEBYTECODE=1
python=/usr/bin/python3  # the distribution's interpreter, which finds its packages
[ -x $python ] || { fail 'python3' 'it is not installed'; total; exit; }
certificates=''
if ! "$kv_server" --listen tls://127.0.0.1:0 2>&1 | grep -q 'tls is not available'; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$work/key.pem" \
    -out "$work/cert.pem" -days 3 -subj /CN=localhost -addext 'subjectAltName=IP:127.0.0.1,DNS:localhost' 2>/dev/null
  certificates="cert=$work/cert.pem&key=$work/key.pem"
fi
listen=(--listen tcp://127.0.0.1:0 --listen "unix://$work/kv" --listen "shm://$work/kv-shm")
[ -z "$certificates" ] || listen+=(--listen "tls://127.0.0.1:0?$certificates")
start "${listen[@]}" || { total; exit; }
all=''
for url in "${urls[@]}"; do
  case $url in tls:*) url=${url%%\?*}?ca=$work/cert.pem ;; esac
  all+="$url "
done

redis_urls=''
if command -v redis-server >/dev/null; then
  port=$($python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  redis_urls="tcp://127.0.0.1:$port unix://$work/redis.sock"
  redis-server --port "$port" --bind 127.0.0.1 --unixsocket "$work/redis.sock" --save '' --dir "$work" \
    >"$work/redis.log" 2>&1 &
  servers+=($!)
  up() { grep -qs 'Ready to accept' "$work/redis.log" || ! kill -0 "${servers[-1]}" 2>/dev/null; }
  soon up
else
  echo 'SKIPPED: pub/sub and health checks of redis-py: there is no redis-server'
fi

suite() {  # NAME [PYTHONPATH]
  local log=$work/python.log
  if KV_URLS=$all REDIS_URLS=$redis_urls PYTHONPATH=${2-} timeout 240 $python -m unittest -v bindings/python/test_*.py >"$log" 2>&1 &&
    grep -q '^Ran [1-9]' "$log"; then
    ok "$1: $(sed -n 's/^Ran \([0-9]*\) tests.*/\1 tests/p' "$log"), $(grep -c 'skipped' "$log") skipped"
  else
    fail "$1" "$(tail -n 40 "$log")"
  fi
}
version() { PYTHONPATH=${1-} $python -c 'import redis; print(redis.__version__)' 2>/dev/null; }
if [ -n "$(version)" ]; then suite "redis-py $(version) of this release"; else
  fail 'redis-py' 'python3-redis is not installed'
fi
for release in trixie sid; do
  if folder=$(tools/foreign $release python3-redis 2>"$work/why"); then
    path=$folder/usr/lib/python3/dist-packages
    suite "redis-py $(version "$path") of $release" "$path"
  else
    echo "SKIPPED: redis-py of $release: $(cat "$work/why")"
  fi
done
stop "$server"
is 'the server ended well' 0 "$status"
total
