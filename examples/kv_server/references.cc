// SPDX-License-Identifier: BSD-3-Clause
#include "references.h"

#include <new>
#include <span>
#include <utility>

namespace kv {

// --- registered values ---------------------------------------------------------------------------

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

// --- the pool ------------------------------------------------------------------------------------

SentValue* Pool::acquire() {
  SentValue* value = idle_;
  if (value != nullptr) {
    idle_ = value->next;
    --kept_;
  } else {
    value = new SentValue;
  }
  ++used_;
  return value;
}

void Pool::release(SentValue* value) noexcept {
  if (value->registered != nullptr) --value->registered->on_way;
  --used_;
  if (left_ || kept_ == kKept) {
    delete value;
    if (left_ && used_ == 0) delete this;
    return;
  }
  value->next = std::exchange(idle_, value);
  ++kept_;
}

void Pool::leave() noexcept {
  while (idle_ != nullptr) delete std::exchange(idle_, idle_->next);
  left_ = true;
  if (used_ == 0) delete this;
}

void SentValue::release(void* context, std::error_code) noexcept {
  auto* const value = static_cast<SentValue*>(context);
  References* const owner = value->owner;
  if (owner != nullptr) {
    *value->link = value->next;
    if (value->next != nullptr) value->next->link = value->link;
    owner->bytes_ -= value->bytes;
    --owner->on_way_;
  } else {
    value->pool->left_behind -= value->bytes;
  }
  drop_entry(value->entry);
  value->pool->release(value);
  if (owner != nullptr && owner->released) owner->released();
}

// --- a session's ---------------------------------------------------------------------------------

void References::add(std::size_t text, Entry* entry) {
  waiting_.push_back({text_gone_ + text, entry, entry->value_size});
  entry->add_user();
  bytes_ += entry->value_size;
}

void References::truncate(std::size_t text) noexcept {
  while (waits() && waiting_.back().at > text_gone_ + text) {
    bytes_ -= waiting_.back().size;
    drop_entry(waiting_.back().entry);
    waiting_.pop_back();
  }
  if (!waits()) forget_sent();
}

void References::forget_sent() noexcept {
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(first_));
  first_ = 0;
}

SentValue* References::begin(Pool& pool) {
  SentValue* const value = pool.acquire();
  const Waiting& first = waiting_[first_];
  *value = {&pool, this, first.entry, first.size, sent_, &sent_, nullptr};
  return value;
}

void References::took(SentValue* value) noexcept {
  if (sent_ != nullptr) sent_->link = &value->next;
  sent_ = value;
  ++on_way_;
  ++first_;
  if (!waits() || first_ > waiting_.size() / 2) forget_sent();
}

void References::refused(SentValue* value) noexcept { value->pool->release(value); }

void References::drop() noexcept {
  for (; waits(); ++first_) drop_entry(waiting_[first_].entry);
  waiting_.clear();
  first_ = bytes_ = on_way_ = 0;
  while (sent_ != nullptr) {
    sent_->owner = nullptr;
    sent_->pool->left_behind += sent_->bytes;
    sent_ = sent_->next;
  }
}

}  // namespace kv
