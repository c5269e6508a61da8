// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/memory/user_memory.h"

#include <algorithm>
#include <functional>

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

constexpr ae::Duration kAskAgain = std::chrono::seconds(1);

}  // namespace

UserMemory::~UserMemory() {
  for (Registrations* each : places_) each->forget(*this);
}

bool UserMemory::holds(std::span<const std::byte> part) const noexcept {
  // std::less_equal is defined for pointers into unrelated objects; operator <= is not.
  const std::less_equal<> before;
  return before(bytes().data(), part.data()) &&
         before(part.data() + part.size(), bytes().data() + bytes().size());
}

std::optional<std::uint32_t> Registrations::key(const UserMemory& memory, const MemoryLimit& limit,
                                                ae::TimePoint now) noexcept {
  const auto found = known_.find(&memory);
  if (found != known_.end() && found->second.registration.mr() != nullptr)
    return found->second.registration.mr()->lkey;
  if (pd_ == nullptr || !limit.allows(memory.bytes().size())) return std::nullopt;
  if (found != known_.end() && now < found->second.refused_until) return std::nullopt;
  try {
    memory.places_.reserve(memory.places_.size() + 1);
    const auto [place, is_new] = known_.try_emplace(&memory);
    if (is_new) memory.places_.push_back(this);
    place->second.refused_until = now + kAskAgain;
    place->second.registration =
        // Access flags 0: the device may only read this memory.
        Registration(pd_, memory.bytes().data(), memory.bytes().size(), 0);
    ++made_;
    return place->second.registration.mr()->lkey;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void Registrations::clear() noexcept {
  for (const auto& [memory, known] : known_) std::erase(memory->places_, this);
  known_.clear();
  pd_ = nullptr;
}

}}}  // namespace conn::rdma
