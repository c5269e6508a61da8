# SPDX-License-Identifier: BSD-3-Clause
# build/tests/sim-tests: the library over simulated devices, linked with tests/simulation instead of
# libibverbs and librdmacm. Socket calls go through tests/simulation/sockets.cc.
SIM_SRC := $(wildcard tests/simulation/*.cc tests/simulation/tests/*.cc) $(wildcard tests/support/*.cc) \
           $(wildcard tests/conformance/conformance_*_test.cc) $(C_SRC) tests/rdma/rdma_hostile_vectors_test.cc
SIM_SRC := $(filter-out tests/support/allocations.cc tests/support/socket_calls.cc,$(SIM_SRC))
ifeq ($(TESTS),library)
SIM_SRC := $(filter-out $(addprefix tests/simulation/tests/,kv_% proxy_%),$(SIM_SRC))
else
SIM_SRC += $(filter-out %_main.cc,$(SERVER_SRC) $(PROXY_SRC))
endif
SIM_WRAP := $(patsubst %,-Wl$(COMMA)--wrap=%,recv recvmsg send sendmsg accept4 socket connect listen \
              bind mmap munmap madvise)
.PHONY: sim-tests
sim-tests: $(OUT)/tests/sim-tests  ## only build build/tests/sim-tests
$(OUT)/tests/sim-tests: LIBS := $(filter-out $(RDMA_LIBS),$(LIBS))
# A coverage build links the whole library except for the code that loads the RDMA libraries and the
# code that reads sysfs: the simulation replaces both.
ifeq ($(CONFIG),coverage)
$(OUT)/tests/sim-tests: LIBRARY_FIRST := $(filter-out %/conn/rdma/device/libraries.o %/conn/rdma/device/numa.o,$(call obj,$(LIB_SRC)))
endif
$(OUT)/tests/sim-tests: $(call obj,$(SIM_SRC)) $(STATIC)
	@mkdir -p $(@D)
	$(call LINK,$(SIM_WRAP),$(if $(CATCH),-lCatch2))

# Fuzzing of the simulation's schedules. tests/support needs Catch2's implementation, which
# fuzz_simulation.cc provides for version 2.
FUZZ_EXTRA_simulation := $(wildcard tests/simulation/*.cc) \
                         $(patsubst %,tests/support/%.cc,any_loop testing certificates local_transport memory_transport pipe_transport)
$(OUT)/fuzz_simulation: FUZZ_LINK := $(SIM_WRAP)
$(OUT)/fuzz_simulation: FUZZ_LIBS := $(if $(CATCH),-lCatch2)
$(OUT)/fuzz_simulation: LIBS := $(filter-out $(RDMA_LIBS),$(LIBS))
