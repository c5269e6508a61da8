// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A pool of connections to one endpoint: tasks lease a connection and give it back. Each connection
// belongs to a Redial, which connects again when the connection is lost.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/co/first.h"
#include "conn/co/result.h"
#include "conn/co/scope.h"
#include "conn/co/sleep.h"
#include "conn/co/stream.h"
#include "conn/co/task.h"
#include "conn/co/wait.h"
#include "conn/connection.h"
#include "conn/endpoint.h"
#include "conn/error.h"
#include "conn/redial.h"
#include "conn/registry.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

namespace detail {
struct PoolCore;
struct PoolSlot;
}  // namespace detail

/// Connections to one endpoint, for tasks that each need a connection for a while. If no connection
/// is free, a task waits; waiting tasks are served in the order in which they began to wait. The
/// pool opens its first connection at once, and another one when more tasks wait than connections
/// are being opened, up to Settings::most. It does not close the connections that it has opened: if
/// a connection is lost, or is not given back, the pool connects again, with the pauses of
/// Redial::Settings. Use the pool on one loop's thread only. It must not outlive the loop. Leases
/// may outlive the pool. Tasks that wait when the pool is destroyed resume without a connection.
class Pool {
 public:
  class Lease;
  class Acquire;

  /// Limits of a Pool, and what it does with a new connection.
  struct Settings {
    /// Maximum number of connections; 0 means 1.
    std::size_t most = 8;
    /// A function that is run on each new connection before a task gets the connection, for example
    /// to authenticate. If its task returns false, takes longer than redial.proof, or is empty, the
    /// connection is closed, and the pool connects again after a pause. If the task throws, the
    /// same happens, and the exception leaves the loop's run(). Without this function a connection
    /// is free as soon as it is established.
    std::function<Task<bool>(Stream&)> prepare;
    /// Settings of the Redial that opens one connection, and opens it again when it is lost.
    Redial::Settings redial;
  };

  /// Makes a pool and begins to open its first connection. The registry and the loop must outlive
  /// the pool. Throws Error for an invalid endpoint.
  inline Pool(const Registry& registry, ae::EventLoop& loop, Endpoint to, Settings settings);
  /// Makes a pool like the other constructor, with the default Settings.
  Pool(const Registry& registry, ae::EventLoop& loop, Endpoint to)
      : Pool(registry, loop, std::move(to), Settings()) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  /// Closes the free connections. Those that are leased stay with their leases.
  inline ~Pool();

  /// Waits for a connection and returns it as a Lease. If the time-out expires first, returns a
  /// Lease without a connection, whose failure() says why.
  [[nodiscard]] inline Acquire acquire(ae::Duration limit = kNoLimit) noexcept;
  /// Returns the number of connections: free, leased, or being opened.
  inline std::size_t size() const noexcept;
  /// Returns the number of established connections that no task has leased.
  inline std::size_t available() const noexcept;

 private:
  std::shared_ptr<detail::PoolCore> core_;
};

/// A connection leased from a Pool, or none. Call give_back() when the last answer has been read.
/// If a lease is destroyed without that, the connection is closed and the pool connects again,
/// because a task that was cancelled may have left a part of an answer unread.
class [[nodiscard]] Pool::Lease {
 public:
  Lease() noexcept = default;  ///< makes a lease without a connection
  /// Takes over the lease of `other`, which then has no connection.
  inline Lease(Lease&& other) noexcept;
  /// Takes over the lease of `other`. Ends the lease that this object had, as the destructor does.
  inline Lease& operator=(Lease&& other) noexcept;
  inline ~Lease();

  /// Returns whether this lease has a connection.
  explicit operator bool() const noexcept { return bool(stream_); }
  Stream& operator*() noexcept { return stream_; }    ///< returns the leased connection
  Stream* operator->() noexcept { return &stream_; }  ///< gives access to the leased connection
  /// The reason why acquire() returned no connection; empty if it did return one.
  const Failure& failure() const noexcept { return failure_; }
  /// Gives the connection back, for other tasks to use; this lease has none afterwards. If the
  /// connection has failed or ended, the pool connects again. Operations that wait for the stream
  /// fail with ECANCELED.
  inline void give_back() noexcept;

 private:
  friend class Pool;
  friend struct detail::PoolCore;
  friend struct detail::PoolSlot;
  inline Lease(detail::PoolSlot& slot, ConnectionPtr connection) noexcept;
  explicit Lease(Failure why) noexcept : failure_(std::move(why)) {}
  inline void end(const char* why) noexcept;

