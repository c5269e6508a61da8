#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The code shown in README and docs/server.md works: the programs compile against the built library,
# the echo servers are docs/echo_server.cc and docs/echo_server_co.cc, and echo.
#
#   tests/clients/readme.sh          AECONN_BUILD (default build): the folder with libaeconn.a
#                                    AECONN_RDMA_ADDRESS: echo over rdma on this address too
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${AECONN_BUILD:-build} passed=0 failed=0 server=
work=$(mktemp -d) || exit 1
finish() { [ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"; }
trap finish EXIT

check() {  # NAME COMMAND...
  if "${@:2}" >"$work/log" 2>&1; then passed=$((passed + 1)); else
    failed=$((failed + 1)); echo "FAIL $1"; tail -n 20 "$work/log" | sed 's/^/  | /'; fi
}

# The compiler and flags that the library was built with.
made_with=$(sed "s/^ccache //" "$build/flags" 2>/dev/null)
cxx=${CXX:-${made_with%% *}} cxx=${cxx:-g++}
sanitize=$(grep -o -e '-fsanitize=[a-z,]*' <<<"$made_with" | sort -u | tr '\n' ' ')
rdma= tls=
case $made_with in *-DAECONN_RDMA_LINK=1*) rdma='-lrdmacm -libverbs' ;; esac
case $made_with in *-DAECONN_TLS=1*) tls='-lssl -lcrypto' ;; esac
compile() {  # SOURCE PROGRAM
  # shellcheck disable=SC2086
  $cxx -std=c++20 -O1 -Wall -Wextra -Werror $sanitize -I. "$1" -o "$2" "$build/libaeconn.a" \
    $tls $rdma -lev -lfmt -pthread
}

# ---- the programs -------------------------------------------------------------------------------
awk -v folder="$work" '/^```cpp$/ {inside = 1; n++; next} /^```$/ {inside = 0}
                       inside {print >(folder "/block" n ".cc")}' docs/server.md
mv "$work/block1.cc" "$work/echo.cc"
check 'docs/server.md has an echo server, and it is docs/echo_server.cc' \
  diff docs/echo_server.cc "$work/echo.cc"
check 'the echo server compiles' compile "$work/echo.cc" "$work/echo"
# The part of it that is shown must be in docs/echo_server_co.cc.
awk '/^```c\+\+$/ {inside = 1; next} /^```$/ {inside = 0} inside' README.md >"$work/session"
check 'the README shows a session of coroutines, and it is in docs/echo_server_co.cc' \
  awk -v part="$work/session" 'BEGIN {while ((getline line <part) > 0) want = want line "\n"; length(want) > 99 || failed = 1}
                              {all = all $0 "\n"} END {exit failed || !index(all, want)}' docs/echo_server_co.cc
check 'the echo server by coroutines compiles' compile docs/echo_server_co.cc "$work/echo_co"
# README stays short: what it is, its state, how to try it, a server, replacing a transport, where to go on.
check 'the README has 110 lines at most' test "$(wc -l <README.md)" -le 110
check 'every page of docs/ is in docs/pages.md' bash -c 'for page in docs/*.md; do
  name=${page#docs/}; [ "$name" = pages.md ] || grep -qF "]($name)" docs/pages.md || { echo "$name"; exit 1; }; done'
# The same on several loops: applies the diff shown on that page.
awk '/^```diff$/ {inside = ++n == 1; next} /^```$/ {inside = 0} inside' docs/server.md >"$work/lines"
awk -v lines="$work/lines" '
  BEGIN {while ((getline line <lines) > 0) if (line ~ /^-/) old = substr(line, 2); else new[old] = substr(line, 2)}
  $0 in new {$0 = new[$0]; changed++}
  {print}
  END {exit changed != 2}' <(printf '#include "ae/loop_group.h"\n#include "conn/listener_group.h"\n'
    cat "$work/echo.cc") >"$work/echo_loops.cc"
