// SPDX-License-Identifier: BSD-3-Clause
// The request and the answer of a resume, compared with the byte table of
// docs/valkey-over-rdma.md, their codes of authentication, and the texts of a refusal.
#if AECONN_RDMA

#include "conn/rdma/protocol/resume_message.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conn/rdma/device/reject_reason.h"
#include "tests/support/catch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

constexpr std::uint32_t kFlags = Hello::kTellsReceives | Hello::kTellsMtu | Hello::kFinishes;

ResumeMessage some_message() {
  ResumeMessage message;
  message.hello = Hello{kFlags, 0, 0x21222324, {0, 4, 1}, 3};
  message.generation = 0x31323334;
  message.session = 0x4142434445464748;
  message.received = 0x5152535455565758;
  message.reason = ResumeReason::kBetterPath;
  return message;
}

SipKey some_key() {
  SipKey key;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(0x90 + i);
  return key;
}

std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> bytes;
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}

const std::vector<std::byte> kBound = bytes_of("10.77.0.2:4711 17");

std::span<const std::byte, 16> mac_in(const ResumeBytes& bytes) {
  return std::span(bytes).last<16>();
}

template <class Bytes>
Bytes flipped(Bytes bytes, std::size_t bit) {
  bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  return bytes;
}

TEST_CASE("rdma resume: a request has the bytes of the table", "[rdma][resume]") {
  const ResumeBytes bytes = seal_request(some_message(), some_key(), kBound);
  const int expected[40] = {'A',  'E',  'C',  'N',  2,    0,    4,    1,     // version, release
                            0,    0,    0x01, 0x48, 0x31, 0x32, 0x33, 0x34,  // flags, generation
                            0x21, 0x22, 0x23, 0x24, 3,    3,    0,    0,  // receives, mtu, reason
                            0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,   // session
                            0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58};  // received
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    CAPTURE(i);
    CHECK(std::to_integer<int>(bytes[i]) == expected[i]);
  }
  std::vector<std::byte> covered{std::byte{1}};
  covered.insert(covered.end(), bytes.begin(), bytes.begin() + 40);
  covered.insert(covered.end(), kBound.begin(), kBound.end());
  const SipHash mac = siphash128(some_key(), covered);
  CHECK(std::equal(mac.begin(), mac.end(), bytes.begin() + 40));
}

TEST_CASE("rdma resume: a request to forget says how many bytes were written", "[rdma][resume]") {
  ResumeMessage message = some_message();
  message.reason = ResumeReason::kForget;
  message.total = 0x6162636465666768;
  const ResumeBytes bytes = seal_request(message, some_key(), kBound);
  const int expected[40] = {'A',  'E',  'C',  'N',  2,    0,    4,    1,     // version, release
                            0,    0,    0x01, 0x48, 0x31, 0x32, 0x33, 0x34,  // flags, generation
                            0x55, 0x56, 0x57, 0x58, 3,    4,    0,    0,  // received, mtu, reason
                            0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,   // session
                            0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68};  // total
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    CAPTURE(i);
    CHECK(std::to_integer<int>(bytes[i]) == expected[i]);
  }
  CHECK(verify_request(bytes, some_key(), kBound));
  const auto decoded = decode_resume(bytes);
  REQUIRE(decoded);
  CHECK(decoded->reason == ResumeReason::kForget);
  CHECK(decoded->total == message.total);
  CHECK(decoded->received == 0x55565758);
  CHECK((decoded->hello.flags & Hello::kTellsReceives) == 0);
  CHECK(decoded->hello.receives == 0);
}

