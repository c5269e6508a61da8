# SPDX-License-Identifier: BSD-3-Clause
# build/tests/resume-model: the resume protocol as a program of its own (tests/models/resume), and
# build/tests/bell-model: the bells of shm (tests/models/bell). They need no library. They run longer
# than they compile, so they are optimized more than other tests.
$(OUT)/obj/tests/models/%.o: LIGHTER = $(if $(filter debug coverage,$(CONFIG)),,-O3)
$(OUT)/obj/tests/models/%.o: EXTRA =
.PHONY: models
MODELS := $(patsubst %,$(OUT)/tests/%-model,resume bell)
models: $(MODELS)  ## only build build/tests/resume-model and build/tests/bell-model
$(OUT)/tests/resume-model: $(call obj,$(call sources,tests/models/resume/*.cc))
$(OUT)/tests/bell-model: $(call obj,$(call sources,tests/models/bell/*.cc))
$(MODELS):
	@mkdir -p $(@D)
	@echo "  LD   $@"
	$(Q)$(CXX) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)