check 'two lines of it change for several loops' test $? = 0
check 'it compiles then' compile "$work/echo_loops.cc" "$work/echo_loops"
for block in "$work"/block*.cc; do
  check "the page's program $(basename "$block" .cc) compiles" compile "$block" "$work/other"
done

# Writes faster than it reads, so that the server gets partial writes.
cat >"$work/client.cc" <<'END'
#include <cerrno>
#include <cstdio>
#include <string>
#include "ae/libev_loop.h"
#include "conn/transports/transports.h"

int main(int, char** argv) try {
  constexpr std::size_t kTotal = 4 << 20;
  std::string sent, got;
  while (sent.size() < kTotal) sent += std::to_string(sent.size()) + " bottles of beer\n";
  sent.resize(kTotal);
  const conn::Registry registry = conn::all_transports();
  ae::LibevLoop loop;
  std::size_t written = 0;
  const auto connected = [&](conn::Connection& c) {
    if (c.state() != conn::State::kConnected) return loop.stop();
    c.set_write_handler([&](conn::Connection& peer) {
      const ssize_t n = peer.write(sent.data() + written, sent.size() - written);
      if (n > 0) written += static_cast<std::size_t>(n);
      if (written == sent.size()) peer.set_write_handler(nullptr);
    });
    c.set_read_handler([&](conn::Connection& peer) {
      char buffer[4096];
      const ssize_t n = peer.read(buffer, sizeof buffer);
      if (n > 0) got.append(buffer, static_cast<std::size_t>(n));
      if (n == 0 || (n < 0 && errno != EAGAIN) || got.size() >= sent.size()) loop.stop();
    });
  };
  const conn::ConnectionPtr connection = registry.connect(loop, argv[1], connected);
  loop.run();
  if (got == sent) return 0;
  std::fprintf(stderr, "%zu of %zu bytes came back; %s\n", got.size(), sent.size(),
               connection->last_error().c_str());
  return 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
END
check 'a client for it compiles' compile "$work/client.cc" "$work/client"

urls=(tcp://127.0.0.1:0 "unix://$work/echo.sock")
[ -n "$rdma" ] && [ -n "${AECONN_RDMA_ADDRESS-}" ] && urls+=("rdma://$AECONN_RDMA_ADDRESS:0")
for program in echo echo_co echo_loops; do
  [ -x "$work/$program" ] && [ -x "$work/client" ] || continue
  : >"$work/listening"  # discards the previous program's output
  "$work/$program" "${urls[@]}" >"$work/listening" 2>"$work/complaints" &
  server=$!
  for ((i = 0; i < 200; i++)); do
    [ "$(wc -l <"$work/listening")" = ${#urls[@]} ] && break
    kill -0 $server 2>/dev/null || break
    sleep 0.1
  done
  check "$program listens on every URL" test "$(wc -l <"$work/listening")" = ${#urls[@]}
  while read -r url; do
    check "$program: 4 MiB come back over ${url%%:*}" timeout 60 "$work/client" "$url"
  done <"$work/listening"
  check "$program is still there" kill -0 $server
  kill $server; wait $server 2>/dev/null
  sed 's/^/  | /' "$work/complaints"
done
check 'a bad URL is one sentence and status 1' \
  bash -c '"$1" nonsense 2>"$2"; [ $? = 1 ] && [ "$(wc -l <"$2")" = 1 ]' - "$work/echo" "$work/bad"

# ---- the pages: pages.sh checks the names in them ------------------------------------------------
# Tables may be wider.
columns() { awk 'length > 100 && !/^ *\|/ {print FILENAME ": " FNR; bad = 1} END {exit bad}' "$@"; }
mapfile -t pages < <(find docs -maxdepth 1 -type f)
check 'no line is longer than 100 columns' columns README.md SECURITY.md CHANGELOG.md "${pages[@]}"

echo "$passed passed, $failed failed"
[ $failed = 0 ]
