// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Values that are sent in place. They are queued between the bytes of a session's output until the
// connection accepts them, and are kept until it releases them, even if the session, the server and
// the key no longer exist by then. Those that are sent often are registered with the device, which
// then sends them without a copy.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <system_error>
#include <vector>

#include "conn/connection_type.h"
#include "store.h"

namespace kv {

/// The registrations of one loop. A registration pins memory and is a slow call, so there are few,
/// for values that are sent often. A registered value is kept until the next sweep() after its key
/// was deleted or changed.
class RegisteredValues {
 public:
  static constexpr std::size_t kSlots = 64;
  static constexpr std::uint32_t kOften = 8;       ///< sends before a value is registered
  static constexpr std::size_t kMost = 16u << 20;  ///< bytes of all registered values

  /// A value, and how many of its sends are unreleased.
  struct Slot {
    Entry* entry = nullptr;  ///< a user of it if `memory` is set; else only compared
    std::uint32_t sends = 0, on_way = 0;
    std::unique_ptr<conn::Memory> memory;
  };

  RegisteredValues() = default;
  RegisteredValues(const RegisteredValues&) = delete;
  RegisteredValues& operator=(const RegisteredValues&) = delete;
  /// Every send must have been released.
  ~RegisteredValues();

  /// Call before a value is sent over a connection of this type; the caller must be a user of the
  /// value. Returns its registration or null. The caller counts its sends in on_way until the
  /// release.
  Slot* find(Entry* entry, const conn::ConnectionType& type, ae::EventLoop& loop) noexcept;
  /// Drops values that have no other users.
  void sweep() noexcept;
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void drop(Slot& slot) noexcept;
  std::array<Slot, kSlots> slots_;
  std::size_t bytes_ = 0;
};

class Pool;
class References;

/// A value that the connection accepted; the `context` of conn::Outgoing.
struct SentValue {
  Pool* pool;
  References* owner;  ///< null: it was destroyed
  Entry* entry;
  std::size_t bytes;
  SentValue *next, **link;  ///< in the list of the owner, or of the idle ones of the pool
  RegisteredValues::Slot* registered;  ///< the registration it is sent from, or null
  static void release(void* context, std::error_code error) noexcept;
};

/// The values of one loop. Deletes itself once the server has left and the last value is released.
class Pool {
 public:
  struct Leave {
    void operator()(Pool* pool) const noexcept { pool->leave(); }
  };
  using Ptr = std::unique_ptr<Pool, Leave>;
  /// Throws std::bad_alloc.
  SentValue* acquire();
  void release(SentValue* value) noexcept;

  RegisteredValues registered;
  std::size_t left_behind = 0;  ///< bytes of unreleased values whose session was destroyed

 private:
  static constexpr std::size_t kKept = 1024;
  void leave() noexcept;
  SentValue* idle_ = nullptr;
  std::size_t kept_ = 0, used_ = 0;
  bool left_ = false;
};

/// The values of one session.
class References {
 public:
  References() = default;
  References(const References&) = delete;
  References& operator=(const References&) = delete;
  ~References() { drop(); }
  /// Smaller values are copied.
  static constexpr std::size_t kLeast = Entry::kCounted;

  /// The bytes of values that wait or are unreleased.
  std::size_t bytes() const noexcept { return bytes_; }
  /// The bytes of values that wait.
  std::uint64_t waiting_bytes() const noexcept {
    std::uint64_t sum = 0;
    for (std::size_t i = first_; i != waiting_.size(); ++i) sum += waiting_[i].size;
    return sum;
  }
  /// The number of values that wait or are unreleased.
  std::size_t count() const noexcept { return waiting_.size() - first_ + on_way_; }
  bool waits() const noexcept { return first_ != waiting_.size(); }
  bool on_way() const noexcept { return on_way_ != 0; }

  /// Queues a value behind `text` bytes of output. Throws std::bad_alloc.
  void add(std::size_t text, Entry* entry);
  /// Drops the values behind more than `text` bytes.
  void truncate(std::size_t text) noexcept;
  /// The bytes of output before the first value.
  std::size_t text_before() const noexcept {
    return static_cast<std::size_t>(waiting_[first_].at - text_gone_);
  }
  void text_sent(std::size_t size) noexcept { text_gone_ += size; }
  /// Prepares the first value for the connection. took() or refused() must follow. Throws
  /// std::bad_alloc.
  SentValue* begin(Pool& pool);
  void took(SentValue* value) noexcept;
  void refused(SentValue* value) noexcept;
  /// Drops the queued values and gives up the unreleased ones.
  void drop() noexcept;

  std::function<void()> released;  ///< called when a value was released

 private:
  friend struct SentValue;
  void forget_sent() noexcept;
  struct Waiting {
    std::uint64_t at;  ///< bytes of output before it, since the start of the session
    Entry* entry;
    std::size_t size;
  };
  std::vector<Waiting> waiting_;  // valid from first_ on
  std::size_t first_ = 0, bytes_ = 0, on_way_ = 0;
  std::uint64_t text_gone_ = 0;
  SentValue* sent_ = nullptr;
};

}  // namespace kv
