// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Large values that are asked for again and again: where the device can send from their memory they
// are registered with it, and are copied no more.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "conn/connection_type.h"
#include "dict.h"

namespace kv {

/// One loop's. A registration pins memory and is a slow call, so only what is sent often has one,
/// and there are few. A value that has one is kept until the next sweep() after its key is gone or
/// has another value.
class RegisteredValues {
 public:
  static constexpr std::size_t kSlots = 64;
  static constexpr std::uint32_t kOften = 8;       ///< sends before a value is registered
  static constexpr std::size_t kMost = 16u << 20;  ///< bytes of all of them

  /// What is registered, and how many sends have not been released.
  struct Slot {
    Entry* entry = nullptr;  ///< a user of it, where there is `memory`; else an address and no more
    std::uint32_t sends = 0, on_way = 0;
    std::unique_ptr<conn::Memory> memory;
  };

  RegisteredValues() = default;
  RegisteredValues(const RegisteredValues&) = delete;
  RegisteredValues& operator=(const RegisteredValues&) = delete;
  /// Nothing is on its way.
  ~RegisteredValues();

  /// This value, of which the caller is a user, is about to be sent over such a connection of the
  /// loop: where it is registered, or null. Who sends from it counts it in on_way until the
  /// release.
  Slot* find(Entry* entry, const conn::ConnectionType& type, ae::EventLoop& loop) noexcept;
  /// Lets go of values that nobody else has.
  void sweep() noexcept;
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void drop(Slot& slot) noexcept;
  std::array<Slot, kSlots> slots_;
  std::size_t bytes_ = 0;
};

}  // namespace kv
