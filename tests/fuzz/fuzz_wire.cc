// SPDX-License-Identifier: BSD-3-Clause
// Goal: no bytes make the decoders read beyond their input, or return what encode() would not
// produce. Method: the input is used as a received message and as a peer's private data. Run by
// `make fuzz`, with the seeds in corpus/wire.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "conn/rdma/protocol/wire.h"

namespace {

constexpr std::size_t kShortest = 16;  // a hello without the number of receives

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace conn::rdma;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto message = decode(bytes);
  require(!message || size == kControlSize);
  if (message) {
    const ControlBytes clean = encode(*message);
    require(clean[0] == bytes[0] && clean[1] == bytes[1]);
    require(decode(clean) == message);
    require(encode(*decode(clean)) == clean);
  }
  if (const auto hello = decode_hello(bytes)) {
    require(size >= kShortest);
    const auto clean = encode(*hello);
    require(decode_hello(clean) == hello);
    // rdma_cm's padding must change nothing, and a shorter input is no hello.
    std::array<std::byte, 56> padded{};
    std::copy(clean.begin(), clean.end(), padded.begin());
    require(decode_hello(padded) == hello);
    require(!decode_hello(bytes.first(kShortest - 1)));
  }
  return 0;
}