  detail::PoolSlot* slot_ = nullptr;  // null if there is no connection, or the pool was destroyed
  Stream stream_;
  Failure failure_;
};

/// The operation that Pool::acquire() returns; it must be awaited.
class Pool::Acquire final : public detail::Wait {
 public:
  /// Makes the operation; called by Pool::acquire() only.
  inline Acquire(std::shared_ptr<detail::PoolCore> core, ae::Duration limit) noexcept;
  Acquire(Acquire&&) = default;  ///< moves the operation, which must not have begun to wait
  Acquire& operator=(Acquire&&) = delete;
  /// Gives back a connection that the awaiting task did not get because it was cancelled.
  ~Acquire() override { lease_.give_back(); }
  /// Called by co_await: returns whether the operation is complete without waiting.
  inline bool await_ready();
  /// Called by co_await: returns the lease.
  inline Lease await_resume();

 private:
  friend struct detail::PoolCore;
  std::shared_ptr<detail::PoolCore> core_;
  Lease lease_;
};

namespace detail {

/// One connection of a pool: being opened, free, or leased.
struct PoolSlot {
  inline PoolSlot(PoolCore& core, std::size_t index);
  PoolSlot(const PoolSlot&) = delete;
  PoolSlot& operator=(const PoolSlot&) = delete;
  ~PoolSlot() {
    if (lease != nullptr) lease->slot_ = nullptr;
  }
  bool being_opened() const noexcept {
    const Redial::Phase phase = redial.phase();
    return (phase != Redial::Phase::kUp && phase != Redial::Phase::kTaken) || !preparing.empty();
  }

  PoolCore& pool;
  Pool::Lease* lease = nullptr;  // the lease that has the connection; null: it is not leased
  Redial redial;
  Scope preparing;  // owns the task that runs Settings::prepare
};

/// The state of a pool. Shared with the operations that wait for a connection, which may outlive
/// the pool.
struct PoolCore : std::enable_shared_from_this<PoolCore> {
  PoolCore(const Registry& its_registry, ae::EventLoop& its_loop, Endpoint its_to,
           Pool::Settings its)
      : registry(its_registry),
        loop(its_loop),
        to(std::move(its_to)),
        settings(std::move(its)),
        waits(loop) {}
  PoolCore(const PoolCore&) = delete;
  PoolCore& operator=(const PoolCore&) = delete;

  void grow() {
    idle.reserve(slots.size() + 1);
    slots.push_back(std::make_unique<PoolSlot>(*this, slots.size()));
  }
  /// Opens another connection if more tasks wait than connections are being opened. Counts `more`
  /// tasks, which are about to wait, as waiting.
  void grow_for(std::size_t more) {
    if (slots.size() >= settings.most) return;
    const auto coming = std::count_if(slots.begin(), slots.end(),
                                      [](const auto& each) { return each->being_opened(); });
    if (static_cast<std::size_t>(coming) >= waits.size() + more) return;
    try {
      grow();
    } catch (const std::bad_alloc&) {
      // There is no memory for another connection: the task waits for one of the present
      // connections.
    }
  }
  void opened(PoolSlot& slot) {
    if (!settings.prepare) return available(slot);
    Task<> task = prepare(shared_from_this(), Pool::Lease(slot, slot.redial.take()));
    // If there is no memory for the task's frame, the task is empty. Its parameters have been
    // destroyed, among them the lease: that closes the connection, and the Redial connects again.
    if (!task.done()) slot.preparing.spawn(std::move(task));
  }
  static Task<> prepare(std::shared_ptr<const PoolCore> core, Pool::Lease lease) {
    const char* why = "prepare() refused the connection";
    Task<bool> task = core->settings.prepare(*lease);
    if (task.done()) co_return lease.end("there is no memory for prepare()");
    const auto which =
        co_await first(std::move(task), sleep(core->loop, core->settings.redial.proof));
    if (which.index() == 1) why = "prepare() took longer than `proof`";
    if (which.index() == 0 && std::get<0>(which)) {
      lease.give_back();
    } else {
      lease.end(why);
    }
  }
  /// Gives a free connection to the task that has waited longest. If no task waits, adds the
  /// connection to `idle`.
  void available(PoolSlot& slot) noexcept {
    if (waits.empty()) {
      idle.push_back(&slot);
    } else {
      static_cast<Pool::Acquire&>(waits.wake_first()).lease_ =
          Pool::Lease(slot, slot.redial.take());
    }
  }
  std::string why_none() const {
    for (const auto& each : slots) {
      if (!each->preparing.empty()) return "one is being prepared";
      if (each->being_opened()) return each->redial.describe();
    }
    return "all " + std::to_string(slots.size()) + " are in use";
  }

