# SPDX-License-Identifier: BSD-3-Clause
# aeconn. `make help` lists what there is.
#
#   CONFIG=release|debug|asan|tsan|coverage   release builds into build/, the others into build/CONFIG/
#   TLS=no RDMA=no                   leave that transport out
#   RDMA=link                        link libibverbs and librdmacm, which else are loaded when rdma is first used
#   PROBES=no                        no USDT probes (docs/tracing.md)
#   LINKAGE=static|shared            install that kind of library only (docs/packages.md)
#   CXX=clang++                      any C++20 compiler; CPPFLAGS, CXXFLAGS, LDFLAGS, LDLIBS are yours; V=1 shows commands

VERSION  := 0.2.0
# While it is 0.x a minor version may change the interface.
SOVERSION := $(basename $(VERSION))
CONFIG   ?= release
TLS      ?= yes
RDMA     ?= yes
PROBES   ?= yes
PREFIX   ?= /usr/local
LIBDIR   ?= $(PREFIX)/lib
MANDIR ?= $(PREFIX)/share/man
COMPLETIONS ?= $(PREFIX)/share/bash-completion/completions
PYTHONDIR ?= $(PREFIX)/lib/python3/dist-packages
SECONDS  ?= 60
ifeq ($(origin CXX),default)
CXX := g++
endif
OUT := $(if $(filter release,$(CONFIG)),build,build/$(CONFIG))

# One level is parallel by itself; a -j of the caller's wins.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif
MAKEFLAGS += --no-print-directory
Q := $(if $(V),,@)
COMMA := ,

# The same bytes wherever it is built, reached by whatever name (`make reproducible`). The other builds
# keep their folder: a debugger finds the sources by it, gcov its counts.
FLAGS_release := -O2 -g -ffile-prefix-map=$(CURDIR)=.
export PWD := $(CURDIR)
FLAGS_debug   := -O0 -g -D_GLIBCXX_ASSERTIONS
FLAGS_asan    := -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all -D_GLIBCXX_ASSERTIONS
FLAGS_tsan    := -O1 -g1 -fsanitize=thread
FLAGS_fuzz    := -O1 -g1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -D_GLIBCXX_ASSERTIONS
# gcc's: no inlining, so that lines are lines; asserts are left out, since no test can take their branch.
FLAGS_coverage := -O0 -g --coverage -fprofile-update=atomic -fno-inline -DNDEBUG
$(if $(FLAGS_$(CONFIG)),,$(error CONFIG=$(CONFIG): there is release, debug, asan, tsan, coverage))

