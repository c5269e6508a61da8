#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tests/mutants on a tiny tree with two tests: changes that are noticed, that survive, and that were
# accepted; a seed draws the same changes again; tests are chosen by the lines they run.
set -u
cd "$(dirname "$0")/../.." || exit 1
passed=0 failed=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
tool=$PWD/tests/mutants

ok() { passed=$((passed + 1)); echo "ok $1"; }
fail() { failed=$((failed + 1)); echo "FAIL $1: $2"; }
has() {  # NAME TEXT: of the last run
  if grep -qF -e "$2" "$work/said"; then ok "$1"; else fail "$1" "no '$2' in: $(cat "$work/said")"; fi
}
has_not() {  # NAME TEXT
  if grep -qF -e "$2" "$work/said"; then fail "$1" "'$2' in: $(cat "$work/said")"; else ok "$1"; fi
}
ends() {  # NAME STATUS
  if [ "$status" = "$2" ]; then ok "$1"; else fail "$1" "status $status: $(tail -n 3 "$work/said")"; fi
}
mutants() {  # SETTINGS...
  env -u BASE -u FILES -u WANTED -u AGAIN -u THOROUGH -u BUDGET ROOT="$work/tree" COUNT=100 "$@" "$tool" >"$work/said" 2>&1
  status=$?
}

# The structure of the real tree: a library, two test programs, recipes that `make -n V=1` prints.
mkdir -p "$work/tree"/{ae,conn,tests} || exit 1
cat >"$work/tree/Makefile" <<'END'
CXX ?= g++
OBJ := build/obj/ae/sample.o build/obj/ae/forgotten.o
unit-tests: build/tests/unit-tests
sim-tests: build/tests/sim-tests
build/libaeconn.a: $(OBJ)
	@ar rcs $@ $^
build/tests/%-tests: build/obj/tests/%_tests.o build/libaeconn.a
	@mkdir -p $(@D)
	@echo "  LD   $@"; $(CXX) $(CXXFLAGS) -o $@ $^
build/obj/%.o: %.cc
	@mkdir -p $(@D)
	$(CXX) -I. $(CXXFLAGS) -MMD -MP -c -o $@ $<
.SECONDARY:
END
cat >"$work/tree/ae/limits.h" <<'END'
inline int most() { return 9; }  // whatever becomes of this 9, a test sees it
END
cat >"$work/tree/ae/sample.cc" <<'END'
// Were comments changed, 1 < 2 would be.
#include <cassert>
#include "ae/limits.h"
static const char* const kText = "5 < 6 && true";
static_assert(3 < 4);
constexpr int kUnused = 7;
int calls = 0;
void noted() { ++calls; }
bool small(int n) {
  assert(n < 100);
  noted();
  return n < most();
}
int text_length() { return kText[0] == '5' ? 1 : 2; }
END
cat >"$work/tree/tests/unit_tests.cc" <<'END'
#include <cstdio>
#include <cstdlib>
#include <cstring>
extern "C" void test_begins() __attribute__((weak));
extern "C" void test_ends(const char* name) __attribute__((weak));
bool small(int n);
int text_length();
bool failed = false;
void test(const char* spec, const char* name, bool (*good)()) {
  if (spec[0] != '~' && spec[0] != '[' && std::strstr(spec, name) == nullptr) return;
  if (test_begins != nullptr) test_begins();
  const bool passed = good();
  if (test_ends != nullptr) test_ends(name);
  if (passed) return;
  failed = true;
  if (std::FILE* file = std::fopen(std::getenv("AECONN_TEST_TALLY"), "a")) {
    std::fprintf(file, "FAIL %s\n", name);
    std::fclose(file);
  }
}
int main(int, char** argv) {
  test(argv[1], "sample: small is below most",
       [] { return small(8) && !small(9) && !small(10); });
  test(argv[1], "sample: a text has one", [] { return text_length() == 1; });
  return failed ? 1 : 0;
}
END
echo 'int nobody_asks(int count) { return count + 1; }' >"$work/tree/ae/forgotten.cc"
echo 'int main() { return 0; }' >"$work/tree/tests/sim_tests.cc"

mutants LIST=yes SEED=3
cp "$work/said" "$work/first"
mutants LIST=yes SEED=3
if cmp -s "$work/said" "$work/first"; then ok 'a seed draws the same again'; else
  fail 'a seed draws the same again' "$(diff "$work/first" "$work/said")"; fi
mutants LIST=yes FILES='ae/*.cc:12 conn/*'
is_line_12() { [ "$(grep -c '^ae/' "$work/said")" = "$(grep -c '^ae/sample.cc:12:' "$work/said")" ]; }
if is_line_12; then ok 'FILES= narrows it to lines'; else
  fail 'FILES= narrows it to lines' "$(cat "$work/said")"; fi
