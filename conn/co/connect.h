// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Connects to a peer and returns the connection as a Stream.

#include <cerrno>
#include <coroutine>
#include <string_view>
#include <system_error>
#include <utility>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/co/result.h"
#include "conn/co/stream.h"
#include "conn/co/timed.h"
#include "conn/connection.h"
#include "conn/endpoint.h"
#include "conn/error.h"
#include "conn/registry.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

/// The result of connect(): a connected stream, or the reason why there is none.
struct [[nodiscard]] Connected {
  Stream stream;    ///< the connected stream; empty if connecting failed
  Failure failure;  ///< the reason why connecting failed; empty after success

  /// Returns whether connecting succeeded.
  explicit operator bool() const noexcept { return !failure; }
  /// Returns the stream. Throws std::system_error if connecting failed.
  Stream value() && {
    if (failure) throw std::system_error(failure.code, failure.text);
    return std::move(stream);
  }
};

namespace detail {

class Connect final : public Timed {
 public:
  Connect(const Registry& registry, ae::EventLoop& loop, Endpoint to, ae::Duration limit)
      : Timed(loop, limit), to_(std::move(to)), connection_(registry.create(loop, to_)) {}
  bool await_ready() const noexcept { return false; }
  template <class Awaiting>
  void await_suspend(std::coroutine_handle<Awaiting> awaiting) {
    wait(Waiter(awaiting));
    try {
      connection_->connect(to_, [this](Connection&) { finish(); });
    } catch (...) {
      stop_timer();  // the operation has ended, and must not end again
      throw;
    }
  }
  Connected await_resume() {
    if (connection_ == nullptr)
      return {Stream(), errno_failure(ETIMEDOUT, "connect to " + to_.to_string())};
    if (connection_->state() == State::kConnected) return {std::move(connection_), {}};
    return {Stream(),
            {connection_->error_code(), connection_->last_error(), connection_->retry_after()}};
  }

 private:
  void on_limit() noexcept override { connection_.reset(); }

  Endpoint to_;
  ConnectionPtr connection_;
};

}  // namespace detail

/// Connects to `to`; `co_await` returns a Connected. The Connected has a failure if `limit` or the
/// transport's connect-timeout expires first. Throws conn::Error as Registry::connect() does: for
/// an unknown transport or an invalid URL.
[[nodiscard]] inline detail::Connect connect(const Registry& registry, ae::EventLoop& loop,
                                             const Endpoint& to, ae::Duration limit = kNoLimit) {
  return {registry, loop, to, limit};
}
/// Connects to the URL `url`; otherwise the same as connect() to an Endpoint.
[[nodiscard]] inline detail::Connect connect(const Registry& registry, ae::EventLoop& loop,
                                             std::string_view url, ae::Duration limit = kNoLimit) {
  return {registry, loop, Endpoint::parse(url), limit};
}

}}}  // namespace conn::co