HAVE_TLS := $(if $(filter no,$(TLS)),0,$(if $(wildcard conn/tls/*.cc),1,0))
HAVE_RDMA := $(if $(filter no,$(RDMA)),0,1)
# Coverage links: a function that only hands a call on has no branches then.
LINK_RDMA := $(if $(filter link,$(RDMA))$(filter coverage,$(CONFIG)),1,0)

ALL_CPPFLAGS := -I. -DAECONN_TLS=$(HAVE_TLS) -DAECONN_RDMA=$(HAVE_RDMA) -DAECONN_RDMA_LINK=$(LINK_RDMA)$(if $(filter no,$(PROBES)), -DAECONN_PROBES=0) -DAECONN_VERSION='"$(VERSION)"' $(CPPFLAGS)
ALL_CXXFLAGS := -std=c++20 $(FLAGS_$(CONFIG)) -fPIC -fno-semantic-interposition -Wall -Wextra -Wshadow -Wconversion \
                -Wnon-virtual-dtor -Woverloaded-virtual -MMD -MP $(CXXFLAGS)
# Children of the simulation's tests write their counts by __gcov_dump() (tests/simulation/child.h).
ALL_LDFLAGS  := $(filter -fsanitize=% --coverage,$(FLAGS_$(CONFIG))) \
                $(if $(filter coverage,$(CONFIG)),-Wl$(COMMA)-u$(COMMA)__gcov_dump) $(LDFLAGS)
TLS_LIBS     := $(if $(filter 1,$(HAVE_TLS)),-lssl -lcrypto)
VERBS_LIBS   := $(if $(filter 1,$(HAVE_RDMA)),-lrdmacm -libverbs)# of what calls them by itself: tests, bench/limits
RDMA_LIBS    := $(if $(filter 1,$(LINK_RDMA)),$(VERBS_LIBS))
LIBS         := $(TLS_LIBS) $(RDMA_LIBS) -lev -lfmt -pthread $(LDLIBS)

# ---- what is built from what --------------------------------------------------------------------
# Objects are linked in this order: not in the one that the builder's language gives to names.
sources = $(sort $(wildcard $(1)))
LIB_SRC := $(call sources,ae/*/*.cc conn/*/*.cc conn/*/*/*.cc)
LIB_SRC := $(filter-out $(if $(filter 0,$(HAVE_RDMA)),conn/rdma/%) $(if $(filter 0,$(HAVE_TLS)),conn/tls/%),$(LIB_SRC))
KV_SRC      := $(call sources,examples/kv_server/*.cc)
MANUAL_SRC  := $(call sources,programs/manual/*.cc)# manual pages and completion, from options
SERVICE_SRC := $(call sources,programs/service/*.cc)# what programs that serve share
SERVER_SRC  := $(filter-out examples/kv_server/cli_%,$(KV_SRC)) $(SERVICE_SRC)
CLI_SRC     := $(filter examples/kv_server/cli_% examples/kv_server/resp%,$(KV_SRC))
PERF_SRC    := $(call sources,programs/conn_perf/*.cc)
C_SRC       := $(call sources,c/*.cc)
PROXY_SRC   := $(call sources,programs/proxy/*.cc)
DOCTOR_SRC  := $(call sources,programs/doctor/*.cc)
# TESTS=library leaves out the tests of the programs, and the programs.
EXAMPLES_TESTED := $(if $(filter library,$(TESTS)),,$(filter-out %_main.cc,$(KV_SRC) $(PERF_SRC) $(PROXY_SRC) $(DOCTOR_SRC)) $(SERVICE_SRC) $(MANUAL_SRC))
# By what they test; the simulation's own are in tests/simulation/rules.mk.
UNIT_TESTS  := $(wildcard $(patsubst %,tests/%/*_test.cc,ae conn conformance drop_ins examples rdma tcp tls))
ifeq ($(CONFIG) $(TESTS),asan library)# of `make test-ci`, beside the simulation; valgrind has the rest there
UNIT_TESTS  := $(filter tests/conformance/% tests/tcp/% tests/tls/%,$(UNIT_TESTS))
endif
TEST_SRC    := $(UNIT_TESTS) $(wildcard tests/support/*.cc) $(C_SRC) $(EXAMPLES_TESTED)
ifeq ($(CONFIG),tsan)# only the tests that start threads, themselves or by a helper
TEST_SRC    := $(filter-out %_test.cc,$(TEST_SRC)) $(shell grep -lE 'std::j?thread|std::async|EchoThread|LoopThread|LoopGroup|GroupServer' $(UNIT_TESTS))
endif
# Of the modules what needs no server; its malloc() is for modules alone.
TEST_SRC    += $(addprefix drop_ins/redis/,errand.cc host.cc layout.cc symbols.cc type.cc)
TEST_SRC    += tests/programs/footprint.cc
ifeq ($(TESTS),library)
TEST_SRC    := $(filter-out tests/examples/% $(shell grep -lF '"examples/' $(UNIT_TESTS)),$(TEST_SRC))
endif
FUZZ_SRC    := $(wildcard tests/fuzz/fuzz_*.cc)
# The simulation has tests for TLS over RDMA, so it needs both.
SIM_TESTS   := $(if $(filter 11,$(HAVE_TLS)$(HAVE_RDMA)),sim-tests)
FUZZ_SRC    := $(filter-out $(if $(SIM_TESTS),,%_simulation.cc),$(FUZZ_SRC))
# What a program includes; what the author of a transport includes besides; and what these include
# that nobody else does. All other headers are the library's own, and are not installed.
AUTHOR_HEADERS := $(filter-out conn/kit/probes.h,$(wildcard conn/kit/*.h conn/spi/*.h)) \
  $(addprefix conn/core/,connection_core.h connection_set.h pending_connection.h refusals.h) $(addprefix conn/url/,end_linger.h option_table.h spin_option.h)
INNER_INCLUDED := ae/core/fork.h ae/core/handler_slot.h conn/lists/dial.h conn/lists/race.h conn/core/vain.h
PUBLIC_HEADERS := $(wildcard ae/*.h conn/*.h conn/co/*.h conn/transports/*.h conn/*/type.h conn/tcp/*_type.h conn/tcp/settings.h conn/tcp/socket.h) \
  conn/tls/engine/errc.h conn/tls/engine/role.h $(AUTHOR_HEADERS) $(INNER_INCLUDED)
PUBLIC_HEADERS := $(filter-out $(if $(filter 0,$(HAVE_RDMA)),conn/rdma/%) $(if $(filter 0,$(HAVE_TLS)),conn/tls/%),$(PUBLIC_HEADERS))

# They need libraries of others, and are compiled by their tests.
ADAPTERS := $(wildcard adapters/*.h)
# Installed because others include them: tools/site/inner says why the site has none of their names.
INNER_HEADERS = $(wildcard $(shell sed -n 's/^\([a-z][^ |]*\).*/\1/p' tools/site/inner))
SITE_HEADERS  = $(filter-out $(INNER_HEADERS),$(PUBLIC_HEADERS) $(ADAPTERS)) c/aeconn.h
SITE_PAGES := README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md $(wildcard docs/*.md) bench/peers.md

obj = $(patsubst %.cc,$(OUT)/obj/%.o,$(1))
# Coverage is of the library; whatever uses it is taken from the release, and the library comes first,
# so that functions of headers are its own.
ifeq ($(CONFIG),coverage)
obj = $(foreach source,$(1),$(if $(filter ae/% conn/%,$(source)),$(OUT),build)/obj/$(source:.cc=.o))
LIBRARY_FIRST := -Wl,--whole-archive $(OUT)/libaeconn.a -Wl,--no-whole-archive
endif
STATIC   := $(OUT)/libaeconn.a
SONAME   := libaeconn.so.$(SOVERSION)
SHARED   := $(OUT)/libaeconn.so.$(VERSION)
C_SONAME := libaeconn-c.so.$(SOVERSION)
C_SHARED := $(OUT)/libaeconn-c.so.$(VERSION)
PROGRAMS := $(if $(filter %/server_main.cc,$(KV_SRC)),$(OUT)/kv-server) \
            $(if $(filter %/cli_main.cc,$(KV_SRC)),$(OUT)/kv-cli) \
            $(if $(filter %/perf_main.cc,$(PERF_SRC)),$(OUT)/conn-perf) \
            $(if $(filter %/proxy_main.cc,$(PROXY_SRC)),$(OUT)/aeconn-proxy) \
            $(if $(filter %/doctor_main.cc,$(DOCTOR_SRC)),$(OUT)/aeconn-doctor)
FUZZERS  := $(patsubst tests/fuzz/%.cc,$(OUT)/%,$(FUZZ_SRC))

.PHONY: all pages help demo test test-ci test-long unit-tests install uninstall clean format tidy fuzz fuzzers check-redis check-valkey bench-redis headers
.DELETE_ON_ERROR:

all: $(STATIC) $(SHARED) $(C_SHARED) $(PROGRAMS) pages  ## the library and the examples, into build/

$(STATIC): $(call obj,$(LIB_SRC))
	@rm -f $@
	@echo "  AR   $@"
	$(Q)$(AR) rcsD $@ $^

# What it has of the templates and inline functions of others, it has for itself.
$(SHARED): $(call obj,$(LIB_SRC)) tools/libaeconn.map
	@echo "  LD   $@"
	$(Q)$(CXX) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=tools/libaeconn.map $(ALL_LDFLAGS) \
	  -o $@ $(filter %.o,$^) $(LIBS)
	@ln -sf $(@F) $(OUT)/$(SONAME) && ln -sf $(SONAME) $(OUT)/libaeconn.so

# All of the library is in it, and nothing but the interface can be seen: its C++ may change.
$(C_SHARED): $(call obj,$(C_SRC)) $(STATIC) c/libaeconn-c.map
	@echo "  LD   $@"
	$(Q)$(CXX) -shared -Wl,-soname,$(C_SONAME) -Wl,--version-script=c/libaeconn-c.map $(ALL_LDFLAGS) \
	  -o $@ $(filter %.o %.a,$^) $(LIBS)
	@ln -sf $(@F) $(OUT)/$(C_SONAME) && ln -sf $(C_SONAME) $(OUT)/libaeconn-c.so

# Modules for redis-server and valkey-server, one source; the C++ library is inside.
MODULE_SRC := $(call sources,drop_ins/redis/*.cc)
MODULES := $(OUT)/aeconn-redis.so $(OUT)/aeconn-valkey.so
valkey_obj = $(patsubst %.cc,$(OUT)/obj/valkey/%.o,$(MODULE_SRC))
MODULE_LINK = @echo "  LD   $@"; $(CXX) -shared -static-libstdc++ -static-libgcc $(ALL_LDFLAGS) -Wl,--as-needed \
  -Wl,--version-script=drop_ins/redis/exports.map -o $@ $(filter %.o %.a,$^) $(LIBS)
modules: $(MODULES)  ## aeconn-redis.so and aeconn-valkey.so, for loadmodule (docs/redis.md)
.PHONY: modules
$(OUT)/aeconn-redis.so: $(call obj,$(MODULE_SRC)) $(STATIC) drop_ins/redis/exports.map
	$(MODULE_LINK)
$(OUT)/aeconn-valkey.so: $(valkey_obj) $(STATIC) drop_ins/redis/exports.map
	$(MODULE_LINK)
$(OUT)/obj/valkey/%.o: %.cc $(OUT)/flags
	@mkdir -p $(@D)
	@echo "  CXX  $< (Valkey)"
	$(Q)$(CXX) $(ALL_CPPFLAGS) -DAECONN_VALKEY $(ALL_CXXFLAGS) -c -o $@ $<

LINK = @echo "  LD   $@"; $(if $(V),set -x;) $(CXX) $(ALL_LDFLAGS) $(1) -o $@ $(LIBRARY_FIRST) $^ $(2) $(LIBS)
$(OUT)/kv-server: $(call obj,$(SERVER_SRC) $(MANUAL_SRC)) $(STATIC)
	$(call LINK)
$(OUT)/kv-cli: $(call obj,$(CLI_SRC) $(MANUAL_SRC) $(SERVICE_SRC)) $(STATIC)
	$(call LINK)
$(OUT)/conn-perf: $(call obj,$(PERF_SRC) $(MANUAL_SRC) $(SERVICE_SRC)) $(STATIC)
	$(call LINK)
$(OUT)/aeconn-proxy: $(call obj,$(PROXY_SRC) $(SERVICE_SRC) $(MANUAL_SRC)) $(STATIC)
	$(call LINK)
$(OUT)/aeconn-doctor: $(call obj,$(DOCTOR_SRC) $(MANUAL_SRC) $(SERVICE_SRC)) $(STATIC)
	$(call LINK)

# What the programs say of themselves.
PAGES := $(patsubst $(OUT)/%,$(OUT)/pages/%,$(filter $(OUT)/%,$(PROGRAMS)))
OPTIONS_PAGE := $(if $(filter %/aeconn-doctor,$(PROGRAMS)),$(OUT)/pages/conn.7)
pages: $(PAGES:%=%.1) $(PAGES) $(OPTIONS_PAGE)  ## manual pages and completions of the programs, into build/pages
# Every program could: it is the library's tables that say it.
$(OUT)/pages/conn.7: $(OUT)/aeconn-doctor
	@mkdir -p $(@D)
	$(Q)$< --write-page conn >$@
$(OUT)/pages/%.1: $(OUT)/%
	@mkdir -p $(@D)
	$(Q)$< --write-page man >$@
$(OUT)/pages/%: $(OUT)/%
	@mkdir -p $(@D)
	$(Q)$< --write-page bash >$@

# Objects made with other flags or another compiler are made again.
FLAGS := $(CXX) $(ALL_CPPFLAGS) $(ALL_CXXFLAGS) $(ALL_LDFLAGS)
$(OUT)/flags: $(if $(filter-out $(file <$(OUT)/flags),$(FLAGS))$(filter-out $(FLAGS),$(file <$(OUT)/flags)),force)
	@[ -e $@ ] || tools/packages build --check || true
	@$(if $(findstring n,$(firstword -$(MAKEFLAGS))),,$(shell mkdir -p $(@D))$(file >$@,$(FLAGS))):
.PHONY: force
force:

$(OUT)/obj/%.o: %.cc $(OUT)/flags
	@mkdir -p $(@D)
	@echo "  CXX  $<"
	$(Q)$(CXX) $(ALL_CPPFLAGS) $(EXTRA) $(ALL_CXXFLAGS) $(LIGHTER) -c -o $@ $<

# libaeconn.so shows what AECONN_API stands before (ae/abi.h), and no more by tools/libaeconn.map.
# Programs here are linked with all.
$(call obj,$(LIB_SRC)): EXTRA = -fvisibility=hidden

# Options of the command line are most of these; no request passes there.
$(OUT)/obj/examples/%_main.o $(OUT)/obj/programs/%_main.o: LIGHTER = $(if $(filter debug coverage,$(CONFIG)),,-O1 -g1)

# ---- for other programs and loops ---------------------------------------------------------------
drop-ins:  ## all for other hosts that this machine has the packages for; names the rest
	@$(MAKE) $(C_SHARED) $(OUT)/aeconn-proxy
	@rm -f $(OUT)/not-built; for module in $(MODULES); do \
	  $(MAKE) $$module || echo "not built: $$module: see what failed above" >>$(OUT)/not-built; done
	@$(MAKE) adapter-programs
	@tests/adapters/programs $(OUT) || [ $$? = 77 ]
	@sed 's/^SKIPPED: /not built: /' $(OUT)/tests/adapters/missing
	@[ ! -e $(OUT)/not-built ] || { cat $(OUT)/not-built; exit 1; }
.PHONY: drop-ins

# ---- trying and testing -------------------------------------------------------------------------
demo:  ## kv-server and kv-cli over TCP, Unix sockets and RDMA, with a table at the end
	@tools/packages build
# To install what boots the microVM takes as long as to compile, and waits: both at once.
	@tools/packages demo & packages=$$!; $(MAKE) $(OUT)/kv-server $(OUT)/kv-cli; built=$$?; \
	  wait $$packages && exit $$built
	@examples/demo

test:  ## all tests, inside and outside the microVM
	@tools/packages test
	@$(MAKE) all modules unit-tests $(SIM_TESTS) bench-programs
	@$(MAKE) adapter-programs
	@tests/adapters/programs $(OUT) || true
	@tests/drop_ins/servers || true
	@tests/run $(OUT)

test-long:  ## what takes longer: sanitizers, churn, fuzzing by executions, soak, ...
	@$(MAKE) sanitize-builds
	@$(MAKE) modules $(SIM_TESTS) programs fuzzers-too
	@tests/adapters/programs $(OUT) || true
	@tests/drop_ins/servers || true
	@tests/long

test-ci:  ## what CI runs beside `make test`: the same by seconds, a part of it under sanitizers
	@tools/packages test
	@$(MAKE) all modules $(SIM_TESTS) programs fuzzers-too
	@tests/adapters/programs $(OUT) || true
	@tests/drop_ins/servers || true
	@tests/long ci

sanitize: sanitize-builds  ## all tests under ASan+LSan+UBSan, the threads under TSan, memcheck
	@tests/sanitize all
sanitize-builds:
	@tools/packages test
	@$(MAKE) all unit-tests $(SIM_TESTS)
	@$(MAKE) all unit-tests $(SIM_TESTS) CONFIG=asan
	@$(MAKE) adapter-programs CONFIG=asan
	@$(MAKE) unit-tests CONFIG=tsan

simulate: sim-tests  ## random walks over simulated devices: SEEDS=1000, from FIRST=1 (docs/testing.md)
	@AECONN_BUILD=$(OUT) tests/simulate $(or $(SEEDS),1000) $(or $(FIRST),1)
.PHONY: simulate

HOURS ?= 1
soak: programs  ## mixed transports and faults for HOURS=1: of the microVM's time, or REALTIME=yes
	@tools/packages test
	@tests/soak $(if $(REALTIME),real,guest) $(HOURS)

coverage:  ## lines and branches of ae/ and conn/ that the tests run; fails below 95 % and 85 %
	@tools/packages coverage
	@$(MAKE) all unit-tests
	@$(MAKE) build/coverage/kv-server build/coverage/kv-cli build/coverage/conn-perf unit-tests CONFIG=coverage
	$(if $(SIM_TESTS),@$(MAKE) $(SIM_TESTS) CONFIG=coverage)
	@tests/coverage build/coverage
# WORKERS=2: two changes at a time; SIMULATION=no: the unit tests alone decide.
mutants:  ## one line of ae/ and conn/ changed at a time: COUNT=500 SEED=1 FILES= BASE=commit AGAIN=log BUDGET=20 THOROUGH=yes; fails below 90 % noticed
	@tools/packages test
	@tests/mutants
.PHONY: sanitize sanitize-builds soak coverage programs mutants

# Programs for tests that are no unit tests, each a file with the parts they share.
PROGRAM_MAINS := churn soak
programs: $(PROGRAM_MAINS:%=$(OUT)/tests/%)
$(PROGRAM_MAINS:%=$(OUT)/tests/%): $(OUT)/tests/%: $(OUT)/obj/tests/programs/%.o $(OUT)/obj/tests/programs/footprint.o $(STATIC)
	@mkdir -p $(@D)
	$(call LINK)

# Catch2 3 is a library with other headers; 2 is headers only.
HASH  := \#
CATCH := $(shell echo '$(HASH)include <catch2/catch_all.hpp>' | $(CXX) $(CPPFLAGS) -E -x c++ - >/dev/null 2>&1 && echo 3)
$(OUT)/obj/tests/%.o: EXTRA = $(if $(CATCH),-DAECONN_CATCH2_V3)
# Most of a build is tests: these flags take half off their time, and what a debugger loses is the
# names of their locals. Undefined behaviour is looked for in what the tests call.
$(OUT)/obj/tests/%.o: LIGHTER = $(if $(filter debug coverage,$(CONFIG)),,$(if $(filter %_test.cc,$<),-O0,-O1) -g1)
$(OUT)/obj/tests/%_test.o: LIGHTER = $(if $(filter debug coverage,$(CONFIG)),,-O0 -g1) $(if $(filter asan,$(CONFIG)),-fno-sanitize=undefined)
# What tests include of others, compiled once. ccache and clang++ do without.
PRECOMPILED := $(if $(findstring clang,$(CXX))$(findstring ccache,$(CXX) $(shell command -v $(CXX))),,$(OUT)/obj/tests/precompiled.h)
ifneq ($(PRECOMPILED),)
$(OUT)/obj/tests/%_test.o: EXTRA += -include $(PRECOMPILED)
$(patsubst %.cc,$(OUT)/obj/%.o,$(filter %_test.cc,$(TEST_SRC) $(wildcard tests/simulation/tests/*_test.cc))): $(PRECOMPILED).gch
$(PRECOMPILED).gch: EXTRA = $(if $(CATCH),-DAECONN_CATCH2_V3)
$(PRECOMPILED).gch: LIGHTER = $(if $(filter debug coverage,$(CONFIG)),,-O0 -g1) $(if $(filter asan,$(CONFIG)),-fno-sanitize=undefined)
$(PRECOMPILED).gch: tests/support/precompiled.h $(OUT)/flags
	@mkdir -p $(@D)
	@echo "  CXX  $<"
	$(Q)$(CXX) $(ALL_CPPFLAGS) $(EXTRA) $(ALL_CXXFLAGS) $(LIGHTER) -x c++-header -o $@ $<
	@cp $< $(PRECOMPILED)
endif
unit-tests: $(OUT)/tests/unit-tests  ## only build build/tests/unit-tests
$(OUT)/tests/unit-tests: $(call obj,$(TEST_SRC)) $(STATIC)
	@mkdir -p $(@D)
	$(call LINK,,$(if $(CATCH),-lCatch2) $(VERBS_LIBS))

include tests/simulation/rules.mk
adapter-programs:  ## only the programs that test adapters for loops and asio
	@$(MAKE) ADAPTERS_TESTED=yes $(OUT)/tests/adapters/missing
.PHONY: adapter-programs
include tests/adapters/rules.mk

fuzz:  ## fuzz each tests/fuzz/fuzz_*.cc for SECONDS=60, or till RUNS=N in all
	@$(MAKE) fuzzers-too
	@tests/fuzz/run build/fuzz $(SECONDS) $(RUNS)
.PHONY: fuzzers-too
fuzzers-too:
	@$(MAKE) fuzzers CONFIG=fuzz CXX=$(if $(findstring clang,$(CXX)),$(CXX),clang++)
fuzzers: $(FUZZERS)
# FUZZ_EXTRA_name: sources beside the library and kv-server's that fuzz_name.cc needs.
.SECONDEXPANSION:
$(FUZZERS): $(OUT)/fuzz_%: $(OUT)/obj/tests/fuzz/fuzz_%.o $$(call obj,$$(FUZZ_EXTRA_$$*)) \
            $(call obj,$(filter-out %_main.cc,$(KV_SRC)) $(SERVICE_SRC)) $(STATIC)
	$(call LINK,-fsanitize=fuzzer $(FUZZ_LINK),$(FUZZ_LIBS))

check-redis: all modules  ## redis-server's own test suite, by the module and without it
	@tests/drop_ins/suite redis
check-valkey: all modules  ## the same of valkey-server; VALKEY=folder: and tests against a Valkey built with RDMA
	@tests/drop_ins/suite valkey
	$(if $(VALKEY),@tests/valkey/run $(VALKEY))

check-distributions:  ## unit tests, simulation, demo in other releases: DISTRIBUTIONS="trixie sid"; as root
	@tools/packages distributions
	@tests/distributions
deb:  ## Debian packages in clean roots, into build/packages: DISTRIBUTIONS="bookworm trixie sid"; as root
	@tools/packages distributions
	@tools/deb
.PHONY: check-distributions deb

bench-redis: all  ## redis-benchmark against kv-server and redis-server in turn, with ratios
	@AECONN_BUILD=$(OUT) bench/redis_ratio

# ---- measuring ----------------------------------------------------------------------------------
$(OUT)/bench/micro: $(call obj,$(wildcard bench/micro/*.cc) programs/conn_perf/histogram.cc) \
                    $(call obj,$(filter-out %_main.cc,$(KV_SRC)) $(SERVICE_SRC)) $(STATIC)
	@mkdir -p $(@D)
	$(call LINK,,-lbenchmark)
$(OUT)/bench/loop-bench: $(call obj,bench/loop/main.cc) $(STATIC)
	@mkdir -p $(@D)
	$(call LINK)

# The figures of each suite stay in build/bench/*.jsonl; the report is made of all there are. Whatever
# they are, and if a suite could not run, the status is 0.
bench:  ## all on the host and over soft-RoCE beside others; build/bench/report.md (VALKEY=: with Valkey)
	@tools/packages bench || echo 'What is missing is left out of the benchmarks.'
	@$(MAKE) all bench-programs bench-programs-loop
	-@$(BENCH_RUN) host
	-@$(BENCH_RUN) softroce
	-@$(BENCH_RUN) report
bench-exact:  ## instructions for a request over every transport; build/bench/report.md
	@tools/packages bench || echo 'What is missing is left out of the benchmarks.'
	@$(MAKE) all bench-programs
	-@$(BENCH_RUN) exact
	-@$(BENCH_RUN) report
bench-programs-loop: $(OUT)/bench/loop-bench
BENCH_RUN = AECONN_BUILD=$(OUT) VALKEY=$(VALKEY) CXX='$(CXX)' bench/run
.PHONY: bench bench-exact bench-programs-loop

bench-micro: $(OUT)/bench/micro  ## times of small parts, by Google Benchmark
	@$<
bench-instructions: $(OUT)/bench/micro  ## the same parts counted in instructions, under valgrind
	@bench/instructions $<
bench-loop: $(OUT)/bench/loop-bench  ## the event loop against bare libev and bare epoll
	@$<
.PHONY: bench-micro bench-instructions bench-loop

# ---- the site -----------------------------------------------------------------------------------
site:  ## the interface from its headers, with the guides, into build/site (docs/testing.md)
	@tools/packages site
	@rm -rf $(OUT)/site && mkdir -p $(OUT)/site
	$(Q)(cat tools/site/Doxyfile; echo 'INPUT = $(SITE_PAGES) $(SITE_HEADERS) tools/site/authors.dox'; \
	  echo 'HTML_EXTRA_FILES = LICENSE docs/echo_server.cc docs/echo_server_co.cc'; \
	  echo 'PROJECT_NUMBER = $(VERSION)'; echo 'OUTPUT_DIRECTORY = $(OUT)/site') \
	  | SITE_PAGES='$(SITE_PAGES)' doxygen -
	@python3 -B tools/site/finish.py $(OUT)/site
	@python3 -B tools/site/headers.py tools/site/inner $(OUT)/site $(PUBLIC_HEADERS) $(ADAPTERS) c/aeconn.h
	@echo '$(OUT)/site/index.html'
check-site: site  ## follows every link of the site, and takes pictures of pages in a browser
	@tools/packages check-site
	@tests/site/run $(OUT)/site $(OUT)/site-pictures
.PHONY: site check-site

print-author-headers print-inner-headers:
	@echo $(if $(filter %author-headers,$@),$(AUTHOR_HEADERS),$(INNER_INCLUDED))
.PHONY: print-author-headers print-inner-headers
headers: $(PUBLIC_HEADERS:%=$(OUT)/headers/%.ok)  ## each public header compiles alone
$(OUT)/headers/%.ok: % $(wildcard ae/*.h ae/*/*.h conn/*.h conn/*/*.h conn/*/*/*.h) $(OUT)/flags
	@mkdir -p $(@D)
	$(Q)echo '#include "$*"' | $(CXX) $(ALL_CPPFLAGS) $(filter-out -MMD -MP,$(ALL_CXXFLAGS)) -fsyntax-only -x c++ -
	@touch $@

OUR_CODE = $(shell find ae conn c adapters drop_ins examples programs tests bench -name '*.cc' -o -name '*.h' -o -name '*.c' 2>/dev/null)
format:  ## clang-format on all our code
	@tools/packages format
	clang-format -i $(OUR_CODE)
tidy: $(patsubst %.cc,$(OUT)/tidy/%.ok,$(LIB_SRC) $(C_SRC) $(KV_SRC) $(PERF_SRC) $(PROXY_SRC) $(SERVICE_SRC) $(MANUAL_SRC) $(DOCTOR_SRC))  ## clang-tidy
.PHONY: tidy-packages
tidy-packages:
	@tools/packages tidy
$(OUT)/tidy/%.ok: %.cc .clang-tidy | tidy-packages
	@mkdir -p $(@D)
	clang-tidy --quiet --warnings-as-errors='*' $< -- $(ALL_CPPFLAGS) -std=c++20
	@touch $@

# ---- measuring: limits and load -----------------------------------------------------------------
# bench/limits/ knows nothing of the library; --as-needed keeps its libraries out as well.
LEAN := -Wl,--as-needed
HISTOGRAM := $(call obj,programs/conn_perf/histogram.cc)
BENCH_PROGRAMS := $(patsubst %,$(OUT)/bench/%,epoll-echo co-echo request-load $(if $(TLS_LIBS),tls-echo) $(if $(VERBS_LIBS),verbs-echo))
.PHONY: bench-programs
bench-programs: $(BENCH_PROGRAMS)  ## what benchmarks compare with and drive load with, into build/bench/
$(BENCH_PROGRAMS): | $(OUT)/bench/
$(OUT)/bench/:
	@mkdir -p $@
$(OUT)/bench/epoll-echo: $(call obj,$(addprefix bench/limits/,epoll_echo.cc sockets.cc))
	$(call LINK,$(LEAN))
$(OUT)/bench/co-echo: $(call obj,bench/co_echo.cc) $(STATIC)
	$(call LINK)
$(OUT)/bench/tls-echo: $(call obj,$(addprefix bench/limits/,tls_echo.cc sockets.cc))
	$(call LINK,$(LEAN))
$(OUT)/bench/verbs-echo: $(call obj,$(wildcard bench/limits/verbs_*.cc) bench/limits/sockets.cc) $(HISTOGRAM)
	$(call LINK,$(LEAN),$(VERBS_LIBS))
$(OUT)/bench/request-load: $(call obj,$(wildcard bench/request_load*.cc) $(filter examples/kv_server/resp%,$(KV_SRC))) $(HISTOGRAM) $(STATIC)
	$(call LINK)

# ---- installing ---------------------------------------------------------------------------------
D := $(DESTDIR)
fill = sed -e 's|@PREFIX@|$(PREFIX)|g; s|@LIBDIR@|$(LIBDIR)|g; s|@VERSION@|$(VERSION)|g' \
           -e 's|@PRIVATE_LIBS@|$(strip $(LIBS))|g; s|@SONAME@|$(SONAME)|g' \
           -e 's|@PUBLIC_LIBS@|$(strip -laeconn $(if $(INSTALLED_SHARED),,$(LIBS)))|' \
           -e 's|@LIB_LIST@|$(subst $() ,;,$(strip $(LIBS)))|' tools/$(1).in >$(OUT)/$(notdir $(2)) && \
       install -m 644 $(OUT)/$(notdir $(2)) $(D)$(LIBDIR)/$(2)

# What a static library needs stands in its .pc file where it is the only one.
LINKAGE ?= both
$(if $(filter both static shared,$(LINKAGE)),,$(error LINKAGE=$(LINKAGE): there is both, static, shared))
INSTALLED_STATIC := $(if $(filter shared,$(LINKAGE)),,$(STATIC))
INSTALLED_SHARED := $(if $(filter static,$(LINKAGE)),,$(SHARED) $(C_SHARED))
# `install` sets modes whatever the umask is; mkdir and the shell would not.
install-libraries: $(INSTALLED_STATIC) $(INSTALLED_SHARED)  ## only headers and libraries, with pkg-config's and CMake's files
	@install -d -m 755 $(D)$(PREFIX)/include $(D)$(LIBDIR)/pkgconfig $(D)$(LIBDIR)/cmake/aeconn
	@for h in $(PUBLIC_HEADERS) $(ADAPTERS); do install -D -m 644 $$h $(D)$(PREFIX)/include/aeconn/$$h || exit 1; done
	$(if $(INSTALLED_STATIC),install -m 644 $(STATIC) $(D)$(LIBDIR))
ifneq ($(INSTALLED_SHARED),)
	install -m 755 $(SHARED) $(D)$(LIBDIR)
	ln -sf $(notdir $(SHARED)) $(D)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(D)$(LIBDIR)/libaeconn.so
	install -m 644 c/aeconn.h $(D)$(PREFIX)/include
	install -m 755 $(C_SHARED) $(D)$(LIBDIR)
	ln -sf $(notdir $(C_SHARED)) $(D)$(LIBDIR)/$(C_SONAME)
	ln -sf $(C_SONAME) $(D)$(LIBDIR)/libaeconn-c.so
	@$(call fill,aeconn-c.pc,pkgconfig/aeconn-c.pc)
endif
	@$(call fill,aeconn.pc,pkgconfig/aeconn.pc)
	@$(call fill,aeconnConfig.cmake,cmake/aeconn/aeconnConfig.cmake)
	@$(call fill,aeconnConfigVersion.cmake,cmake/aeconn/aeconnConfigVersion.cmake)
.PHONY: install-libraries

install: all modules install-libraries  ## into PREFIX=/usr/local, below DESTDIR= if given
	@install -d -m 755 $(D)$(PREFIX)/bin $(D)$(LIBDIR)/aeconn $(D)$(PYTHONDIR)/aeconn
	install -m 755 $(MODULES) $(D)$(LIBDIR)/aeconn
	install -m 644 python/aeconn/*.py python/aeconn/py.typed $(D)$(PYTHONDIR)/aeconn
	$(if $(PROGRAMS),install -m 755 $(PROGRAMS) $(D)$(PREFIX)/bin)
	@install -d -m 755 $(D)$(MANDIR)/man1 $(D)$(MANDIR)/man7 $(D)$(COMPLETIONS)
	$(if $(OPTIONS_PAGE),install -m 644 $(OPTIONS_PAGE) $(D)$(MANDIR)/man7)
	$(if $(PAGES),install -m 644 $(PAGES:%=%.1) $(D)$(MANDIR)/man1)
	$(if $(PAGES),install -m 644 $(PAGES) $(D)$(COMPLETIONS))

uninstall:  ## what install put there
	rm -rf $(D)$(PREFIX)/include/aeconn $(D)$(LIBDIR)/cmake/aeconn $(D)$(LIBDIR)/pkgconfig/aeconn.pc
	rm -rf $(D)$(PYTHONDIR)/aeconn $(D)$(LIBDIR)/aeconn
	rm -f $(D)$(LIBDIR)/libaeconn-c.* $(D)$(LIBDIR)/pkgconfig/aeconn-c.pc $(D)$(PREFIX)/include/aeconn.h
	rm -f $(D)$(MANDIR)/man7/conn.7
	rm -f $(PAGES:$(OUT)/pages/%=$(D)$(MANDIR)/man1/%.1) $(PAGES:$(OUT)/pages/%=$(D)$(COMPLETIONS)/%)
	rm -f $(D)$(LIBDIR)/libaeconn.* $(PROGRAMS:$(OUT)/%=$(D)$(PREFIX)/bin/%)

# ---- releasing ----------------------------------------------------------------------------------
# What was built of which files of ours, and what it needs of others.
SBOM := $(OUT)/aeconn-$(VERSION).spdx.json
sbom: all modules  ## what the build contains and links, as SPDX 2.3 in JSON, into build/
	@tools/sbom --version $(VERSION) --cxx '$(CXX)' --out $(SBOM) \
	  --objects $(sort $(call obj,$(LIB_SRC) $(C_SRC) $(SERVER_SRC) $(CLI_SRC) $(PERF_SRC) $(PROXY_SRC) $(DOCTOR_SRC) \
	              $(MANUAL_SRC) $(MODULE_SRC)) $(valkey_obj)) \
	  --files $(PUBLIC_HEADERS) $(ADAPTERS) c/aeconn.h $(wildcard python/aeconn/*.py) python/aeconn/py.typed \
	  --artefacts $(STATIC) $(SHARED) $(C_SHARED) $(MODULES) $(PROGRAMS)
reproducible:  ## builds twice, in other folders and other circumstances: every installed byte is the same
	@tools/packages reproducible || echo 'Differences, if there are any, are shown as bytes.'
	@tools/reproducible $(MAKEOVERRIDES)
check-recipes:  ## the recipes for Conan and vcpkg: five sets of their options, each built anew
	@tools/packages test
	@tests/scripts/recipes.sh --whole
release-check:  ## what a release lacks, a line each; REPRODUCIBLE=yes: with two builds
	@REPRODUCIBLE=$(REPRODUCIBLE) tools/release-check $(OUT)
abi:  ## what changed in the interface of the shared libraries since the last tag, or BASE=commit
	@tools/packages abi
	@BASE='$(BASE)' tools/abi $(MAKEOVERRIDES)
.PHONY: sbom reproducible check-recipes release-check abi

clean:  ## remove build/
	rm -rf build

help:  ## this list
	@sed -n 's/^# \( .*=.*\)/\1/p' Makefile
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-22s %s\n", $$1, $$2}'

-include $(shell find $(OUT)/obj -name '*.d' 2>/dev/null)