has 'FILES= keeps what it names' 'ae/sample.cc:12: '
(cd "$work/tree" && echo build >.gitignore && git init -q && git add . &&
  git -c user.name=a -c user.email=a@b commit -qm 1) >/dev/null 2>&1
sed -i 's/int n) {/int n) {  \/\/ changed: 1 line/; s/return n < /return  n < /' "$work/tree/ae/sample.cc"
mutants LIST=yes BASE=HEAD
if is_line_12; then ok 'BASE= narrows it to lines that differ'; else
  fail 'BASE= narrows it to lines that differ' "$(cat "$work/said")"; fi
has 'BASE= keeps lines that differ' 'ae/sample.cc:12: '
mutants LIST=yes BASE=nowhere
ends 'a commit that is not there fails' 1
rm -rf "$work/tree/.git"
mutants LIST=yes SEED=4
if cmp -s "$work/said" "$work/first"; then fail 'another seed, another order' 'it is the same'; else
  ok 'another seed, another order'; fi
has 'a comparison is changed' '+ return n <= most();'
has 'a header is changed' '+ inline int most() { return 10; }'
for text in '1 < 2' '5 < 6' '3 < 4' '100' 'kUnused'; do
  has_not "comments, texts, asserts and constants are left alone: $text" "- $(
    grep -F -e "$text" "$work/tree/ae/sample.cc" | sed 's/^ *//')"
done

mutants SEED=1 WANTED=0
ends 'as many as wanted are noticed' 0
has 'a bound that a test looks at' 'ae/sample.cc:12: < becomes <=: noticed by sample: small is below most'
has 'what uses a header is made anew' 'ae/limits.h:1: 9 becomes 10: noticed by sample'
has 'a call nobody misses' 'ae/sample.cc:11: call left out: SURVIVED'
has 'the survivors are listed, to be copied' '- noted();'
has 'a test that runs the line is asked' "ae/sample.cc:14: == becomes !=: noticed by sample: a text has one"
has 'a line that no test runs' 'ae/forgotten.cc:1: + becomes -: SURVIVED: no test was seen to run it'
last=$(tail -n 1 "$work/said")
if [[ $last =~ ^noticed\ [0-9]+\ of\ [0-9]+\ \([0-9.]+\ %\)$ ]]; then ok 'the last line is the sum'; else
  fail 'the last line is the sum' "$last"; fi
read -r _ noticed _ total _ <<<"$last"
mutants SEED=1 SIMULATION=no WANTED=0
[ "$(tail -n 1 "$work/said")" = "$last" ] && ok 'the unit tests alone' ||
  fail 'the unit tests alone' "$(tail -n 1 "$work/said"), not $last"
mutants SEED=1 THOROUGH=yes WANTED=0
[ "$(tail -n 1 "$work/said")" = "$last" ] && ok 'all tests find the same' ||
  fail 'all tests find the same' "$(tail -n 1 "$work/said"), not $last"
has 'all tests are asked about any line' 'ae/forgotten.cc:1: + becomes -: SURVIVED ('
mutants SEED=1
ends 'below 90 % it fails' 1
cp "$work/said" "$work/survivors"
mutants SEED=1 AGAIN="$work/survivors" WANTED=0
again="noticed 0 of $((total - noticed)) (0.0 %)"
[ "$(tail -n 1 "$work/said")" = "$again" ] && ok 'AGAIN= judges what survived' ||
  fail 'AGAIN= judges what survived' "$(tail -n 1 "$work/said"), not $again"
mutants SEED=1 WANTED=0 WORKERS=3
[ "$(tail -n 1 "$work/said")" = "$last" ] && ok 'three workers find the same' ||
  fail 'three workers find the same' "$(tail -n 1 "$work/said"), not $last"

cat >"$work/tree/tests/mutants.accepted" <<'END'
# A comment.
ae/sample.cc
- noted();
+ ;
= Nobody looks at the count.
END
mutants SEED=1 WANTED=0
has_not 'what was accepted is not tried' 'ae/sample.cc:11: call left out'
read -r _ noticed_then _ total_then _ <<<"$(tail -n 1 "$work/said")"
if [ "$noticed_then $total_then" = "$noticed $((total - 1))" ]; then ok 'what was accepted does not count'; else
  fail 'what was accepted does not count' "$noticed_then of $total_then, before $noticed of $total"; fi
printf '\nae/sample.cc\n- gone();\n+ ;\n= It was there once.\n' >>"$work/tree/tests/mutants.accepted"
mutants SEED=1 WANTED=0 COUNT=1
ends 'an accepted change that is not possible any more fails' 1
has 'an accepted change that is not possible any more is named' 'no such change any more: ae/sample.cc'
printf '\nae/sample.cc\n- noted();\n+ ;\n' >>"$work/tree/tests/mutants.accepted"
mutants SEED=1 COUNT=1
has 'a reason is asked for' 'a block without ='

echo "$passed passed, $failed failed"
[ $failed = 0 ]
