// SPDX-License-Identifier: BSD-3-Clause
// Headers that most tests include; the Makefile precompiles this one. A test still includes what it
// uses: with ccache or clang++ there is no precompiled header.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tests/support/catch.h"
