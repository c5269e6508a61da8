#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The tests of tls with the OpenSSL of Debian 13, whose defaults differ from those of Debian 12: groups
# (X25519MLKEM768), their order, the size of certificates. The binary is the one of this release.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
tests=$build/tests/unit-tests
release() { "$@" version 2>/dev/null | cut -d' ' -f2; }
if [ ! -x "$tests" ] || ! readelf -d "$tests" | grep -q 'libssl\.so\.3'; then
  echo 'SKIPPED: this build has no unit tests, or no TLS'
elif grep -q -e '-fsanitize' "$build/flags"; then
  echo 'SKIPPED: a build with sanitizers needs its own C library'
elif ! folder=$(tools/foreign trixie libssl3t64 openssl 2>"$work/why"); then
  echo "SKIPPED: OpenSSL of trixie: $(tail -n 1 "$work/why")"
else
  newer() { timeout "$1" tools/foreign --run "$folder" "${@:2}"; }
  has 'it is a release of its own' '^3\.[5-9]\.' "$(release newer 20 openssl)"
  if newer 400 "$tests" '[tls]~[conformance]~[rdma-device]~[.]' >"$work/log" 2>&1; then
    ok "the tests of tls with OpenSSL $(release newer 20 openssl): $(tail -n 2 "$work/log" | head -n 1)"
  else
    fail 'the tests of tls' "$(grep -m 3 -A 8 FAILED: "$work/log" || tail -n 5 "$work/log")"
  fi
fi
total
