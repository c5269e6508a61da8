// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The source of a simulation's decisions: a seed, or a fuzzer's bytes until they are used up. A
// UniformRandomBitGenerator.

#include <cstdint>
#include <limits>
#include <span>

namespace simulation {

class Choices {
 public:
  using result_type = std::uint64_t;
  explicit Choices(std::uint64_t seed, std::span<const std::uint8_t> bytes = {})
      : bytes_(bytes), state_(seed) {}
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()() {
    if (bytes_.empty()) return next();
    // One byte makes one decision; it goes to the high bits, which the distributions look at.
    const std::uint64_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte * 0x0101010101010101u;
  }

 private:
  // SplitMix64 (Steele, Lea, Flood 2014): cheap to seed, unlike a Mersenne twister.
  result_type next() noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::span<const std::uint8_t> bytes_;
  std::uint64_t state_;
};

}  // namespace simulation
