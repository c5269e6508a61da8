// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Values that are sent from where they lie in the data. They stand between the bytes of a session's
// output until the connection takes them, and are kept until it has handed them on: also when the
// session, the server and the key are gone by then.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <system_error>
#include <vector>

#include "dict.h"
#include "registered_values.h"

namespace kv {

class Pool;
class References;

/// What a connection got, one value; `context` of conn::Outgoing.
struct SentValue {
  Pool* pool;
  References* owner;  ///< null: it is gone
  Entry* entry;
  std::size_t bytes;
  SentValue *next, **link;             ///< of the owner's, or of the pool's idle ones
  RegisteredValues::Slot* registered;  ///< it is sent from there, or null
  static void release(void* context, std::error_code error) noexcept;
};

/// One loop's, which frees itself when its server and the last value are gone.
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
  std::size_t left_behind = 0;  ///< bytes of values on their way whose session is gone

 private:
  static constexpr std::size_t kKept = 1024;
  void leave() noexcept;
  SentValue* idle_ = nullptr;
  std::size_t kept_ = 0, used_ = 0;
  bool left_ = false;
};

/// A session's.
class References {
 public:
  References() = default;
  References(const References&) = delete;
  References& operator=(const References&) = delete;
  ~References() { drop(); }
  /// Smaller ones are copied.
  static constexpr std::size_t kLeast = Entry::kCounted;

  /// Bytes that wait or are on their way.
  std::size_t bytes() const noexcept { return bytes_; }
  /// Values that do.
  std::size_t count() const noexcept { return waiting_.size() - first_ + on_way_; }
  bool waits() const noexcept { return first_ != waiting_.size(); }
  bool on_way() const noexcept { return on_way_ != 0; }

  /// Behind `text` bytes of output. Throws std::bad_alloc.
  void add(std::size_t text, Entry* entry);
  /// Those behind more than `text` bytes are not to be sent.
  void truncate(std::size_t text) noexcept;
  /// Bytes of output in front of the first.
  std::size_t text_before() const noexcept {
    return static_cast<std::size_t>(waiting_[first_].at - text_gone_);
  }
  void text_sent(std::size_t size) noexcept { text_gone_ += size; }
  /// The first goes to the connection, with all that release() needs. Throws std::bad_alloc.
  SentValue* begin(Pool& pool);
  /// The connection took it, or not.
  void took(SentValue* value) noexcept;
  void refused(SentValue* value) noexcept;
  /// Forgets all: what is on its way goes on alone.
  void drop() noexcept;

  std::function<void()> released;  ///< a value has been handed on

 private:
  friend struct SentValue;
  void forget_sent() noexcept;
  struct Waiting {
    std::uint64_t at;  ///< bytes of output before it, from the beginning of the session
    Entry* entry;
    std::size_t size;
  };
  std::vector<Waiting> waiting_;  // from first_ on
  std::size_t first_ = 0, bytes_ = 0, on_way_ = 0;
  std::uint64_t text_gone_ = 0;
  SentValue* sent_ = nullptr;
};

}  // namespace kv
