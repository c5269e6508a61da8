// SPDX-License-Identifier: BSD-3-Clause
#include "registered_values.h"

#include <new>
#include <span>

namespace kv {

RegisteredValues::~RegisteredValues() {
  for (Slot& slot : slots_) drop(slot);
}

void RegisteredValues::drop(Slot& slot) noexcept {
  if (slot.memory != nullptr) {
    slot.memory.reset();
    bytes_ -= slot.entry->value_size;
    drop_entry(slot.entry);
  }
  slot = {};
}

RegisteredValues::Slot* RegisteredValues::find(Entry* entry, const conn::ConnectionType& type,
                                               ae::EventLoop& loop) noexcept {
  if (!type.capabilities().in_place) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(entry);
  Slot& slot = slots_[(address * 0x9e3779b97f4a7c15u >> 32) % kSlots];
  if (slot.entry != entry) {
    // The value that is sent more often keeps the slot.
    if (slot.sends > 1 || slot.on_way != 0) {
      if (slot.sends != 0) --slot.sends;
      return nullptr;
    }
    drop(slot);
    slot.entry = entry;
  }
  if (slot.sends < 2 * kOften) ++slot.sends;
  if (slot.memory == nullptr) {
    if (slot.sends < kOften || bytes_ + entry->value_size > kMost) return nullptr;
    try {
      slot.memory = type.register_memory(
          loop,
          std::as_writable_bytes(std::span(entry->value_bytes(), std::size_t{entry->value_size})));
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    entry->add_user();
    bytes_ += entry->value_size;
  }
  return &slot;
}

void RegisteredValues::sweep() noexcept {
  if (bytes_ == 0) return;
  for (Slot& slot : slots_)
    if (slot.memory != nullptr && slot.on_way == 0 && !slot.entry->shared()) drop(slot);
}

}  // namespace kv
