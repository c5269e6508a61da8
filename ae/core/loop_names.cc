// SPDX-License-Identifier: BSD-3-Clause
#include "ae/loop_names.h"

#include <array>
#include <string>

#include "ae/epoll_loop.h"
#include "ae/libev_loop.h"

namespace ae { inline namespace AECONN_ABI {
namespace {

template <class Loop>
std::unique_ptr<EventLoop> make(std::size_t) {
  return std::make_unique<Loop>();
}

// kNames and kMakers list the library's event loops in the same order.
constexpr std::array<std::string_view, 2> kNames{"libev", "epoll"};
constexpr std::array kMakers{&make<LibevLoop>, &make<EpollLoop>};
static_assert(kNames.size() == kMakers.size());

}  // namespace

std::span<const std::string_view> loop_names() noexcept { return kNames; }

LoopMaker loops_named(std::string_view name) {
  std::string all;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return kMakers[i];
    all.append(i == 0 ? "" : " or ").append(kNames[i]);
  }
  throw LoopError("there is no event loop " + std::string(name) + ": " + all + " is wanted");
}

}}  // namespace ae
