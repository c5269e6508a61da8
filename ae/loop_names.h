// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The library's event loops by name, for a command-line or configuration option.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace ae { inline namespace AECONN_ABI {

/// Creates a loop, as LoopGroup::Config::make requires; the index is ignored.
using LoopMaker = std::function<std::unique_ptr<EventLoop>(std::size_t index)>;

/// The names that loops_named() accepts; the first is the default of programs. Any thread.
AECONN_API std::span<const std::string_view> loop_names() noexcept;
/// Returns a function that creates a LibevLoop ("libev") or an EpollLoop ("epoll"). Throws
/// LoopError, with a readable sentence, for any other name. The function throws as the constructors
/// do.
AECONN_API LoopMaker loops_named(std::string_view name);

}}  // namespace ae
