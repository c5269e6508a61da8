# SPDX-License-Identifier: BSD-3-Clause
# aeconn. `make help` lists options and targets.
#
#   CONFIG=release|debug|asan|tsan|coverage|aarch64   release builds into build/, the others into build/CONFIG/
#   TLS=no RDMA=no                   build without that transport
#   RDMA=link                        link libibverbs and librdmacm instead of loading them when rdma is first used
#   PROBES=no                        build without USDT probes (docs/tracing.md)
#   LINKAGE=static|shared            install only that kind of library (docs/packages.md)
#   CXX=clang++                      any C++20 compiler; CPPFLAGS, CXXFLAGS, LDFLAGS, LDLIBS are for the user; V=1 shows commands

VERSION  := 0.3.0
# Before 1.0, a minor version may change the interface of C++.
SOVERSION := $(basename $(VERSION))
# The release that last broke the C interface: programs that use it keep running since then.
C_SOVERSION := 0.2
CONFIG   ?= release
TLS      ?= yes
RDMA     ?= yes
PROBES   ?= yes
PREFIX   ?= /usr/local
LIBDIR   ?= $(PREFIX)/lib
MANDIR ?= $(PREFIX)/share/man
DOCDIR ?= $(PREFIX)/share/doc/aeconn
COMPLETIONS ?= $(PREFIX)/share/bash-completion/completions
PYTHON   ?= python3
# The folder below PREFIX in which this interpreter looks for packages, if there is one. Evaluated where it is used.
PYTHONDIR ?= $(or $(shell $(PYTHON) -c 'import site; print(*site.getsitepackages(), sep="\n")' 2>/dev/null | \
               sed -n '\|^$(abspath $(PREFIX))/lib/|{p;q;}'),$(PREFIX)/lib/python3/dist-packages)
SECONDS  ?= 60
ifeq ($(origin CXX),default)
CXX := g++
endif
OUT := $(if $(filter release,$(CONFIG)),build,build/$(CONFIG))

# A top-level make runs in parallel by default; a -j option of the caller takes precedence.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif
MAKEFLAGS += --no-print-directory
Q := $(if $(V),,@)
COMMA := ,

# Release builds are identical regardless of folder and path (`make reproducible`), and a cache of the compiler's
# results serves those with sanitizers in each clone. Other builds record their folder: debuggers need it to find
# sources, gcov to find its counts.
FLAGS_release := -O2 -g -ffile-prefix-map=$(CURDIR)=.
export PWD := $(CURDIR)
# Checks that cost time, of the library and of libstdc++. Distributions set the latter for releases, too.
CHECKS := -DAECONN_CHECKS -D_GLIBCXX_ASSERTIONS
FLAGS_debug   := -O0 -g $(CHECKS)
FLAGS_asan    := -O1 -g1 -ffile-prefix-map=$(CURDIR)=. -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all $(CHECKS)
FLAGS_tsan    := -O1 -g1 -ffile-prefix-map=$(CURDIR)=. -fsanitize=thread
FLAGS_fuzz    := -O1 -g1 -ffile-prefix-map=$(CURDIR)=. -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all $(CHECKS)
# gcc's options: no inlining, so that counts belong to lines; no asserts, because tests cannot take their branches.
FLAGS_coverage := -O0 -g --coverage -fprofile-update=atomic -fno-inline -DNDEBUG
# tests/aarch64/run names the compiler and its sysroot. What is compiled runs once, in an emulator.
FLAGS_aarch64 := -O0 -g1 $(CHECKS)
$(if $(FLAGS_$(CONFIG)),,$(error CONFIG=$(CONFIG): there is release, debug, asan, tsan, coverage, aarch64))

