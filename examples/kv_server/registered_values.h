// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Registers large values that are sent often with the device, which then sends them without a copy.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "conn/connection_type.h"
#include "dict.h"

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
    Entry* entry = nullptr;  ///< with `memory` a user of it; else only an address to compare
    std::uint32_t sends = 0, on_way = 0;
    std::unique_ptr<conn::Memory> memory;
  };

  RegisteredValues() = default;
  RegisteredValues(const RegisteredValues&) = delete;
  RegisteredValues& operator=(const RegisteredValues&) = delete;
  /// Every send must have been released.
  ~RegisteredValues();

  /// Call before a value is sent over a connection of this type; the caller must be a user of it.
  /// Returns its registration or null. The caller counts its sends in on_way until the release.
  Slot* find(Entry* entry, const conn::ConnectionType& type, ae::EventLoop& loop) noexcept;
  /// Drops values that have no other users.
  void sweep() noexcept;
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void drop(Slot& slot) noexcept;
  std::array<Slot, kSlots> slots_;
  std::size_t bytes_ = 0;
};

}  // namespace kv
