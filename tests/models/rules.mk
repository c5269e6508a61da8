# SPDX-License-Identifier: BSD-3-Clause
# build/tests/resume-model: the resume protocol as a program of its own (tests/models/resume), which
# needs no library. It runs longer than it compiles, so it is optimized more than other tests.
MODEL_SRC := $(call sources,tests/models/resume/*.cc)
$(OUT)/obj/tests/models/%.o: LIGHTER = $(if $(filter debug coverage,$(CONFIG)),,-O3)
$(OUT)/obj/tests/models/%.o: EXTRA =
.PHONY: models
models: $(OUT)/tests/resume-model  ## only build build/tests/resume-model
$(OUT)/tests/resume-model: $(call obj,$(MODEL_SRC))
	@mkdir -p $(@D)
	@echo "  LD   $@"
	$(Q)$(CXX) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)