TEST_CASE("rdma resume: a request is bound to an address in one form, without its scope",
          "[rdma][resume]") {
  const auto bound = [](const std::string& host, std::uint16_t port) {
    SocketAddress address;
    REQUIRE(numeric_address(host, port, address));
    return bound_address(address);
  };
  const BoundAddress four = bound("10.77.0.2", 0x1234);
  const int expected[18] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 2, 0x12, 0x34};
  for (std::size_t i = 0; i < four.size(); ++i) {
    CAPTURE(i);
    CHECK(std::to_integer<int>(four[i]) == expected[i]);
  }
  CHECK(bound("::ffff:10.77.0.2", 0x1234) == four);
  CHECK(bound("10.77.0.2", 0x1235) != four);
  const BoundAddress six = bound("fe80::1", 5);
  CHECK(std::to_integer<int>(six[0]) == 0xfe);
  CHECK(std::to_integer<int>(six[15]) == 1);
  CHECK(bound("fe80::1%lo", 5) == six);
  CHECK(bound("fe80::2", 5) != six);
}

TEST_CASE("rdma resume: an answer has the bytes of a request and a MAC over the request's",
          "[rdma][resume]") {
  const ResumeBytes request = seal_request(some_message(), some_key(), kBound);
  const ResumeBytes answer = seal_answer(some_message(), some_key(), mac_in(request));
  CHECK(std::equal(answer.begin(), answer.begin() + 40, request.begin()));
  std::vector<std::byte> covered{std::byte{2}};
  covered.insert(covered.end(), answer.begin(), answer.begin() + 40);
  covered.insert(covered.end(), request.begin() + 40, request.end());
  const SipHash mac = siphash128(some_key(), covered);
  CHECK(std::equal(mac.begin(), mac.end(), answer.begin() + 40));
}

// Goal: sealing and decoding are inverse. Method: random messages and keys, in padding as rdma_cm
// has it.
TEST_CASE("rdma resume: any message comes back, whatever follows it", "[rdma][resume][random]") {
  const auto seed = GENERATE(take(10, random(0u, 0x7fffffffu)));
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 100; ++i) {
    ResumeMessage message;
    message.hello.flags = static_cast<std::uint32_t>(random()) | kFlags;
    message.hello.receives = static_cast<std::uint32_t>(random());
    for (auto& each : message.hello.release) each = static_cast<std::uint8_t>(random() & 0xff);
    message.hello.mtu = static_cast<std::uint8_t>(1 + random() % 5);
    message.generation = static_cast<std::uint32_t>(random());
    message.session = random();
    message.received = random();
    message.reason = static_cast<ResumeReason>(random() % 5);
    if (message.reason == ResumeReason::kForget) {  // it has no receives
      message.hello.flags &= ~Hello::kTellsReceives;
      message.hello.receives = 0;
      message.received = static_cast<std::uint32_t>(message.received);
      message.total = random();
    }
    SipKey key;
    for (std::byte& each : key) each = static_cast<std::byte>(random() & 0xff);
    std::vector<std::byte> bound(random() % 64);
    for (std::byte& each : bound) each = static_cast<std::byte>(random() & 0xff);

    const ResumeBytes request = seal_request(message, key, bound);
    const ResumeBytes answer = seal_answer(message, key, mac_in(request));
    for (const ResumeBytes& bytes : {request, answer})
      for (const std::size_t size : {std::size_t{56}, std::size_t{196}, std::size_t{255}}) {
        std::vector<std::byte> padded(size, static_cast<std::byte>(random() & 0xff));
        std::copy(bytes.begin(), bytes.end(), padded.begin());
        std::copy(bytes.begin() + 40, bytes.end(), message.mac.begin());
        CHECK(decode_resume(padded) == message);
        const bool asks = bytes == request;
        CHECK(verify_request(padded, key, bound) == asks);
        CHECK(verify_answer(padded, key, mac_in(request)) != asks);
      }
  }
}

