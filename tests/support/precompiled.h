// SPDX-License-Identifier: BSD-3-Clause
// What most tests include of others; the Makefile compiles it once. A test includes what it uses
// all the same: with ccache or clang++ there is no such header.
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
