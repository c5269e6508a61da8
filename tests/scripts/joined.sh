#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `make JOINED=yes` compiles many sources as one: names of one source must not collide with those of
# another. Both compilers check this without generating code. No warning is accepted.
set -u
# shellcheck source=tests/scripts/kit
. "$(dirname "$0")/kit"

for compiler in g++ clang++; do
  said=$(make -s JOINED=yes OUT="$work/$compiler" CXX=$compiler CXXFLAGS='-fsyntax-only -Werror' \
    joined 2>&1) || said+=' (failed)'
  is "$compiler compiles the joined sources" '' "$(grep -E 'error|failed' <<<"$said" | head -n 5)"
done
total