TEST_CASE("rdma resume: a request with any other bit is not verified", "[rdma][resume][hostile]") {
  const ResumeBytes bytes = seal_request(some_message(), some_key(), kBound);
  REQUIRE(verify_request(bytes, some_key(), kBound));
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    CAPTURE(bit);
    CHECK_FALSE(verify_request(flipped(bytes, bit), some_key(), kBound));
  }
  for (std::size_t bit = 0; bit < 8 * kBound.size(); ++bit) {
    CAPTURE(bit);
    CHECK_FALSE(verify_request(bytes, some_key(), flipped(kBound, bit)));
  }
  for (std::size_t bit = 0; bit < 8 * 16; ++bit) {
    CAPTURE(bit);
    CHECK_FALSE(verify_request(bytes, flipped(some_key(), bit), kBound));
  }
  for (std::size_t size = 0; size < kBound.size(); ++size)
    CHECK_FALSE(verify_request(bytes, some_key(), std::span(kBound).first(size)));
  auto longer = kBound;
  longer.push_back(std::byte{0});
  CHECK_FALSE(verify_request(bytes, some_key(), longer));
}

TEST_CASE("rdma resume: an answer with any other bit, or to another request, is not verified",
          "[rdma][resume][hostile]") {
  const ResumeBytes request = seal_request(some_message(), some_key(), kBound);
  const ResumeBytes bytes = seal_answer(some_message(), some_key(), mac_in(request));
  REQUIRE(verify_answer(bytes, some_key(), mac_in(request)));
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    CAPTURE(bit);
    CHECK_FALSE(verify_answer(flipped(bytes, bit), some_key(), mac_in(request)));
  }
  for (std::size_t bit = 8 * 40; bit < 8 * request.size(); ++bit) {
    CAPTURE(bit);
    CHECK_FALSE(verify_answer(bytes, some_key(), mac_in(flipped(request, bit))));
  }
  for (std::size_t bit = 0; bit < 8 * 16; ++bit) {
    CAPTURE(bit);
    CHECK_FALSE(verify_answer(bytes, flipped(some_key(), bit), mac_in(request)));
  }
  ResumeMessage next = some_message();
  ++next.generation;
  CHECK_FALSE(verify_answer(bytes, some_key(), mac_in(seal_request(next, some_key(), kBound))));
}

// Goal: nobody can send an end's own message back to it, as the other kind. Method: what is bound
// is a MAC, as in an answer.
TEST_CASE("rdma resume: no answer is a request and no request an answer",
          "[rdma][resume][hostile]") {
  const ResumeBytes first = seal_request(some_message(), some_key(), kBound);
  const ResumeBytes request = seal_request(some_message(), some_key(), mac_in(first));
  const ResumeBytes answer = seal_answer(some_message(), some_key(), mac_in(first));
  CHECK(verify_request(request, some_key(), mac_in(first)));
  CHECK_FALSE(verify_answer(request, some_key(), mac_in(first)));
  CHECK(verify_answer(answer, some_key(), mac_in(first)));
  CHECK_FALSE(verify_request(answer, some_key(), mac_in(first)));
}

TEST_CASE("rdma resume: less than 56 bytes, another begin or reason is no message",
          "[rdma][resume][hostile]") {
  const ResumeBytes bytes = seal_request(some_message(), some_key(), kBound);
  REQUIRE(decode_resume(bytes));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    const auto cut = std::span(bytes).first(size);
    CHECK_FALSE(decode_resume(cut));
    CHECK_FALSE(verify_request(cut, some_key(), kBound));
    CHECK_FALSE(verify_answer(cut, some_key(), mac_in(bytes)));
  }
  for (std::size_t bit = 0; bit < 8 * 5; ++bit) {  // the magic and the version
    CAPTURE(bit);
    CHECK_FALSE(decode_resume(flipped(bytes, bit)));
  }
  for (int reason = 0; reason < 256; ++reason) {
    CAPTURE(reason);
    auto other = bytes;
    other[21] = static_cast<std::byte>(reason);
    const auto message = decode_resume(other);
    REQUIRE(message.has_value() == (reason <= 4));
    if (message) CHECK(static_cast<int>(message->reason) == reason);
  }
  for (const std::size_t size : {std::size_t{56}, std::size_t{255}}) {
    CHECK_FALSE(decode_resume(std::vector<std::byte>(size)));
    CHECK_FALSE(decode_resume(std::vector<std::byte>(size, std::byte{0xff})));
  }
}

