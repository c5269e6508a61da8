// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Accepts connections for coroutines: `co_await acceptor.next()` returns the next one as a Stream.

#include <cstddef>
#include <deque>
#include <new>
#include <string_view>
#include <utility>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/co/stream.h"
#include "conn/co/wait.h"
#include "conn/connection.h"
#include "conn/endpoint.h"
#include "conn/listener.h"
#include "conn/registry.h"
#include "conn/stopping.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

class Acceptor;

namespace detail {

class Next final : public Wait {
 public:
  inline Next(Acceptor& acceptor, WaitList& list, ae::Duration limit) noexcept;
  Next(Next&&) = default;
  Next& operator=(Next&&) = delete;
  inline ~Next() override;
  inline bool await_ready();
  Stream await_resume() noexcept { return std::move(arrival_); }

 private:
  friend class conn::co::Acceptor;

  Acceptor* acceptor_;
  ConnectionPtr arrival_;
};

}  // namespace detail

/// Accepts connections, and queues up to `backlog` of them until next() takes them. While the queue
/// is full, the acceptor pauses its listener, and further connections stay in the listener's own
/// backlog. Destroying the acceptor stops listening; a waiting next() then resumes from the loop
/// with an empty stream. Streams that next() has returned stay open. An acceptor must not be used
/// after the loop's end. When the server stops (conn/stop.h), the acceptor queues all connections
/// of the listener's backlog, and calls close() itself.
class Acceptor : private StopWatcher {
 public:
  /// Default maximum number of accepted connections in the queue.
  static constexpr std::size_t kBacklog = 128;

  /// Listens on the endpoint `at`. Throws conn::Error as Registry::listen() does.
  Acceptor(const Registry& registry, ae::EventLoop& loop, const Endpoint& at,
           std::size_t backlog = kBacklog)
      : backlog_(backlog == 0 ? 1 : backlog),
        stopping_(Stopping::of(loop)),
        asking_(loop),
        listener_(registry.listen(loop, at,
                                  [this](ConnectionPtr arrival) { arrived(std::move(arrival)); })) {
    stopping_.add(*this);
  }
  /// Listens on the URL `url`. Throws conn::Error as Registry::listen() does.
  Acceptor(const Registry& registry, ae::EventLoop& loop, std::string_view url,
           std::size_t backlog = kBacklog)
      : Acceptor(registry, loop, Endpoint::parse(url), backlog) {}
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;
  ~Acceptor() override = default;
  /// Stops listening. next() still returns the connections that were accepted before, and then
  /// empty streams.
  void close() noexcept {
    listener_.reset();
    asking_.dismiss_all();
  }
  /// Waits for the next connection. Returns an empty stream if the time-out expires, if the
  /// acceptor is closed or destroyed meanwhile, and at once if another task already waits. The
  /// returned operation must be awaited before the acceptor is destroyed. If awaiting it throws
  /// std::bad_alloc, it has taken no connection.
  [[nodiscard]] detail::Next next(ae::Duration limit = kNoLimit) noexcept {
    return {*this, asking_, limit};
  }
  /// Returns the listener, for example to query its endpoints. Not to be called after close(). The
  /// acceptor itself pauses and resumes it.
  Listener& listener() const noexcept { return *listener_; }
  /// Returns the number of accepted connections that next() has not taken yet.
  std::size_t waiting() const noexcept { return arrivals_.size(); }

 private:
  friend class detail::Next;

  void on_stop() override { close(); }
  void on_accepting() noexcept override {
    if (arrivals_.size() < backlog_ || listener_ == nullptr) return;
    try {
      listener_->resume();
    } catch (const std::bad_alloc&) {
      // There is no memory to resume the listener: connections for which the queue has no room stay
      // in the listener's backlog.
    }
  }
  void arrived(ConnectionPtr arrival) {
    if (!asking_.empty()) {
      auto& next = static_cast<detail::Next&>(asking_.take_first());
      next.arrival_ = std::move(arrival);
      return next.finish();
    }
    keep([&] { arrivals_.push_back(std::move(arrival)); });
  }
  /// Takes back a connection that was meant for a task in next() which was cancelled before it
  /// resumed.
  void give_back(ConnectionPtr arrival) noexcept {
    if (!asking_.empty()) {
      static_cast<detail::Next&>(asking_.wake_first()).arrival_ = std::move(arrival);
      return;
    }
    keep([&] { arrivals_.push_front(std::move(arrival)); });
  }
  /// Runs `push`, which adds a connection to the queue. If there is no memory for that, the caller,
  /// which still owns the connection, closes it.
  template <class Push>
  void keep(const Push& push) noexcept {
    try {
      push();
    } catch (const std::bad_alloc&) {
      return;
    }
    if (arrivals_.size() >= backlog_ && listener_ != nullptr && !stopping_.accepting())
      listener_->hold_back();
  }
  ConnectionPtr take() {
    if (arrivals_.empty()) return nullptr;
    // Called first: if it throws, the connection is still in the queue, and the next call of this
    // function tries again to resume the listener.
    if (arrivals_.size() == backlog_ && listener_ != nullptr) listener_->resume();
    ConnectionPtr first = std::move(arrivals_.front());
    arrivals_.pop_front();
    return first;
  }

  const std::size_t backlog_;
  Stopping& stopping_;
  std::deque<ConnectionPtr> arrivals_;
  detail::WaitList asking_;  // the task that waits in next(); at most one may wait
  ListenerPtr listener_;
};

namespace detail {

inline Next::Next(Acceptor& acceptor, WaitList& list, ae::Duration limit) noexcept
    : Wait(list, limit), acceptor_(&acceptor) {}

inline Next::~Next() {
  if (arrival_ != nullptr && list_is_there()) acceptor_->give_back(std::move(arrival_));
}

inline bool Next::await_ready() {
  arrival_ = acceptor_->take();
  return arrival_ != nullptr || acceptor_->listener_ == nullptr || !acceptor_->asking_.empty();
}

}  // namespace detail
}}}  // namespace conn::co
