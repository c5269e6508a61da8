#pragma once
// Where a simulation's decisions come from: a seed, or bytes (of a fuzzer) for as long as there are
// any. A UniformRandomBitGenerator.

#include <cstdint>
#include <limits>
#include <random>
#include <span>

namespace simulation {

class Choices {
 public:
  using result_type = std::uint64_t;
  explicit Choices(std::uint64_t seed, std::span<const std::uint8_t> bytes = {})
      : bytes_(bytes), rest_(seed) {}
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()() {
    if (bytes_.empty()) return rest_();
    // One byte decides: distributions look at the high bits.
    const std::uint64_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte * 0x0101010101010101u;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  std::mt19937_64 rest_;
};

}  // namespace simulation
