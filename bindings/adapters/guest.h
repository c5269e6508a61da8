// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Shared by the adapters for other event loops (hosts): runs an ae::EpollLoop below a host's loop.
//
// One line attaches a loop; destroying the object detaches it:
//
//   ae::EpollLoop loop;  // listeners and connections as on any loop
//   adapters::libuv::Attachment attached(loop, uv_default_loop());
//
// Thread rule: loop, attachment and the host's loop belong to one thread, the one that runs the
// host's loop; other threads must post(). The loop must outlive the attachment, and so must the
// host's loop of libuv and libevent. An attachment may be destroyed inside a handler, including one
// of the loop; the loop may then be attached again, run() or be destroyed.
//
// Exceptions: an exception thrown by a handler cannot pass through a host written in C, nor through
// Qt. It goes to the function given to the attachment; without one the process is terminated, as
// for an exception that leaves a thread. The loop stays usable: other pending work runs in its next
// iteration. asio is C++ and has its own rule (adapters/asio_loop.h).

#include <exception>
#include <functional>
#include <utility>

#include "ae/abi.h"
#include "ae/epoll_loop.h"

namespace adapters { inline namespace AECONN_ABI {

/// Receives the exception thrown by a handler. Called from within the host's loop, which it may
/// stop, with uv_stop() for example. Must not throw.
using Caught = std::function<void(std::exception_ptr)>;

namespace detail {

/// The loop as used by the host's callbacks, which must not throw.
class Guest {
 public:
  Guest(ae::EpollLoop& loop, Caught caught) : loop_(loop), caught_(std::move(caught)) {}

  int descriptor() { return loop_.descriptor(); }
  void dispatch() noexcept {
    guarded([this] { loop_.dispatch(); });
  }
  /// Prepares the host's sleep. Returns false if there is still work to do.
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
