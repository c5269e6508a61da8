#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# CPython's own tests of sockets and of asyncio's streams with the package aeconn below them:
# cpython.py says which are run and which are not. By this release's Python and by Debian 13's.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
AECONN_LIBRARY=$build/libaeconn-c.so
export AECONN_LIBRARY PYTHONDONTWRITEBYTECODE=1 TMPDIR=$work
python=/usr/bin/python3  # the distribution's, which has the package with the tests
version() { "$@" -c 'import platform; print(platform.python_version())'; }
parts=(tcp unix asyncio)
"$kv_server" --listen tls://127.0.0.1:0 2>&1 | grep -q 'tls is not available' || parts+=(tls)

suite() {  # NAME PYTHON...
  local log=$work/cpython.log program=$PWD/tests/clients/cpython.py
  if (cd "$work" && timeout 120 "${@:2}" -W ignore "$program" "${parts[@]}") >"$log" 2>&1; then
    ok "$1: $(paste -sd';' "$log" | sed 's/;/; /g')"
  else
    fail "$1" "$(grep -A 12 '^FAIL' "$log" | head -n 60; tail -n 6 "$log")"
  fi
}
if $python -c 'import test.test_socket, test.test_asyncio' 2>/dev/null; then
  suite "Python $(version $python)" $python
elif [ "${CI-}" = true ]; then
  fail 'the tests of Python itself' 'they are not installed: tools/packages test'
else
  echo 'SKIPPED: the tests of Python itself: libpython3-testsuite is not installed'
fi
if [ "$(version $python)" \< 3.13 ] &&
  folder=$(tools/foreign trixie libpython3.13-testsuite python3.13 2>"$work/why"); then
  newer=("$PWD/tools/foreign" --run "$folder" python3.13)
  suite "Python $(version "${newer[@]}")" "${newer[@]}"
else
  echo "SKIPPED: Python of trixie: $(cat "$work/why" 2>/dev/null)"
fi
total
