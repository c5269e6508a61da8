# SPDX-License-Identifier: BSD-3-Clause
# build/tests/adapters/*: programs that test the adapters for loops and for asio, as far as their
# packages are installed. Missing packages are listed in build/tests/adapters/missing, one per line.
# Only `make adapter-programs` looks for packages, by calling make with ADAPTERS_TESTED=yes.
ifdef ADAPTERS_TESTED
AT := $(OUT)/tests/adapters
pkg     = $(shell pkg-config --exists $(1) 2>/dev/null && echo $(1))
flags   = $(patsubst -I%,-isystem %,$(shell pkg-config --cflags $(1)))
# Empty if the header does not exist: `-E` finds what the compiler would find.
header  = $(shell echo '$(HASH)include <$(1)>' | $(CXX) $(CPPFLAGS) -E -x c++ - >/dev/null 2>&1 && echo $(1))
QT     := $(firstword $(call pkg,Qt6Core) $(call pkg,Qt5Core))
MISSING :=

# NAME SOURCE FLAGS LIBRARIES: the host's libraries come before libev, which defines some of
# libevent's names.
define adapter_program
ADAPTER_PROGRAMS += $(AT)/$(1)
$(AT)/$(1): HOST_LIBS := $(4)
$(OUT)/obj/tests/adapters/$(1).o: EXTRA := $(3)
$(OUT)/obj/tests/adapters/$(1).o: tests/adapters/$(2).cc $(OUT)/flags
$(AT)/$(1): $(OUT)/obj/tests/adapters/$(1).o
endef
# NAME IS-THERE PACKAGE FLAGS LIBRARIES
define host
ifneq (,$(2))
$(call adapter_program,loops-$(1),loops,-DHOST_$(shell echo $(1) | tr a-z A-Z) $(4),$(5))
else
MISSING += $(1):$(3)
endif
endef

$(eval $(call host,poll,yes,,,))
$(eval $(call host,libuv,$(call pkg,libuv),libuv1-dev,$(call flags,libuv),-luv))
$(eval $(call host,libevent,$(call pkg,libevent),libevent-dev,$(call flags,libevent),-levent_core))
$(eval $(call host,glib,$(call pkg,glib-2.0),libglib2.0-dev,$(call flags,glib-2.0),-lglib-2.0))
$(eval $(call host,sd_event,$(call pkg,libsystemd),libsystemd-dev,$(call flags,libsystemd),-lsystemd))
$(eval $(call host,qt,$(QT),qtbase5-dev,$(if $(QT),$(call flags,$(QT))),$(if $(QT),-l$(QT))))
# The streams over Boost's asio and over the standalone one.
WITH_SSL := $(if $(filter 1,$(HAVE_TLS)),-DWITH_SSL)
define streams
ifneq (,$(2))
$(call adapter_program,loops-$(1),loops,-DHOST_ASIO $(4))
$(call adapter_program,streams-$(1),asio_streams,$(WITH_SSL) $(4))
else
MISSING += $(1):$(3)
endif
endef
$(eval $(call streams,asio,$(call header,asio.hpp),libasio-dev,))
$(eval $(call streams,boost,$(call header,boost/asio.hpp),libboost-dev,-DAECONN_BOOST_ASIO))
ifneq (,$(and $(call header,boost/beast.hpp),$(filter 1,$(HAVE_TLS))))
$(eval $(call adapter_program,beast,asio_beast))
endif

# Mostly templates, for which optimization takes long and is not needed.
$(OUT)/obj/tests/adapters/%.o: LIGHTER = -O0 -g1
$(OUT)/obj/tests/adapters/%.o:
	@mkdir -p $(@D)
	@echo "  CXX  $< ($*)"
	$(Q)$(CXX) $(ALL_CPPFLAGS) $(EXTRA) $(ALL_CXXFLAGS) $(LIGHTER) -c -o $@ $<
$(ADAPTER_PROGRAMS): $(STATIC)
	@mkdir -p $(@D)
	@echo "  LD   $@"
	$(Q)$(CXX) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) $(STATIC) $(HOST_LIBS) $(LIBS)
# Linked so that a libevent function is found in libev: the adapter has to notice.
ifneq (,$(filter %/loops-libevent,$(ADAPTER_PROGRAMS)))
ADAPTER_PROGRAMS += $(AT)/libevent-behind-libev
$(AT)/libevent-behind-libev: $(OUT)/obj/tests/adapters/loops-libevent.o $(STATIC)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(ALL_LDFLAGS) -o $@ $< $(STATIC) $(LIBS) -levent_core
endif

.PHONY: $(AT)/missing
$(AT)/missing: $(ADAPTER_PROGRAMS)
	@printf '%s\n' $(MISSING) | sed -n 's/\(.*\):\(.*\)/SKIPPED: \1: the package \2 is not installed/p' >$@
endif
