// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// An assert() for functions that run for each message. To save time, release builds leave it out.

#include <cassert>

/// Like assert(), but release builds do not evaluate it: only builds that set AECONN_CHECKS (debug,
/// ASan and fuzzing) do.
#ifdef AECONN_CHECKS
#define AECONN_HOT_ASSERT(condition) assert(condition)
#else
#define AECONN_HOT_ASSERT(condition) static_cast<void>(0)
#endif
