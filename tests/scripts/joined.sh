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

# The demo joins as long as no source was compiled alone, so that a demo again compiles nothing.
tree=$work/tree
asked() {  # TEXT of make, and more arguments: its value
  make -s OUT="$tree" "${@:2}" --eval "show: ; @echo $1" show
}
folders_of_objects() {  # arguments of make
  # shellcheck disable=SC2016 # make's
  mkdir -p "$tree" && asked '$(sort $(dir $(call obj,$(LIB_SRC))))' "$@" | xargs mkdir -p
}
joins() {  # NAME EXPECTED
  # shellcheck disable=SC2016
  is "$1" "$2" "$(asked '$(DEMO_JOINS)')"
}
joins 'make demo in a fresh tree joins sources' JOINED=yes
folders_of_objects JOINED=yes
joins 'make demo again joins them, too' JOINED=yes
folders_of_objects
joins 'make demo after make does not' ''
total