TEST_CASE("rdma resume: receives and MTU count only where the flags and values allow",
          "[rdma][resume][hostile]") {
  ResumeMessage message = some_message();
  message.hello.flags = Hello::kFinishes;
  const ResumeBytes unpromised = seal_request(message, some_key(), kBound);
  const auto decoded = decode_resume(unpromised);
  REQUIRE(decoded);
  CHECK(decoded->hello == Hello{Hello::kFinishes, 0, 0, {0, 4, 1}});
  for (const int wrong : {0, 6, 255}) {
    message.hello = some_message().hello;
    message.hello.mtu = static_cast<std::uint8_t>(wrong);
    const auto other = decode_resume(seal_request(message, some_key(), kBound));
    REQUIRE(other);
    CHECK(other->hello ==
          Hello{kFlags & ~Hello::kTellsMtu, 0, some_message().hello.receives, {0, 4, 1}});
  }
}

TEST_CASE("rdma resume: members that are not sent change no byte", "[rdma][resume]") {
  ResumeMessage message = some_message();
  const ResumeBytes bytes = seal_request(message, some_key(), kBound);
  message.hello.keepalive_ms = 1000;
  message.hello.resume_ms = 1000;
  message.hello.grant.session = 7;
  message.hello.grant.key = some_key();
  message.mac.fill(std::byte{7});
  CHECK(seal_request(message, some_key(), kBound) == bytes);
}

TEST_CASE("rdma resume: a hello is no resume, a resume is no hello", "[rdma][resume]") {
  const ResumeBytes request = seal_request(some_message(), some_key(), kBound);
  const ResumeBytes answer = seal_answer(some_message(), some_key(), mac_in(request));
  for (const HelloKind kind : {HelloKind::kRequest, HelloKind::kAnswer}) {
    CHECK_FALSE(decode_hello(request, kind));
    CHECK_FALSE(decode_hello(answer, kind));
    Hello hello = some_message().hello;
    hello.flags |= Hello::kResumes;
    hello.resume_ms = 1000;
    hello.grant = {1, some_key()};
    std::vector<std::byte> padded(196);
    const HelloBytes bytes = encode(hello, kind);
    std::copy(bytes.begin(), bytes.end(), padded.begin());
    CHECK_FALSE(decode_resume(padded));
  }
}

TEST_CASE("rdma resume: the texts of a refusal tell which it is", "[rdma][resume]") {
  CHECK(text_of(Refused::kUnknown) == "resume: unknown session");
  CHECK(text_of(Refused::kOver) == "resume: the stream is over");
  CHECK(text_of(Refused::kGap) == "resume: bytes are missing");
  CHECK(text_of(Refused::kNone).empty());
  for (const Refused refused : {Refused::kUnknown, Refused::kOver, Refused::kGap}) {
    std::string text(text_of(refused));
    CHECK(refused_in(text) == refused);
    CHECK(text.size() <= 100);  // what reject() sends
    text.resize(148);           // what rdma_cm delivers of a rejection
    CHECK(refused_in(text) == refused);
    CHECK(refused_in(reject_reason_in(bytes_of(text))) == refused);
    CHECK(refused_in(text_of(refused).substr(1)) == Refused::kNone);
    CHECK(refused_in(text_of(refused).substr(0, 12)) == Refused::kNone);
  }
  for (const std::string_view other : {"", ": ", "resume: ", "no memory", "try again in 50 ms"})
    CHECK(refused_in(other) == Refused::kNone);
}

}  // namespace
}}}  // namespace conn::rdma

#endif  // AECONN_RDMA
