#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tools/reproducible must detect irreproducible builds: a small tree whose build depends on one
# circumstance after the other. `make reproducible` checks the real tree, which takes long.
set -u
# shellcheck source=tests/scripts/kit
. "$(dirname "$0")/kit"
for tool in git make cmp; do
  command -v $tool >/dev/null || { echo "SKIPPED: tools/reproducible: $tool is not installed"; total; exit; }
done
mkdir -p "$work/tree/tools" "$work/tree/tests" && cp tools/reproducible "$work/tree/tools/" &&
  cp tests/results "$work/tree/tests/" && cd "$work/tree" && git init -q . || exit 1
export DIFFOSCOPE=$work/none
touch a_b.txt ab.txt Z.txt && echo /build/ >.gitignore
try() {  # NAME STATUS WORDS RECIPE: what installs "made" into $(DESTDIR)
  printf 'install:\n\tinstall -d -m 755 $(DESTDIR)\n\t%s\n' "$4" >Makefile
  git add -A && git -c user.name=x -c user.email=x@example.com commit -qm x
  said=$(tools/reproducible 2>&1)
  is "$1: status" "$2" $?
  is "$1: said" yes "$(grep -qF "$3" <<<"$said" && echo yes || echo "$said")"
}
# shellcheck disable=SC2016 # make's
{
  into='>$(DESTDIR)/made && chmod 644 $(DESTDIR)/made'
  try 'nothing differs' 0 '2 passed, 0 failed' "echo always $into"
  is 'nothing differs: the result is kept' '2 passed, 0 failed' "$(cut -d ' ' -f 3- build/results/reproducible)"
  is 'nothing differs: with its commit' "$(git rev-parse HEAD)" "$(cut -d ' ' -f 1 build/results/reproducible)"
  try 'the folder' 1 'FAIL made differs' "echo \$(CURDIR) $into"
  is 'without diffoscope: the bytes are shown' 1 "$(grep -c 'made: the first bytes that differ, of ' <<<"$said")"
  is 'without diffoscope: what would read them is said' 1 "$(grep -cF 'package diffoscope-minimal' <<<"$said")"
  printf '#!/bin/sh\necho "asked of $*"\n' >"$work/reader" && chmod +x "$work/reader"
  DIFFOSCOPE=$work/reader try 'the folder, with diffoscope' 1 "asked of" "echo \$(CURDIR) $into"
  try 'the time zone' 1 'FAIL made differs' "date +%z $into"
  try 'the user' 1 'FAIL made differs' "echo \$\$USER \$\$HOME $into"
  try 'the jobs' 1 'FAIL made differs' "echo \$(MAKEFLAGS) $into"
  try 'the umask' 1 'FAIL the same files with the same modes and links:' 'echo always >$(DESTDIR)/made'
  try 'what fails' 1 'FAIL the first build; the whole log is ' 'false'
}
if locale -a | grep -qiE '^[a-z]+_.*utf-?8$' || localedef -i en_US -f UTF-8 "$work/en_US.UTF-8" 2>/dev/null; then
  # shellcheck disable=SC2016
  try 'the language' 1 'FAIL made differs' 'echo $(wildcard *.txt) >$(DESTDIR)/made && chmod 644 $(DESTDIR)/made'
else
  echo 'SKIPPED: the language: there is no other than C'
fi
total
