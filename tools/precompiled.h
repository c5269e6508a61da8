// SPDX-License-Identifier: BSD-3-Clause
// Headers that most sources of the library and of kv-server include; the Makefile compiles them
// once. Sources include what they use all the same: they must compile without this file.

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
