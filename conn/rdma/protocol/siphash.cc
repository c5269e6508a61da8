// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/protocol/siphash.h"

#include <bit>

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// The parameters c and d of the SipHash paper: the number of rounds for each word, and the number
// of rounds at the end. kWide, kFirstHalf and kSecondHalf are the constants of the variant with 128
// bits of output; the variant with 64 bits has 0xff in place of kFirstHalf.
constexpr int kWordRounds = 2, kFinalRounds = 4;
constexpr std::uint64_t kWide = 0xee, kFirstHalf = 0xee, kSecondHalf = 0xdd;
constexpr std::array<std::uint64_t, 4> kStart = {0x736f6d6570736575, 0x646f72616e646f6d,
                                                 0x6c7967656e657261, 0x7465646279746573};

std::uint64_t word_at(std::span<const std::byte> bytes) noexcept {  // reads 8 little-endian bytes
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < 8; ++i) word |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  return word;
}

void store(std::span<std::byte> at, std::uint64_t word) noexcept {
  for (std::size_t i = 0; i < 8; ++i) at[i] = static_cast<std::byte>((word >> (8 * i)) & 0xff);
}

}  // namespace

SipHasher::SipHasher(const SipKey& key) noexcept : state_(kStart) {
  const std::span<const std::byte> bytes(key);
  const std::uint64_t low = word_at(bytes), high = word_at(bytes.subspan(8));
  state_[0] ^= low;
  state_[1] ^= high ^ kWide;
  state_[2] ^= low;
  state_[3] ^= high;
}

void SipHasher::rounds(int count) noexcept {
  auto& [a, b, c, d] = state_;
  for (; count > 0; --count) {
    a += b;
    c += d;
    b = std::rotl(b, 13) ^ a;
    d = std::rotl(d, 16) ^ c;
    a = std::rotl(a, 32);
    c += b;
    a += d;
    b = std::rotl(b, 17) ^ c;
    d = std::rotl(d, 21) ^ a;
    c = std::rotl(c, 32);
  }
}

void SipHasher::compress(std::uint64_t word) noexcept {
  state_[3] ^= word;
  rounds(kWordRounds);
  state_[0] ^= word;
}

void SipHasher::add(std::span<const std::byte> bytes) noexcept {
  for (const std::byte each : bytes) {
    pending_ |= std::to_integer<std::uint64_t>(each) << (8 * (length_ % 8));
    if (++length_ % 8 != 0) continue;
    compress(pending_);
    pending_ = 0;
  }
}

SipHash SipHasher::finish() noexcept {
  compress(pending_ | std::uint64_t{length_} << 56);
  SipHash hash{};
  const std::span<std::byte> at(hash);
  state_[2] ^= kFirstHalf;
  rounds(kFinalRounds);
  store(at, state_[0] ^ state_[1] ^ state_[2] ^ state_[3]);
  state_[1] ^= kSecondHalf;
  rounds(kFinalRounds);
  store(at.subspan(8), state_[0] ^ state_[1] ^ state_[2] ^ state_[3]);
  return hash;
}

SipHash siphash128(const SipKey& key, std::span<const std::byte> bytes) noexcept {
  SipHasher hasher(key);
  hasher.add(bytes);
  return hasher.finish();
}

bool equal_in_constant_time(const SipHash& a, const SipHash& b) noexcept {
  // volatile, so that the compiler does not end the loop at the first difference.
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference = static_cast<unsigned char>(difference | std::to_integer<unsigned>(a[i] ^ b[i]));
  return difference == 0;
}

}}}  // namespace conn::rdma
