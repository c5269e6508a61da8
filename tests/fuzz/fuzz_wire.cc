// SPDX-License-Identifier: BSD-3-Clause
// Goal: no bytes make the decoders read beyond their input, or return what encode() would not
// produce. Method: the input is used as a received message and as a peer's private data: a hello or
// a resume. Run by `make fuzz`, with the seeds in corpus/wire.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "conn/rdma/protocol/resume_message.h"
#include "conn/rdma/protocol/wire.h"

namespace {

using namespace conn::rdma;

constexpr std::size_t kShortest = 16;  // a hello without the number of receives

void require(bool condition) {
  if (!condition) std::abort();
}

void check_hello(std::span<const std::byte> bytes, HelloKind kind) {
  const auto hello = decode_hello(bytes, kind);
  if (!hello) return;
  require(bytes.size() >= kShortest);
  const bool resumes = (hello->flags & Hello::kResumes) != 0;
  require(resumes == (hello->resume_ms != 0));
  require((resumes && kind == HelloKind::kAnswer) == (hello->grant.session != 0));
  if (!resumes) require(hello->grant.key == SipKey{});
  const auto clean = encode(*hello, kind);
  require(decode_hello(clean, kind) == hello);
  // rdma_cm's padding must change nothing, and a shorter input is no hello.
  std::array<std::byte, 56> padded{};
  std::copy(clean.begin(), clean.end(), padded.begin());
  require(decode_hello(padded, kind) == hello);
  require(!decode_hello(bytes.first(kShortest - 1), kind));
}

void check_resume(std::span<const std::byte> bytes) {
  const SipKey key{std::byte{1}, std::byte{2}};
  // No input has a MAC made with the key.
  require(!verify_request(bytes, key, bytes));
  require(!verify_answer(bytes, key, std::span<const std::byte, 16>(key)));
  const auto message = decode_resume(bytes);
  if (!message) return;
  require(bytes.size() >= sizeof(ResumeBytes));
  for (const HelloKind kind : {HelloKind::kRequest, HelloKind::kAnswer})
    require(!decode_hello(bytes, kind));
  const ResumeBytes request = seal_request(*message, key, bytes);
  const auto mac = std::span(request).last<16>();
  const ResumeBytes answer = seal_answer(*message, key, mac);
  require(verify_request(request, key, bytes) && verify_answer(answer, key, mac));
  require(!verify_request(answer, key, bytes) && !verify_answer(request, key, mac));
  auto again = decode_resume(request);
  require(again.has_value());
  again->mac = message->mac;
  require(again == message);
  require(!decode_resume(bytes.first(sizeof(ResumeBytes) - 1)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto message = decode(bytes);
  require(!message || size == kControlSize);
  if (message) {
    const ControlBytes clean = encode(*message);
    require(clean[0] == bytes[0] && clean[1] == bytes[1]);
    require(decode(clean) == message);
    require(encode(*decode(clean)) == clean);
  }
  check_hello(bytes, HelloKind::kRequest);
  check_hello(bytes, HelloKind::kAnswer);
  check_resume(bytes);
  return 0;
}
