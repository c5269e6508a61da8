// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the adapters for hosts' loops share: ae::EpollLoop as a guest below somebody else's loop.
//
// One line attaches a loop, and the end of the object detaches it:
//
//   ae::EpollLoop loop;  // listeners and connections as on any loop
//   adapters::libuv::Attachment attached(loop, uv_default_loop());
//
// Thread rule: loop, attachment and host's loop belong to one thread, the one that turns the host's
// loop; other threads post(). The loop outlives the attachment. An attachment may end inside a
// handler, also one of the loop, and the loop may be attached anew, run() or be destroyed then.
//
// Exceptions: what a handler throws cannot pass through a host that is written in C, nor through
// Qt. It goes to the function that the attachment was given; without one it ends the process, as an
// exception that leaves a thread does. The loop stays usable: what else was due runs in its next
// turn. asio is C++ and has its own rule (adapters/asio_loop.h).

#include <exception>
#include <functional>
#include <utility>

#include "ae/abi.h"
#include "ae/epoll_loop.h"

namespace adapters { inline namespace AECONN_ABI {

/// Gets what a handler threw, from the host's loop, which it may end: uv_stop() and its like. Must
/// not throw.
using Caught = std::function<void(std::exception_ptr)>;

namespace detail {

/// The loop as the host's callbacks see it, which must not throw.
class Guest {
 public:
  Guest(ae::EpollLoop& loop, Caught caught) : loop_(loop), caught_(std::move(caught)) {}

  int descriptor() { return loop_.descriptor(); }
  void dispatch() noexcept {
    guarded([this] { loop_.dispatch(); });
  }
  /// False: there is something to do still.
  bool prepare() noexcept {
    bool may_sleep = false;
    guarded([&] { may_sleep = loop_.prepare(); });
    return may_sleep;
  }
  void end_prepare() noexcept {
    guarded([this] { loop_.end_prepare(); });
  }

 private:
  template <class Function>
  void guarded(Function function) noexcept {
    try {
      function();
    } catch (...) {
      if (!caught_) std::terminate();
      caught_(std::current_exception());
    }
  }

  ae::EpollLoop& loop_;
  const Caught caught_;
};

}  // namespace detail
}}  // namespace adapters
