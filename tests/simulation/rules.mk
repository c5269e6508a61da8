comma := ,
# build/tests/sim-tests: the library over simulated devices, linked with tests/simulation instead of
# libibverbs and librdmacm. Socket calls go through tests/simulation/sockets.cc.
SIM_SRC := $(wildcard tests/simulation/*.cc tests/simulation/tests/*.cc) $(wildcard tests/support/*.cc) \
           $(wildcard tests/conformance_*_test.cc)
SIM_SRC := $(filter-out tests/support/allocations.cc,$(SIM_SRC))
SIM_WRAP := $(patsubst %,-Wl$(comma)--wrap=%,recv send sendmsg accept4 socket connect listen bind)
.PHONY: sim-tests
sim-tests: $(OUT)/tests/sim-tests  ## only build build/tests/sim-tests
$(OUT)/tests/sim-tests: LIBS := $(filter-out $(RDMA_LIBS),$(LIBS))
$(OUT)/tests/sim-tests: $(call obj,$(SIM_SRC)) $(STATIC)
	@mkdir -p $(@D)
	$(call LINK,$(SIM_WRAP),$(if $(CATCH),-lCatch2))

# The fuzzer of its schedules. Catch2 is there for what tests/support asks of it.
FUZZ_SIM := $(OUT)/fuzz_simulation
$(FUZZ_SIM): LIBS := $(filter-out $(RDMA_LIBS),$(LIBS))
$(FUZZ_SIM): $(call obj,$(wildcard tests/simulation/*.cc) $(filter-out %/main.cc %/raw_peer.cc %/rdma_kit.cc,$(filter tests/support/%,$(SIM_SRC))))
