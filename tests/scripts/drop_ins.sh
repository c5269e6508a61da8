#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# make drop-ins: modules that cannot be built are named at the end, and the rest is built all the
# same.
set -u
# shellcheck source=tests/scripts/kit
. "$(dirname "$0")/kit"
make() { env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL "${MAKE:-make}" drop-ins "$@" >"$work/out" 2>&1; }

make MODULE_SRC=bindings/drop_ins/redis/none.cc
is 'modules that cannot be built are a failure' 2 $?
is 'both are named, after what else could be had' \
  "$(printf 'not built: build/aeconn-%s.so: see what failed above\n' redis valkey)" \
  "$(grep -v '^make' "$work/out" | grep -A 9 '^not built: build/')"
make
is 'the next build knows nothing of it' '0 ' "$? $(grep '^not built: build/' "$work/out")"
total