  const Registry& registry;
  ae::EventLoop& loop;
  const Endpoint to;
  const Pool::Settings settings;
  detail::WaitList waits;
  // The free connections. The one that was used last is at the end, and is leased first.
  std::vector<PoolSlot*> idle;
  std::vector<std::unique_ptr<PoolSlot>> slots;
  bool open = true;  // false once the Pool object is destroyed
};

inline PoolSlot::PoolSlot(PoolCore& core, std::size_t index)
    : pool(core),
      redial(core.registry, core.loop, core.to,
             {.up = [this](Connection&) { pool.opened(*this); },
              .down = [this](Connection&, const Redial::Loss&) { std::erase(pool.idle, this); },
              .prove = {},
              .changed = {}},
             [&] {
               Redial::Settings settings = core.settings.redial;
               if (settings.seed != 0) settings.seed += index;
               return settings;
             }()) {}

}  // namespace detail

inline Pool::Lease::Lease(detail::PoolSlot& slot, ConnectionPtr connection) noexcept
    : slot_(&slot), stream_(std::move(connection)) {
  slot.lease = this;
}

inline Pool::Lease::Lease(Lease&& other) noexcept
    : slot_(std::exchange(other.slot_, nullptr)),
      stream_(std::move(other.stream_)),
      failure_(std::move(other.failure_)) {
  if (slot_ != nullptr) slot_->lease = this;
}

inline Pool::Lease& Pool::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  end(nullptr);
  slot_ = std::exchange(other.slot_, nullptr);
  stream_ = std::move(other.stream_);
  failure_ = std::move(other.failure_);
  if (slot_ != nullptr) slot_->lease = this;
  return *this;
}

inline Pool::Lease::~Lease() { end(nullptr); }

inline void Pool::Lease::give_back() noexcept {
  ConnectionPtr connection = stream_.release();
  detail::PoolSlot* const slot = std::exchange(slot_, nullptr);
  if (slot == nullptr) return;
  slot->lease = nullptr;
  slot->redial.give_back(std::move(connection));
  if (slot->redial.phase() == Redial::Phase::kUp) slot->pool.available(*slot);
}

/// Closes the connection. `why` is the reason; null: there is no particular reason. If the
/// connection has failed, its own failure is the reason instead.
inline void Pool::Lease::end(const char* why) noexcept {
  ConnectionPtr connection = stream_.release();
  detail::PoolSlot* const slot = std::exchange(slot_, nullptr);
  if (slot == nullptr) return;
  slot->lease = nullptr;
  if (connection != nullptr && connection->state() == State::kConnected) connection.reset();
  Failure reason;
  if (why != nullptr) {
    try {
      reason = {std::make_error_code(std::errc::protocol_error), why};
    } catch (const std::bad_alloc&) {
      reason = out_of_memory();
    }
  }
  slot->redial.give_back(std::move(connection), std::move(reason));
}

inline Pool::Acquire::Acquire(std::shared_ptr<detail::PoolCore> core, ae::Duration limit) noexcept
    : Wait(core->waits, limit), core_(std::move(core)) {}

inline bool Pool::Acquire::await_ready() {
  if (!core_->idle.empty()) {
    detail::PoolSlot& slot = *core_->idle.back();
    core_->idle.pop_back();
    lease_ = Lease(slot, slot.redial.take());
    return true;
  }
  if (core_->open) core_->grow_for(1);
  return !core_->open;
}

inline Pool::Lease Pool::Acquire::await_resume() {
  if (lease_) return std::move(lease_);
  if (!core_->open)
    return Lease(errno_failure(ECANCELED, "a connection of a pool that was destroyed"));
  return Lease(Failure{std::make_error_code(std::errc::timed_out),
                       "no connection within the time-out: " + core_->why_none()});
}

inline Pool::Pool(const Registry& registry, ae::EventLoop& loop, Endpoint to, Settings settings) {
  if (settings.most == 0) settings.most = 1;
  core_ = std::make_shared<detail::PoolCore>(registry, loop, std::move(to), std::move(settings));
  core_->grow();
}

inline Pool::~Pool() {
  core_->open = false;
  core_->idle.clear();
  core_->waits.dismiss_all();
  core_->slots.clear();
}

inline Pool::Acquire Pool::acquire(ae::Duration limit) noexcept { return Acquire(core_, limit); }

inline std::size_t Pool::size() const noexcept { return core_->slots.size(); }

inline std::size_t Pool::available() const noexcept { return core_->idle.size(); }

}}}  // namespace conn::co
