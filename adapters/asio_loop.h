// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ae::EpollLoop below asio's io_context, standalone or Boost's: docs/adapters.md has a program.
//
//   ae::EpollLoop loop;
//   asio::io_context context;
//   adapters::asio::Attachment attached(loop, context.get_executor());
//
// Thread rule: loop and attachment belong to the one thread that runs the context; other threads
// post(). The loop and the context outlive the attachment, which may end inside a handler, also one
// of the loop.
//
// Exceptions: what a handler of the loop throws leaves io_context::run(), as what asio's handlers
// throw does. Both can be run again then: what else was due runs in the next turn.

#include <memory>
#include <utility>

#include "adapters/asio_namespace.h"
#include "ae/abi.h"
#include "ae/epoll_loop.h"

namespace adapters { inline namespace AECONN_ABI { namespace asio {
inline namespace AECONN_ASIO_INLINE {

/// While it lives, the context of `executor` turns `loop`, too, and does not run out of work.
class Attachment {
 public:
  /// Throws what asio does where there is no memory or no descriptor for it.
  Attachment(ae::EpollLoop& loop, const detail::net::any_io_executor& executor)
      : state_(std::make_shared<State>(loop, executor)) {
    wait(state_);
  }
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;
  ~Attachment() {
    state_->attached = false;
    state_->descriptor.release();  // it is the loop's; whoever waits for it is told
  }

 private:
  struct State {
    State(ae::EpollLoop& its_loop, const detail::net::any_io_executor& executor)
        : loop(its_loop), descriptor(executor, its_loop.descriptor()) {}
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() {  // the first wait may have found no memory
      if (descriptor.is_open()) descriptor.release();
    }
    ae::EpollLoop& loop;
    detail::net::posix::stream_descriptor descriptor;
    bool attached = true;
  };
  // asio watches edges, and looks anew for each wait: so the descriptor's level is what counts.
  static void wait(const std::shared_ptr<State>& state) {
    auto& descriptor = state->descriptor;
    descriptor.async_wait(descriptor.wait_read, [state](const detail::ErrorCode&) {
      if (!state->attached) return;
      const Again again{state};
      state->loop.dispatch();
    });
  }
  struct Again {  // also where a handler throws
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
