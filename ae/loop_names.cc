// SPDX-License-Identifier: BSD-3-Clause
#include "ae/loop_names.h"

#include <string>

#include "ae/epoll_loop.h"
#include "ae/libev_loop.h"

namespace ae::inline AECONN_ABI {

LoopMaker loops_named(std::string_view name) {
  if (name == "libev") return [](std::size_t) { return std::make_unique<LibevLoop>(); };
  if (name == "epoll") return [](std::size_t) { return std::make_unique<EpollLoop>(); };
  throw LoopError("there is no event loop " + std::string(name) + ": libev or epoll is wanted");
}

}  // namespace ae::inline AECONN_ABI