HAVE_TLS := $(if $(filter no,$(TLS)),0,$(if $(wildcard conn/tls/*.cc),1,0))
HAVE_RDMA := $(if $(filter no,$(RDMA)),0,1)
# Coverage builds link the libraries, because functions that only forward calls then have no branches.
LINK_RDMA := $(if $(filter link,$(RDMA))$(filter coverage,$(CONFIG)),1,0)

ALL_CPPFLAGS := -I. -Ibindings -DAECONN_TLS=$(HAVE_TLS) -DAECONN_RDMA=$(HAVE_RDMA) -DAECONN_RDMA_LINK=$(LINK_RDMA)$(if $(filter no,$(PROBES)), -DAECONN_PROBES=0) -DAECONN_VERSION='"$(VERSION)"' $(CPPFLAGS)
ALL_CXXFLAGS := -std=c++20 $(FLAGS_$(CONFIG)) -fPIC -fno-semantic-interposition -Wall -Wextra -Wshadow -Wconversion \
                -Wnon-virtual-dtor -Woverloaded-virtual -MMD -MP $(CXXFLAGS)
# Child processes in simulation tests write their counts with __gcov_dump() (tests/simulation/child.h).
ALL_LDFLAGS  := $(filter -fsanitize=% --coverage,$(FLAGS_$(CONFIG))) \
                $(if $(filter coverage,$(CONFIG)),-Wl$(COMMA)-u$(COMMA)__gcov_dump) $(LDFLAGS)
TLS_LIBS     := $(if $(filter 1,$(HAVE_TLS)),-lssl -lcrypto)
VERBS_LIBS   := $(if $(filter 1,$(HAVE_RDMA)),-lrdmacm -libverbs)# for direct callers: tests, bench/limits
RDMA_LIBS    := $(if $(filter 1,$(LINK_RDMA)),$(VERBS_LIBS))
LIBS         := $(TLS_LIBS) $(RDMA_LIBS) -lev -lfmt -pthread $(LDLIBS)

# ---- what is built from what --------------------------------------------------------------------
# Objects are linked in this order, which does not depend on the builder's locale.
sources = $(sort $(wildcard $(1)))
LIB_SRC := $(call sources,ae/*/*.cc conn/*/*.cc conn/*/*/*.cc)
LIB_SRC := $(filter-out $(if $(filter 0,$(HAVE_RDMA)),conn/rdma/%) $(if $(filter 0,$(HAVE_TLS)),conn/tls/%),$(LIB_SRC))
KV_SRC      := $(call sources,examples/kv_server/*.cc)
MANUAL_SRC  := $(call sources,programs/manual/*.cc)# manual pages and completion, generated from options
SERVICE_SRC := $(call sources,programs/service/*.cc)# shared by server programs
SERVER_SRC  := $(filter-out examples/kv_server/cli_%,$(KV_SRC)) $(SERVICE_SRC)
CLI_SRC     := $(filter examples/kv_server/cli_% examples/kv_server/resp%,$(KV_SRC))
PERF_SRC    := $(call sources,programs/conn_perf/*.cc)
C_SRC       := $(call sources,bindings/c/*.cc)
PROXY_SRC   := $(call sources,programs/proxy/*.cc)
DOCTOR_SRC  := $(call sources,programs/doctor/*.cc)
# TESTS=library leaves out the programs and their tests.
EXAMPLES_TESTED := $(if $(filter library,$(TESTS)),,$(filter-out %_main.cc,$(KV_SRC) $(PERF_SRC) $(PROXY_SRC) $(DOCTOR_SRC)) $(SERVICE_SRC) $(MANUAL_SRC))
# Grouped by what they test; those of the simulation are in tests/simulation/rules.mk.
UNIT_TESTS  := $(wildcard $(patsubst %,tests/%/*_test.cc,ae conn conformance drop_ins examples rdma shm tcp tls))
ifeq ($(CONFIG) $(TESTS),asan library)# used by `make test-ci` beside the simulation; valgrind runs the rest there
UNIT_TESTS  := $(filter tests/conformance/% tests/tcp/% tests/tls/%,$(UNIT_TESTS))
endif
TEST_SRC    := $(UNIT_TESTS) $(wildcard tests/support/*.cc) $(C_SRC) $(EXAMPLES_TESTED)
ifeq ($(CONFIG),tsan)# only tests that start threads, directly or through a helper
TEST_SRC    := $(filter-out %_test.cc,$(TEST_SRC)) $(shell grep -lE 'std::j?thread|std::async|EchoThread|LoopThread|LoopGroup|GroupServer' $(UNIT_TESTS))
endif
# The parts of the modules that need no server; its malloc() is only for modules.
TEST_SRC    += $(addprefix bindings/drop_ins/redis/,errand.cc host.cc layout.cc load.cc releases.cc symbols.cc type.cc)
TEST_SRC    += tests/programs/footprint.cc
ifeq ($(TESTS),library)
TEST_SRC    := $(filter-out tests/examples/% $(shell grep -lF '"examples/' $(UNIT_TESTS)),$(TEST_SRC))
endif
FUZZ_SRC    := $(wildcard tests/fuzz/fuzz_*.cc)
# The simulation has tests for TLS over RDMA, so it needs both.
SIM_TESTS   := $(if $(filter 11,$(HAVE_TLS)$(HAVE_RDMA)),sim-tests)
FUZZ_SRC    := $(filter-out $(if $(SIM_TESTS),,%_simulation.cc),$(FUZZ_SRC))
# Headers for programs; additional ones for authors of transports; and those that only these include. All other
# headers are internal and are not installed.
AUTHOR_HEADERS := $(filter-out conn/kit/probes.h,$(wildcard conn/kit/*.h conn/spi/*.h)) \
  $(addprefix conn/core/,acceptor_base.h connection_set.h make_connection.h pending_connection.h queued_loop.h refusals.h transport.h) $(addprefix conn/url/,option_table.h spin_option.h)
INNER_INCLUDED := ae/core/fork.h ae/core/handler_slot.h conn/lists/dial.h conn/lists/race.h $(addprefix conn/core/,arrival_source.h connection_base.h connection_block.h connection_core.h set_entry.h spurious_wakeups.h)
PUBLIC_HEADERS := $(wildcard ae/*.h conn/*.h conn/co/*.h conn/transports/*.h conn/*/type.h conn/tcp/*_type.h conn/tcp/settings.h conn/tcp/socket.h) \
  conn/tls/engine/errc.h conn/tls/engine/role.h $(AUTHOR_HEADERS) $(INNER_INCLUDED)
PUBLIC_HEADERS := $(filter-out $(if $(filter 0,$(HAVE_RDMA)),conn/rdma/%) $(if $(filter 0,$(HAVE_TLS)),conn/tls/%),$(PUBLIC_HEADERS))

# Included as "adapters/..." and "c/aeconn.h", in this tree by -Ibindings.
C_HEADER := bindings/c/aeconn.h
PYTHON_FILES := $(wildcard bindings/python/aeconn/*.py) bindings/python/aeconn/py.typed
PYTHON_PROJECT := $(addprefix bindings/python/,pyproject.toml setup.py README.md LICENSE)
# They need third-party libraries and are compiled by their tests.
ADAPTERS := $(wildcard bindings/adapters/*.h)
# Installed because other headers include them: tools/site/inner says why the site does not describe them.
INNER_HEADERS = $(wildcard $(shell sed -n 's/^\([a-z][^ |]*\).*/\1 bindings\/\1/p' tools/site/inner))
SITE_HEADERS  = $(filter-out $(INNER_HEADERS),$(PUBLIC_HEADERS) $(ADAPTERS)) $(C_HEADER)
SITE_PAGES := README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md $(wildcard docs/*.md) bench/peers.md

obj = $(patsubst %.cc,$(OUT)/obj/%.o,$(1))
# Coverage measures the library; its users come from the release build, and the library is linked first, so that
# functions in headers come from the coverage build.
ifeq ($(CONFIG),coverage)
obj = $(foreach source,$(1),$(if $(filter ae/% conn/%,$(source)),$(OUT),build)/obj/$(source:.cc=.o))
LIBRARY_FIRST := -Wl,--whole-archive $(OUT)/libaeconn.a -Wl,--no-whole-archive
endif
# JOINED=yes compiles the library, kv-server and kv-cli from a few generated sources, each of which includes many: less
# time for the first build, but a change compiles a whole group. `make demo` does so in a fresh tree. The
# library is complete, but the archive's members are other ones; without JOINED everything is compiled anew.
# conn/rdma/device/libraries.cc undefines macros of libibverbs.
ifeq ($(JOINED),yes)
JOINED_SRC := $(sort $(filter-out %_main.cc conn/rdma/device/libraries.cc,$(LIB_SRC) $(SERVER_SRC) $(CLI_SRC) $(MANUAL_SRC)))
JOINED_base    := ae/% conn/kit/% conn/spi/% conn/url/%
JOINED_sockets := conn/tcp/% conn/shm/%
JOINED_tls     := conn/tls/%
JOINED_parts   := $(addprefix conn/rdma/,device/% memory/% protocol/% config/% loop/%)
JOINED_rdma    := conn/rdma/%
JOINED_layer   := conn/%# what the groups above do not have
JOINED_manual  := programs/manual/%
JOINED_shared  := programs/service/% examples/kv_server/resp%
JOINED_cli     := examples/kv_server/cli_%
JOINED_server  := examples/%
GROUPS := base sockets tls parts rdma layer manual shared cli server
$(foreach group,$(GROUPS),$(eval joined_$(group) := $(filter $(JOINED_$(group)),$(JOINED_SRC)))\
  $(eval JOINED_SRC := $(filter-out $(joined_$(group)),$(JOINED_SRC))))
GROUPS := $(foreach group,$(GROUPS),$(if $(joined_$(group)),$(group)))
group = $(strip $(foreach each,$(GROUPS),$(if $(filter $(1),$(joined_$(each))),$(each))))
obj = $(sort $(foreach source,$(1),$(OUT)/obj/$(or $(addprefix joined/,$(call group,$(source))),$(source:.cc=)).o))
$(GROUPS:%=$(OUT)/obj/joined/%.cc): $(OUT)/obj/joined/%.cc: force
	@mkdir -p $(@D); printf '#include "%s"\n' $(joined_$*) >$@.new; cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(GROUPS:%=$(OUT)/obj/joined/%.o): %.o: %.cc $(OUT)/flags
	@echo "  CXX  $<"
	$(Q)$(CXX) $(ALL_CPPFLAGS) $(EXTRA) $(ALL_CXXFLAGS) $(LIGHTER) -c -o $@ $<
$(GROUPS:%=$(OUT)/obj/joined/%.o): LIGHTER = -g1
joined: $(GROUPS:%=$(OUT)/obj/joined/%.o)# what tests/scripts/joined.sh compiles
.PHONY: joined
endif
STATIC   := $(OUT)/libaeconn.a
SONAME   := libaeconn.so.$(SOVERSION)
SHARED   := $(OUT)/libaeconn.so.$(VERSION)
C_SONAME := libaeconn-c.so.$(C_SOVERSION)
C_SHARED := $(OUT)/libaeconn-c.so.$(VERSION)
PROGRAMS := $(if $(filter %/server_main.cc,$(KV_SRC)),$(OUT)/kv-server) \
            $(if $(filter %/cli_main.cc,$(KV_SRC)),$(OUT)/kv-cli) \
            $(if $(filter %/conn_perf_main.cc,$(PERF_SRC)),$(OUT)/conn-perf) \
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

# Its instances of third-party templates and inline functions are not exported.
$(SHARED): $(call obj,$(LIB_SRC)) tools/libaeconn.map
	@echo "  LD   $@"
	$(Q)$(CXX) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=tools/libaeconn.map $(ALL_LDFLAGS) \
	  -o $@ $(filter %.o,$^) $(LIBS)
	@ln -sf $(@F) $(OUT)/$(SONAME) && ln -sf $(SONAME) $(OUT)/libaeconn.so

# Contains the whole library but exports only the C interface, so its C++ may change.
$(C_SHARED): $(call obj,$(C_SRC)) $(STATIC) bindings/c/libaeconn-c.map
	@echo "  LD   $@"
	$(Q)$(CXX) -shared -Wl,-soname,$(C_SONAME) -Wl,--version-script=bindings/c/libaeconn-c.map $(ALL_LDFLAGS) \
	  -o $@ $(filter %.o %.a,$^) $(LIBS)
	@ln -sf $(@F) $(OUT)/$(C_SONAME) && ln -sf $(C_SONAME) $(OUT)/libaeconn-c.so

# The module for redis-server and valkey-server, which contains the C++ library. Both names are of one file.
MODULE_SRC := $(call sources,bindings/drop_ins/redis/*.cc)
MODULES := $(OUT)/aeconn-redis.so $(OUT)/aeconn-valkey.so
modules: $(MODULES)  ## aeconn-redis.so, also named aeconn-valkey.so, for loadmodule (docs/redis.md)
.PHONY: modules
$(OUT)/aeconn-redis.so: $(call obj,$(MODULE_SRC)) $(STATIC) bindings/drop_ins/redis/exports.map
	@echo "  LD   $@"
	$(Q)$(CXX) -shared -static-libstdc++ -static-libgcc $(ALL_LDFLAGS) -Wl,--as-needed \
	  -Wl,--version-script=bindings/drop_ins/redis/exports.map -o $@ $(filter %.o %.a,$^) $(LIBS)
$(OUT)/aeconn-valkey.so: $(OUT)/aeconn-redis.so
	@ln -sf $(<F) $@

memcached: $(C_SHARED)  ## Debian's memcached with `-o aeconn=URL`, into build/memcached (docs/memcached.md)
	@AECONN_BUILD=$(OUT) bindings/drop_ins/memcached/build
.PHONY: memcached

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

# Documentation generated by the programs.
PAGES := $(patsubst $(OUT)/%,$(OUT)/pages/%,$(filter $(OUT)/%,$(PROGRAMS)))
OPTIONS_PAGE := $(if $(filter %/aeconn-doctor,$(PROGRAMS)),$(OUT)/pages/conn.7)
pages: $(PAGES:%=%.1) $(PAGES) $(OPTIONS_PAGE)  ## manual pages and completions of the programs, into build/pages
# Any program could generate this page: its content is in the library's tables.
$(OUT)/pages/conn.7: $(OUT)/aeconn-doctor
	@mkdir -p $(@D)
	$(Q)$< --write-page conn >$@
$(OUT)/pages/%.1: $(OUT)/%
	@mkdir -p $(@D)
	$(Q)$< --write-page man >$@
$(OUT)/pages/%: $(OUT)/%
	@mkdir -p $(@D)
	$(Q)$< --write-page bash >$@

# Objects built with other flags or another compiler are rebuilt.
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

# Headers of the standard library and of libfmt are compiled once for the library, and once for kv-server, kv-cli and what
# all programs share, whose flags differ: half of a compilation is reading them. Not with ccache and clang++, whose builds
# also show a missing include.
PRECOMPILES := $(if $(JOINED)$(findstring clang,$(CXX))$(findstring ccache,$(CXX) $(shell command -v $(CXX))),,yes)
precompiled = $(if $(PRECOMPILES),$(OUT)/obj/precompiled/$(1).h)
# libaeconn.so exports only what AECONN_API marks (ae/abi.h) and tools/libaeconn.map lists. Programs here are linked
# statically and can use everything.
$(call obj,$(LIB_SRC)): EXTRA = -fvisibility=hidden $(addprefix -include ,$(call precompiled,library))
PROGRAM_SRC := $(filter-out %_main.cc,$(KV_SRC) $(SERVICE_SRC) $(MANUAL_SRC))# main files have other flags
$(call obj,$(PROGRAM_SRC)): EXTRA = $(addprefix -include ,$(call precompiled,programs))
ifneq ($(PRECOMPILES),)
$(call obj,$(LIB_SRC)): $(call precompiled,library).gch
$(call obj,$(PROGRAM_SRC)): $(call precompiled,programs).gch
$(call precompiled,library).gch: EXTRA = -fvisibility=hidden
$(call precompiled,programs).gch: EXTRA =
$(call precompiled,library).gch $(call precompiled,programs).gch: tools/precompiled.h $(OUT)/flags
	@mkdir -p $(@D)
	@echo "  CXX  $@"
	$(Q)$(CXX) $(ALL_CPPFLAGS) $(EXTRA) $(ALL_CXXFLAGS) -x c++-header -o $@ $<
	@cp $< $(basename $@)
endif

# These files mainly parse command-line options and do not process requests.
$(OUT)/obj/examples/%_main.o $(OUT)/obj/programs/%_main.o $(call obj,$(MANUAL_SRC)): LIGHTER = $(if $(filter debug coverage,$(CONFIG)),,-O1 -g1)

# ---- for other programs and loops ---------------------------------------------------------------
drop-ins:  ## all drop-ins for other hosts whose packages are installed; names the others
	@$(MAKE) $(C_SHARED) $(OUT)/aeconn-proxy
	@rm -f $(OUT)/not-built; for module in $(MODULES); do \
	  $(MAKE) $$module || echo "not built: $$module: see what failed above" >>$(OUT)/not-built; done
	@$(MAKE) adapter-programs
	@tests/adapters/programs $(OUT) || [ $$? = 77 ]
	@sed 's/^SKIPPED: /not built: /' $(OUT)/tests/adapters/missing
	@[ ! -e $(OUT)/not-built ] || { cat $(OUT)/not-built; exit 1; }
.PHONY: drop-ins

# ---- trying and testing -------------------------------------------------------------------------
# Only sources that are compiled alone leave objects in obj/ae: a demo again, or one that was interrupted, joins, too.
DEMO_JOINS := $(if $(wildcard $(OUT)/obj/ae),,JOINED=yes)
demo:  ## kv-server and kv-cli over TCP, Unix sockets and RDMA, with a table at the end
	@tools/packages build
# Installing the microVM's packages takes as long as compiling and mostly waits: run both in parallel.
	@tools/packages demo & packages=$$!; $(MAKE) $(DEMO_JOINS) $(OUT)/kv-server $(OUT)/kv-cli; built=$$?; \
	  wait $$packages && exit $$built
	@examples/demo

test:  ## all tests, inside and outside of the microVM
	@tools/packages test
	@$(MAKE) all modules unit-tests models $(SIM_TESTS) bench-programs $(if $(SIM_TESTS),$(OUT)/bench/messages-simulation)
	@$(MAKE) adapter-programs
	-@$(MAKE) -k bench-peers-programs
	@tests/adapters/programs $(OUT) || true
	@tests/drop_ins/servers || true
	@tests/run $(OUT)

test-long:  ## tests that take longer: sanitizers, churn, fuzzing by executions, soak, ...
	@$(MAKE) sanitize-builds
	@$(MAKE) modules models $(SIM_TESTS) programs fuzzers-too
	@tests/adapters/programs $(OUT) || true
	@tests/drop_ins/servers all || true
	@tests/long

test-ci:  ## what CI runs besides `make test`: the same limited by seconds, in part under sanitizers
	@tools/packages test
	@$(MAKE) all modules unit-tests $(SIM_TESTS) programs
	@tests/long ci

sanitize: sanitize-builds  ## all tests under ASan+LSan+UBSan, threaded ones under TSan, memcheck
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
soak: programs  ## mixed transports and faults for HOURS=1, in the microVM's time or with REALTIME=yes
	@tools/packages test
	@tests/soak $(if $(REALTIME),real,guest) $(HOURS)

coverage:  ## lines and branches of ae/ and conn/ that the tests run; fails below 95 % and 85 %
	@tools/packages coverage
	@$(MAKE) all unit-tests
	@$(MAKE) build/coverage/kv-server build/coverage/kv-cli build/coverage/conn-perf unit-tests CONFIG=coverage
	$(if $(SIM_TESTS),@$(MAKE) $(SIM_TESTS) CONFIG=coverage)
	@tests/coverage build/coverage
# WORKERS=2: two changes at a time; SIMULATION=no: only the unit tests run.
mutants:  ## one line of ae/ and conn/ changed at a time: COUNT=500 SEED=1 FILES= BASE=commit AGAIN=log BUDGET=20 THOROUGH=yes; fails below 90 % noticed
	@tools/packages test
	@tests/mutants
.PHONY: sanitize sanitize-builds soak coverage programs mutants

# Test programs other than unit tests: one file each, plus shared parts.
PROGRAM_MAINS := churn soak
programs: $(PROGRAM_MAINS:%=$(OUT)/tests/%)
$(PROGRAM_MAINS:%=$(OUT)/tests/%): $(OUT)/tests/%: $(OUT)/obj/tests/programs/%.o $(OUT)/obj/tests/programs/footprint.o $(STATIC)
	@mkdir -p $(@D)
	$(call LINK)

# Catch2 3 is a library with different headers; Catch2 2 is header-only.
HASH  := \#
CATCH := $(shell echo '$(HASH)include <catch2/catch_all.hpp>' | $(CXX) $(CPPFLAGS) -E -x c++ - >/dev/null 2>&1 && echo 3)
$(OUT)/obj/tests/%.o: EXTRA = $(if $(CATCH),-DAECONN_CATCH2_V3)
# Tests are most of a build: these flags halve their compile time; debuggers only lose the names of local variables.
# Undefined behaviour is checked in the code that tests call, not in the tests.
$(OUT)/obj/tests/%.o: LIGHTER = $(if $(filter debug coverage,$(CONFIG)),,$(if $(filter %_test.cc,$<),-O0,-O1) -g1)
$(OUT)/obj/tests/%_test.o: LIGHTER = $(if $(filter debug coverage,$(CONFIG)),,-O0 -g1) $(if $(filter asan,$(CONFIG)),-fno-sanitize=undefined)
# Third-party headers used by tests, compiled once.
PRECOMPILED := $(if $(PRECOMPILES),$(OUT)/obj/tests/precompiled.h)
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
unit-tests: $(OUT)/tests/unit-tests  ## only builds build/tests/unit-tests
$(OUT)/tests/unit-tests: $(call obj,$(TEST_SRC)) $(STATIC)
	@mkdir -p $(@D)
	$(call LINK,,$(if $(CATCH),-lCatch2) $(VERBS_LIBS))

include tests/simulation/rules.mk
include tests/models/rules.mk
adapter-programs:  ## only builds the programs that test adapters for loops and asio
	@$(MAKE) ADAPTERS_TESTED=yes $(OUT)/tests/adapters/missing
.PHONY: adapter-programs
include tests/adapters/rules.mk

fuzz:  ## fuzzes each tests/fuzz/fuzz_*.cc for SECONDS=60, or until RUNS=N in total
	@$(MAKE) fuzzers-too
	@tests/fuzz/run build/fuzz $(SECONDS) $(RUNS)
.PHONY: fuzzers-too
fuzzers-too:
	@$(MAKE) fuzzers CONFIG=fuzz CXX=$(if $(findstring clang,$(CXX)),$(CXX),clang++)
fuzzers: $(FUZZERS)
# FUZZ_EXTRA_name: additional sources for fuzz_name.cc besides those of the library and kv-server.
.SECONDEXPANSION:
$(FUZZERS): $(OUT)/fuzz_%: $(OUT)/obj/tests/fuzz/fuzz_%.o $$(call obj,$$(FUZZ_EXTRA_$$*)) \
            $(call obj,$(filter-out %_main.cc,$(KV_SRC)) $(SERVICE_SRC)) $(STATIC)
	$(call LINK,-fsanitize=fuzzer $(FUZZ_LINK),$(FUZZ_LIBS))

check-redis: all modules  ## redis-server's own test suite, with the module and without it
	@tests/drop_ins/suite redis
check-valkey: all modules  ## the same for valkey-server; VALKEY=folder: also tests against a Valkey built with RDMA
	@tests/drop_ins/suite valkey
	$(if $(VALKEY),@tests/valkey/run $(VALKEY))

check-memcached: memcached  ## memcached's own test suite, with the patch and without it, over aeconn and not
	@AECONN_BUILD=$(OUT) tests/drop_ins/memcached_suite
.PHONY: check-memcached
pgbouncer: $(C_SHARED)  ## pgbouncer of Debian's source with URLs, of this machine's release or RELEASE=trixie (docs/pgbouncer.md)
	@AECONN_BUILD=$(OUT) bindings/drop_ins/pgbouncer/build $(RELEASE)
check-pgbouncer: $(C_SHARED)  ## pgbouncer's own tests, with the patch and without it
	@AECONN_BUILD=$(OUT) tests/drop_ins/pgbouncer_suite
.PHONY: pgbouncer check-pgbouncer

check-distributions:  ## unit tests, simulation, demo on other releases: DISTRIBUTIONS="trixie sid"; as root
	@tools/packages distributions
	@tests/distributions
deb:  ## Debian packages in clean roots, into build/packages: DISTRIBUTIONS="bookworm trixie sid"; as root
	@tools/packages distributions
	@tools/deb
check-aarch64:  ## compiled for AArch64: unit tests, simulation, programs in an emulator (docs/testing.md)
	@tools/packages aarch64
	@tests/aarch64/run --build
	@tests/aarch64/run
.PHONY: check-distributions deb check-aarch64

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

$(OUT)/bench/move $(OUT)/bench/descriptor: $(OUT)/bench/%: $(OUT)/obj/bench/%.o $(STATIC)
	@mkdir -p $(@D)
	$(call LINK)

$(OUT)/bench/handshakes: $(call obj,bench/handshakes.cc) $(STATIC)
	@mkdir -p $(@D)
	$(call LINK)

# The figures of each suite are kept in build/bench/*.jsonl; the report uses all available ones. The status is 0
# whatever the figures are, even if a suite could not run.
bench:  ## comparisons with others on the host and over soft-RoCE; build/bench/report.md (VALKEY=: with Valkey)
	@tools/packages bench || echo 'What is missing is left out of the benchmarks.'
	@$(MAKE) all bench-programs bench-programs-loop
	-@$(BENCH_RUN) host
	-@$(BENCH_RUN) softroce
	-@$(BENCH_RUN) report
bench-exact:  ## instructions per request over every transport; build/bench/report.md
	@tools/packages bench || echo 'What is missing is left out of the benchmarks.'
	@$(MAKE) all bench-programs
	-@$(BENCH_RUN) exact
	-@$(BENCH_RUN) report
bench-messages:  ## instructions of user space for a message, by callgrind, on the host and over soft-RoCE
	@tools/packages bench || echo 'What is missing is left out of the benchmarks.'
	@$(MAKE) all bench-programs $(OUT)/bench/messages-simulation
	-@bench/messages/simulation --functions $(OUT)/bench/messages-simulation
	-@$(BENCH_RUN) messages
	-@$(BENCH_RUN) messages-rdma
bench-programs-loop: $(OUT)/bench/loop-bench
BENCH_RUN = AECONN_BUILD=$(OUT) VALKEY=$(VALKEY) CXX='$(CXX)' bench/run
.PHONY: bench bench-exact bench-messages bench-programs-loop

# What a message costs over the simulation's devices. The library's objects come first, so that functions in headers
# are those of the library's build, not of the tests'.
MESSAGES_SRC := bench/messages/simulation.cc $(wildcard tests/simulation/*.cc) \
                $(patsubst %,tests/support/%.cc,main any_loop testing certificates local_transport memory_transport pipe_transport)
$(OUT)/bench/messages-simulation: LIBS := $(filter-out $(RDMA_LIBS),$(LIBS))
$(OUT)/bench/messages-simulation: LIBRARY_FIRST := $(filter-out %/conn/rdma/device/libraries.o %/conn/rdma/device/numa.o,$(call obj,$(LIB_SRC)))
$(OUT)/bench/messages-simulation: $(call obj,$(MESSAGES_SRC)) $(STATIC)
	@mkdir -p $(@D)
	$(call LINK,$(SIM_WRAP),$(if $(CATCH),-lCatch2))

bench-micro: $(OUT)/bench/micro  ## times of small parts, with Google Benchmark
	@$<
bench-instructions: $(OUT)/bench/micro  ## the same parts counted in instructions, under valgrind
	@bench/instructions $<
bench-loop: $(OUT)/bench/loop-bench  ## the event loop against bare libev and bare epoll
	@$<
bench-move: $(OUT)/bench/move  ## what moving a connection to another loop costs
	@$<
bench-handshakes: $(OUT)/bench/handshakes  ## how long a loop stalls while 500 TLS handshakes are under way
	@$<
bench-descriptor: $(OUT)/bench/descriptor  ## what a connection loses as a descriptor
	@$<
.PHONY: bench-micro bench-instructions bench-loop bench-move bench-handshakes bench-descriptor

# ---- the site -----------------------------------------------------------------------------------
site:  ## API reference from the headers, with the guides, into build/site (docs/testing.md)
	@tools/packages site
	@rm -rf $(OUT)/site && mkdir -p $(OUT)/site
	$(Q)(cat tools/site/Doxyfile; echo 'INPUT = $(SITE_PAGES) $(SITE_HEADERS) tools/site/authors.dox'; \
	  echo 'HTML_EXTRA_FILES = LICENSE docs/echo_server.cc docs/echo_server_co.cc'; \
	  echo 'PROJECT_NUMBER = $(VERSION)'; echo 'OUTPUT_DIRECTORY = $(OUT)/site') \
	  | SITE_PAGES='$(SITE_PAGES)' doxygen -
	@python3 -B tools/site/finish.py $(OUT)/site
	@python3 -B tools/site/headers.py tools/site/inner $(OUT)/site $(patsubst bindings/%,%,$(PUBLIC_HEADERS) $(ADAPTERS) $(C_HEADER))
	@echo '$(OUT)/site/index.html'
check-site: site  ## follows every link of the site, and takes pictures of pages in a browser
	@tools/packages check-site
	@tests/site/run $(OUT)/site $(OUT)/site-pictures
.PHONY: site check-site

print-author-headers print-inner-headers print-public-headers:
	@echo $(if $(filter %author-headers,$@),$(AUTHOR_HEADERS),$(if $(filter %inner-headers,$@),$(INNER_INCLUDED),$(PUBLIC_HEADERS)))
.PHONY: print-author-headers print-inner-headers print-public-headers
headers: $(PUBLIC_HEADERS:%=$(OUT)/headers/%.ok)  ## each public header compiles alone
$(OUT)/headers/%.ok: % $(wildcard ae/*.h ae/*/*.h conn/*.h conn/*/*.h conn/*/*/*.h) $(OUT)/flags
	@mkdir -p $(@D)
	$(Q)echo '#include "$*"' | $(CXX) $(ALL_CPPFLAGS) $(filter-out -MMD -MP,$(ALL_CXXFLAGS)) -fsyntax-only -x c++ -
	@touch $@

OUR_CODE = $(shell find ae conn bindings examples programs tests bench -name '*.cc' -o -name '*.h' -o -name '*.c' 2>/dev/null)
format:  ## runs clang-format on all code
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
# bench/limits/ does not use the library; --as-needed also omits the library's dependencies.
LEAN := -Wl,--as-needed
HISTOGRAM := $(call obj,programs/conn_perf/histogram.cc)
BENCH_PROGRAMS := $(patsubst %,$(OUT)/bench/%,epoll-echo shm-echo co-echo c-echo request-load $(if $(TLS_LIBS),tls-echo) $(if $(VERBS_LIBS),verbs-echo))
.PHONY: bench-programs
bench-programs: $(BENCH_PROGRAMS)  ## programs for comparison and load generators, into build/bench/
$(BENCH_PROGRAMS): | $(OUT)/bench/
$(OUT)/bench/:
	@mkdir -p $@
$(OUT)/bench/epoll-echo: $(call obj,$(addprefix bench/limits/,epoll_echo.cc sockets.cc))
	$(call LINK,$(LEAN))
$(OUT)/bench/shm-echo: $(call obj,$(addprefix bench/limits/,shm_echo.cc sockets.cc))
	$(call LINK,$(LEAN))
$(OUT)/bench/co-echo: $(call obj,bench/co_echo.cc) $(STATIC)
	$(call LINK)
$(OUT)/bench/c-echo: examples/c/echo_server.c bindings/c/aeconn.h $(C_SHARED)
	@echo "  CC   $@"
	$(Q)$(CC) -std=c11 $(FLAGS_$(CONFIG)) -Ibindings/c $(ALL_LDFLAGS) -o $@ $< $(C_SHARED) -Wl,-rpath,'$$ORIGIN/..'
$(OUT)/bench/tls-echo: $(call obj,$(addprefix bench/limits/,tls_echo.cc sockets.cc))
	$(call LINK,$(LEAN))
$(OUT)/bench/verbs-echo: $(call obj,$(wildcard bench/limits/verbs_*.cc) bench/limits/sockets.cc) $(HISTOGRAM)
	$(call LINK,$(LEAN),$(VERBS_LIBS))
$(OUT)/bench/request-load: $(call obj,$(wildcard bench/request_load*.cc) $(filter examples/kv_server/resp%,$(KV_SRC))) $(HISTOGRAM) $(STATIC)
	$(call LINK)
# The same server on this library and on others (bench/peers.md).
PEERS := $(patsubst %,$(OUT)/bench/%-server,aeconn asio libuv libevent)
$(PEERS): $(OUT)/bench/%-server: $(OUT)/obj/bench/peers/%_server.o | $(OUT)/bench/
	$(call LINK,$(LEAN),$(PEER_LIBS) -lssl -lcrypto)
$(OUT)/bench/aeconn-server: $(STATIC)
$(OUT)/bench/libuv-server: PEER_LIBS := -luv
$(OUT)/bench/libevent-server: PEER_LIBS := -levent_openssl -levent_core
bench-peers:  ## the same servers on this library, asio, libuv and libevent: rate, CPU, system calls, instructions
	@tools/packages bench || echo 'What is missing is left out of the benchmarks.'
	@$(MAKE) $(OUT)/bench/request-load $(OUT)/bench/aeconn-server
	-@$(MAKE) -k bench-peers-programs
	-@$(BENCH_RUN) peers
	-@$(BENCH_RUN) peers-counted
bench-peers-programs: $(PEERS)  ## only builds them; their libraries are in Debian
.PHONY: bench-peers bench-peers-programs

# ---- installing ---------------------------------------------------------------------------------
D := $(DESTDIR)
fill = sed -e 's|@PREFIX@|$(PREFIX)|g; s|@LIBDIR@|$(LIBDIR)|g; s|@VERSION@|$(VERSION)|g' \
           -e 's|@PRIVATE_LIBS@|$(strip $(LIBS))|g; s|@SONAME@|$(SONAME)|g; s|@C_SONAME@|$(C_SONAME)|g' \
           -e 's|@PUBLIC_LIBS@|$(strip -laeconn $(if $(INSTALLED_SHARED),,$(LIBS)))|' \
           -e 's|@LIB_LIST@|$(subst $() ,;,$(strip $(LIBS)))|' tools/$(1).in >$(OUT)/$(notdir $(2)) && \
       install -m 644 $(OUT)/$(notdir $(2)) $(D)$(LIBDIR)/$(2)

# If only the static library is installed, its .pc file lists the dependencies as public.
LINKAGE ?= both
$(if $(filter both static shared,$(LINKAGE)),,$(error LINKAGE=$(LINKAGE): there is both, static, shared))
INSTALLED_STATIC := $(if $(filter shared,$(LINKAGE)),,$(STATIC))
INSTALLED_SHARED := $(if $(filter static,$(LINKAGE)),,$(SHARED) $(C_SHARED))
# `install` sets modes regardless of the umask; mkdir and shell redirections would not.
install-libraries: $(INSTALLED_STATIC) $(INSTALLED_SHARED)  ## only headers and libraries, with pkg-config's and CMake's files
	@install -d -m 755 $(D)$(PREFIX)/include $(D)$(LIBDIR)/pkgconfig $(D)$(LIBDIR)/cmake/aeconn
	@for h in $(PUBLIC_HEADERS) $(ADAPTERS); do install -D -m 644 $$h $(D)$(PREFIX)/include/aeconn/$${h#bindings/} || exit 1; done
	$(if $(INSTALLED_STATIC),install -m 644 $(STATIC) $(D)$(LIBDIR))
ifneq ($(INSTALLED_SHARED),)
	install -m 755 $(SHARED) $(D)$(LIBDIR)
	ln -sf $(notdir $(SHARED)) $(D)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(D)$(LIBDIR)/libaeconn.so
	install -m 644 $(C_HEADER) $(D)$(PREFIX)/include
	install -m 755 $(C_SHARED) $(D)$(LIBDIR)
	ln -sf $(notdir $(C_SHARED)) $(D)$(LIBDIR)/$(C_SONAME)
	ln -sf $(C_SONAME) $(D)$(LIBDIR)/libaeconn-c.so
	@$(call fill,aeconn-c.pc,pkgconfig/aeconn-c.pc)
endif
	@$(call fill,aeconn.pc,pkgconfig/aeconn.pc)
	@$(call fill,aeconnConfig.cmake,cmake/aeconn/aeconnConfig.cmake)
	@$(call fill,aeconnConfigVersion.cmake,cmake/aeconn/aeconnConfigVersion.cmake)
.PHONY: install-libraries

install-python:  ## only the Python package, where PYTHON=python3 finds it below PREFIX, or into PYTHONDIR
	@folder='$(D)$(PYTHONDIR)'; echo "Python: $$folder/aeconn" && install -d -m 755 "$$folder/aeconn" && \
	  install -m 644 $(PYTHON_FILES) "$$folder/aeconn" && tools/dist-info $(VERSION) "$$folder" $(notdir $(PYTHON_FILES))
.PHONY: install-python

# In their folders of the tree, so that their links to each other work; links to sources become text.
GUIDES := $(SITE_PAGES) LICENSE $(wildcard docs/*.cc $(addprefix examples/,README.md CMakeLists.txt *.cc *.h *.py c/*.c) \
             $(addprefix bindings/drop_ins/,memcached/*.* pgbouncer/*.*))
SOURCES_LINKED := ae|bindings/[^d]|bindings/drop_ins/redis|conn|examples/kv_server|programs|recipes|tests|tools|REUSE\.toml
install-pages:  ## only the guides and the examples, into DOCDIR=PREFIX/share/doc/aeconn
	@for page in $(GUIDES); do install -D -m 644 $$page $(D)$(DOCDIR)/$$page || exit 1; done
	@sed -Ezi 's,\[([^][]*)\]\((\.\./($(SOURCES_LINKED))[^)]*|kv_server)\),\1,g' $(patsubst %,$(D)$(DOCDIR)/%,$(filter %.md,$(GUIDES)))
.PHONY: install-pages

install: all modules install-libraries install-python install-pages  ## into PREFIX=/usr/local, below DESTDIR= if given
	@install -d -m 755 $(D)$(PREFIX)/bin $(D)$(LIBDIR)/aeconn
	install -m 755 $(OUT)/aeconn-redis.so $(D)$(LIBDIR)/aeconn
	@ln -sf aeconn-redis.so $(D)$(LIBDIR)/aeconn/aeconn-valkey.so
	$(if $(PROGRAMS),install -m 755 $(PROGRAMS) $(D)$(PREFIX)/bin)
	@install -d -m 755 $(D)$(MANDIR)/man1 $(D)$(MANDIR)/man7 $(D)$(COMPLETIONS)
	$(if $(OPTIONS_PAGE),install -m 644 $(OPTIONS_PAGE) $(D)$(MANDIR)/man7)
	$(if $(PAGES),install -m 644 $(PAGES:%=%.1) $(D)$(MANDIR)/man1)
	$(if $(PAGES),install -m 644 $(PAGES) $(D)$(COMPLETIONS))

uninstall:  ## removes what install installed
	rm -rf $(D)$(PREFIX)/include/aeconn $(D)$(LIBDIR)/cmake/aeconn $(D)$(LIBDIR)/pkgconfig/aeconn.pc
	rm -rf $(D)$(LIBDIR)/aeconn $(D)$(DOCDIR)
	folder='$(D)$(PYTHONDIR)'; rm -rf "$$folder/aeconn" "$$folder"/aeconn-[0-9]*.dist-info
	rm -f $(D)$(LIBDIR)/libaeconn-c.* $(D)$(LIBDIR)/pkgconfig/aeconn-c.pc $(D)$(PREFIX)/include/aeconn.h
	rm -f $(D)$(MANDIR)/man7/conn.7
	rm -f $(PAGES:$(OUT)/pages/%=$(D)$(MANDIR)/man1/%.1) $(PAGES:$(OUT)/pages/%=$(D)$(COMPLETIONS)/%)
	rm -f $(D)$(LIBDIR)/libaeconn.* $(PROGRAMS:$(OUT)/%=$(D)$(PREFIX)/bin/%)

# Built in a copy: setuptools writes into the folder of what it builds. The build needs no network.
WHEEL := $(OUT)/aeconn-$(VERSION)-py3-none-any.whl
wheel: $(WHEEL)  ## the Python package for pip install, into build/; it needs PYTHON=python3 with setuptools and wheel
$(WHEEL): Makefile $(PYTHON_FILES) $(PYTHON_PROJECT)
	@rm -rf $(OUT)/wheel && mkdir -p $(OUT)/wheel/aeconn && cp -L $(PYTHON_PROJECT) $(OUT)/wheel && cp $(PYTHON_FILES) $(OUT)/wheel/aeconn
	@(cd $(OUT)/wheel && $(PYTHON) -c 'from setuptools.build_meta import build_wheel; build_wheel("..")') >$(OUT)/wheel/log 2>&1 || \
	  { cat $(OUT)/wheel/log; echo 'make wheel: $(PYTHON) could not build it; it needs setuptools and wheel (python3-setuptools,' \
	    'python3-wheel in Debian); PYTHON= names another interpreter' >&2; exit 1; }
	@echo $@
.PHONY: wheel

# ---- releasing ----------------------------------------------------------------------------------
# Lists the project's files in the build, and third-party dependencies.
SBOM := $(OUT)/aeconn-$(VERSION).spdx.json
sbom: all modules  ## what the build contains and links, as SPDX 2.3 in JSON, into build/
	@tools/sbom --version $(VERSION) --cxx '$(CXX)' --out $(SBOM) \
	  --objects $(sort $(call obj,$(LIB_SRC) $(C_SRC) $(SERVER_SRC) $(CLI_SRC) $(PERF_SRC) $(PROXY_SRC) $(DOCTOR_SRC) \
	              $(MANUAL_SRC) $(MODULE_SRC))) \
	  --files $(PUBLIC_HEADERS) $(ADAPTERS) $(C_HEADER) $(PYTHON_FILES) \
	  --artefacts $(STATIC) $(SHARED) $(C_SHARED) $(MODULES) $(PROGRAMS)
reproducible:  ## builds twice in different folders and environments, and compares every installed byte
	@tools/packages reproducible || echo 'Differences, if there are any, are shown as bytes.'
	@tools/reproducible $(MAKEOVERRIDES)
check-recipes:  ## the recipes for Conan and vcpkg: five sets of options, each built from scratch
	@tools/packages test
	@tests/scripts/recipes.sh --whole
release-check:  ## what is missing for a release, one line each; REPRODUCIBLE=yes: with two builds
	@REPRODUCIBLE=$(REPRODUCIBLE) tools/release-check $(OUT)
abi:  ## interface changes of the shared libraries since the last tag, or since BASE=commit
	@tools/packages abi
	@BASE='$(BASE)' tools/abi $(MAKEOVERRIDES)
.PHONY: sbom reproducible check-recipes release-check abi

clean:  ## removes build/
	rm -rf build

help:  ## this list
	@sed -n 's/^# \( .*=.*\)/\1/p' Makefile
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-22s %s\n", $$1, $$2}'

-include $(shell find $(OUT)/obj -name '*.d' 2>/dev/null)
