// SPDX-License-Identifier: BSD-3-Clause
#include "conn/core/connection_block.h"

#include <new>

#include "conn/core/connection_core.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

constexpr std::size_t aligned(std::size_t size) noexcept {
  constexpr std::size_t kAlignment = alignof(std::max_align_t);
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

constexpr std::size_t kCoreAt = sizeof(ConnectionBlock);
constexpr std::size_t kCarrierAt = aligned(kCoreAt + sizeof(ConnectionCore));
static_assert(alignof(ConnectionCore) <= kCoreAt);

}  // namespace

ConnectionBlock& ConnectionBlock::allocate(std::size_t size_of_carrier) {
  return *::new (::operator new(kCarrierAt + size_of_carrier)) ConnectionBlock;
}

ConnectionBlock& ConnectionBlock::of_core(void* core) noexcept {
  return *reinterpret_cast<ConnectionBlock*>(static_cast<std::byte*>(core) - kCoreAt);
}

ConnectionBlock& ConnectionBlock::of_carrier(void* carrier) noexcept {
  return *reinterpret_cast<ConnectionBlock*>(static_cast<std::byte*>(carrier) - kCarrierAt);
}

void* ConnectionBlock::core() noexcept { return reinterpret_cast<std::byte*>(this) + kCoreAt; }

void* ConnectionBlock::carrier() noexcept {
  return reinterpret_cast<std::byte*>(this) + kCarrierAt;
}

void ConnectionBlock::part_gone() noexcept {
  if (parts_.fetch_sub(1, std::memory_order_acq_rel) == 1) ::operator delete(this);
}

void ConnectionCore::operator delete(void* core) noexcept {
  ConnectionBlock::of_core(core).part_gone();
}

void CarrierBase::operator delete(void* carrier) noexcept {
  ConnectionBlock::of_carrier(carrier).part_gone();
}

}}  // namespace conn
