// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The loops of the library by name, for an option of a program.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace ae { inline namespace AECONN_ABI {

/// What makes loops, as LoopGroup::Config::make wants it; the index says nothing.
using LoopMaker = std::function<std::unique_ptr<EventLoop>(std::size_t index)>;

/// The names that loops_named() knows; the first is what programs take by default. Any thread.
AECONN_API std::span<const std::string_view> loop_names() noexcept;
/// Makes LibevLoops ("libev") or EpollLoops ("epoll"). Throws LoopError, a sentence, for any other
/// name. What it returns throws as the constructors do.
AECONN_API LoopMaker loops_named(std::string_view name);

}}  // namespace ae
