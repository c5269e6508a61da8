// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Memory of the user that is sent without a copy. register_memory() returns an object of class
// UserMemory for it. Each Domain that sends from this memory registers it with the device on first
// use. The registration ends when the Domain or the UserMemory is destroyed.

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/in_place.h"
#include "conn/rdma/device/memory.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class UserMemory;

/// The registrations of user memory in one Domain (a protection domain). For use on the loop's
/// thread only.
class Registrations {
 public:
  /// `pd`: the protection domain, which must exist until clear() is called. `made`: counter of
  /// registrations, which must outlive this object.
  Registrations(ibv_pd* pd, std::uint64_t& made) noexcept : pd_(pd), made_(made) {}
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;
  ~Registrations() { clear(); }

  /// Returns the lkey with which the device reads `memory`. Registers the memory first if
  /// necessary. Returns no value if `limit` does not allow that, or if the device refuses; after a
  /// refusal, registration is not tried again for a second.
  std::optional<std::uint32_t> key(const UserMemory& memory, const MemoryLimit& limit,
                                   ae::TimePoint now) noexcept;
  void forget(const UserMemory& memory) noexcept { known_.erase(&memory); }
  void clear() noexcept;

 private:
  struct Known {
    Registration registration;
    ae::TimePoint refused_until{};
  };
  ibv_pd* pd_;
  std::uint64_t& made_;
  std::unordered_map<const UserMemory*, Known> known_;
};

class UserMemory final : public Memory {
 public:
  UserMemory(const ConnectionType& type, ae::EventLoop& loop, std::span<std::byte> bytes) noexcept
      : Memory(bytes, &type), loop_(&loop) {}
  ~UserMemory() override;
  /// Returns true if the user registered this memory for `loop`. Connections of other loops must
  /// not use it.
  bool is_of(const ae::EventLoop* loop) const noexcept { return loop == loop_; }
  bool holds(std::span<const std::byte> part) const noexcept;

 private:
  friend class Registrations;
  const ae::EventLoop* loop_;
  // The objects of class Registrations (one per Domain) that have registered this memory.
  mutable std::vector<Registrations*> places_;
};

}}}  // namespace conn::rdma
