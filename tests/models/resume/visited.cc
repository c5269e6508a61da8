// SPDX-License-Identifier: BSD-3-Clause
#include "tests/models/resume/visited.h"

#include <bit>
#include <cstring>

namespace resume_model {
namespace {

constexpr std::uint64_t kFactors[] = {0x9e3779b97f4a7c15, 0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53,
                                      0xd6e8feb86659fd93};

std::uint64_t scramble(std::uint64_t value) {
  value = (value ^ value >> 32) * kFactors[1];
  value = (value ^ value >> 29) * kFactors[2];
  return value ^ value >> 32;
}

}  // namespace

StateHash hash_of(const State& state) {
  // Four independent sums, which a processor computes at the same time.
  std::uint64_t sums[4] = {1, 2, 3, 4};
  std::uint64_t words[4] = {};
  const auto add = [&] {
    for (int i = 0; i < 4; ++i) sums[i] = std::rotl((sums[i] ^ words[i]) * kFactors[i], 31);
  };
  const std::size_t size = state.used_size();
  const auto* at = reinterpret_cast<const Byte*>(&state);
  std::size_t left = size;
  for (; left >= sizeof words; left -= sizeof words, at += sizeof words) {
    std::memcpy(words, at, sizeof words);
    add();
  }
  for (std::uint64_t& word : words) word = 0;
  std::memcpy(words, at, left);
  add();
  StateHash hash = {size, ~size};
  for (const std::uint64_t sum : sums) {
    hash.high = scramble(hash.high ^ sum);
    hash.low = scramble(hash.low + std::rotl(sum, 17));
  }
  return hash;
}

Visited::Slot& Visited::find(const StateHash& hash) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash.high & mask;
  while (slots_[at].number != kNone && slots_[at].hash != hash) at = (at + 1) & mask;
  return slots_[at];
}

void Visited::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& each : old) {
    if (each.number != kNone) find(each.hash) = each;
  }
}

std::pair<std::uint32_t, bool> Visited::add(const State& state) {
  const StateHash hash = hash_of(state);
  Slot* slot = &find(hash);
  if (slot->number != kNone) return {slot->number, false};
  if (size_ + size_ / 2 > slots_.size()) {
    grow();
    slot = &find(hash);
  }
  *slot = {hash, size_};
  return {size_++, true};
}

}  // namespace resume_model
