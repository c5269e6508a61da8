// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The names of the library's event loops, for a command-line or configuration option.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace ae { inline namespace AECONN_ABI {

/// A function that creates a loop, for LoopGroup::Config::make. It ignores the loop's index in the
/// group.
using LoopMaker = std::function<std::unique_ptr<EventLoop>(std::size_t index)>;

/// Returns the names that loops_named() accepts. The first name is the default of the library's own
/// programs. Thread-safe.
AECONN_API std::span<const std::string_view> loop_names() noexcept;
/// Returns a function that creates a LibevLoop (for "libev") or an EpollLoop (for "epoll"). Throws
/// LoopError, with a readable sentence, for any other name. The returned function throws what the
/// loop's constructor throws.
AECONN_API LoopMaker loops_named(std::string_view name);

}}  // namespace ae
