// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs an ae::EpollLoop below asio's io_context, standalone or Boost's; docs/adapters.md has an
// example program.
//
//   ae::EpollLoop loop;
//   asio::io_context context;
//   adapters::asio::Attachment attached(loop, context.get_executor());
//
// Thread rule: loop and attachment belong to the one thread that runs the context; other threads
// must post(). The loop and the context must outlive the attachment, which may be destroyed inside
// a handler, including one of the loop.
//
// Exceptions: an exception thrown by a handler of the loop leaves io_context::run(), like those of
// asio's handlers. Both can be run again afterwards: other pending work runs in the next iteration.

#include <memory>
#include <utility>

#include "adapters/asio_namespace.h"
#include "ae/abi.h"
#include "ae/epoll_loop.h"

namespace adapters { inline namespace AECONN_ABI { namespace asio {
inline namespace AECONN_ASIO_INLINE {

/// While it exists, the context of `executor` also runs `loop`, and does not run out of work.
class Attachment {
 public:
  /// Throws an exception of asio if there is no memory or no descriptor.
  Attachment(ae::EpollLoop& loop, const detail::net::any_io_executor& executor)
      : state_(std::make_shared<State>(loop, executor)) {
    wait(state_);
  }
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;
  ~Attachment() {
    state_->attached = false;
    state_->descriptor.release();  // the loop owns it; a pending wait is cancelled
  }

 private:
  struct State {
    State(ae::EpollLoop& its_loop, const detail::net::any_io_executor& executor)
        : loop(its_loop), descriptor(executor, its_loop.descriptor()) {}
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() {  // the descriptor is still open if the first wait has failed for lack of memory
      if (descriptor.is_open()) descriptor.release();
    }
    ae::EpollLoop& loop;
    detail::net::posix::stream_descriptor descriptor;
    bool attached = true;
  };
  // asio watches edges, but each new wait checks the descriptor: in effect it is level-triggered.
  static void wait(const std::shared_ptr<State>& state) {
    auto& descriptor = state->descriptor;
    descriptor.async_wait(descriptor.wait_read, [state](const detail::ErrorCode&) {
      if (!state->attached) return;
      const Again again{state};
      state->loop.dispatch();
    });
  }
  struct Again {  // its destructor begins the next wait, also if a handler throws
    explicit Again(const std::shared_ptr<State>& of) : state(of) {}
    Again(const Again&) = delete;
    Again& operator=(const Again&) = delete;
    ~Again() {
      if (state->attached) wait(state);
    }
    const std::shared_ptr<State>& state;
  };

  std::shared_ptr<State> state_;
};

}  // namespace AECONN_ASIO_INLINE
}}}  // namespace adapters::asio
