// SPDX-License-Identifier: BSD-3-Clause
// The 32-byte control messages and the hello, compared with the byte tables of
// docs/valkey-over-rdma.md.
#if AECONN_RDMA

#include "conn/rdma/protocol/wire.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

using Placed = std::pair<std::size_t, std::initializer_list<int>>;

// 32 bytes of zeros except for the given runs: {offset, bytes}.
ControlBytes table(std::initializer_list<Placed> runs) {
  ControlBytes bytes{};
  for (const auto& [offset, values] : runs) {
    std::size_t at = offset;
    for (const int value : values) bytes.at(at++) = static_cast<std::byte>(value);
  }
  return bytes;
}

// The bytes of a hello that is sent in a connection request, to be changed and cut.
std::vector<std::byte> request_of(const Hello& hello) {
  const HelloBytes bytes = encode(hello, HelloKind::kRequest);
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> answer_of(const Hello& hello) {
  const HelloBytes bytes = encode(hello, HelloKind::kAnswer);
  return {bytes.begin(), bytes.end()};
}

std::optional<Hello> in_request(std::span<const std::byte> bytes) {
  return decode_hello(bytes, HelloKind::kRequest);
}

std::optional<Hello> in_answer(std::span<const std::byte> bytes) {
  return decode_hello(bytes, HelloKind::kAnswer);
}

// A hello that asks for resume, or grants it.
Hello resuming() {
  Hello hello{Hello::kTellsReceives | Hello::kFinishes | Hello::kResumes, 1000, 77, {0, 4, 0}};
  hello.resume_ms = 0x01020304;
  return hello;
}

Hello granting() {
  Hello hello = resuming();
  hello.grant.session = 0x1122334455667788;
  for (std::size_t i = 0; i < hello.grant.key.size(); ++i)
    hello.grant.key[i] = static_cast<std::byte>(0xa0 + i);
  return hello;
}

ControlMessage feature(Opcode opcode, std::uint16_t select, std::uint64_t features) {
  ControlMessage message;
  message.opcode = opcode;
  message.select = select;
  message.features = features;
  return message;
}

ControlMessage registration(std::uint64_t address, std::uint32_t length, std::uint32_t key) {
  ControlMessage message;
  message.opcode = Opcode::kRegisterXferMemory;
  message.address = address;
  message.length = length;
  message.key = key;
  return message;
}

TEST_CASE("rdma wire: every control message has the bytes of the protocol's tables",
          "[rdma][wire]") {
  struct Row {
    ControlMessage message;
    ControlBytes bytes;
  };
  const std::vector<Row> rows = {
      {feature(Opcode::kGetServerFeature, 0, 0), table({})},
      {feature(Opcode::kGetServerFeature, 0x1234, 0x0102030405060708),
       table({{0, {0, 0}}, {2, {0x12, 0x34}}, {24, {1, 2, 3, 4, 5, 6, 7, 8}}})},
      {feature(Opcode::kSetClientFeature, 0xfffe, 0x8000000000000001),
       table({{0, {0, 1}}, {2, {0xff, 0xfe}}, {24, {0x80, 0, 0, 0, 0, 0, 0, 1}}})},
      {feature(Opcode::kSetClientFeature, kFinished, 0x0102030405060708),
       table({{0, {0, 1}}, {2, {0x41, 0x5a}}, {24, {1, 2, 3, 4, 5, 6, 7, 8}}})},
      {feature(Opcode::kKeepalive, 0, 0), table({{0, {0, 2}}})},
      {registration(0x1122334455667788, 0x00100000, 0xaabbccdd),
       table({{0, {0, 3}},
              {16, {0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88}},
              {24, {0, 0x10, 0, 0}},
              {28, {0xaa, 0xbb, 0xcc, 0xdd}}})},
      {registration(~std::uint64_t{0}, ~0u, ~0u),
       table({{0, {0, 3}},
              {16, {255, 255, 255, 255, 255, 255, 255, 255}},
              {24, {255, 255, 255, 255, 255, 255, 255, 255}}})},
  };
  for (const Row& row : rows) {
    CAPTURE(static_cast<int>(row.message.opcode));
    CHECK(encode(row.message) == row.bytes);
    const auto back = decode(row.bytes);
    REQUIRE(back);
    CHECK(*back == row.message);
  }
}

TEST_CASE("rdma wire: fields that an opcode does not have are neither sent nor read",
          "[rdma][wire]") {
  ControlMessage all = registration(1, 2, 3);
  all.select = 4;
  all.features = 5;
  all.opcode = Opcode::kKeepalive;
  CHECK(encode(all) == table({{0, {0, 2}}}));
  all.opcode = Opcode::kGetServerFeature;
  CHECK(encode(all) == table({{2, {0, 4}}, {31, {5}}}));
  all.opcode = Opcode::kRegisterXferMemory;
  CHECK(encode(all) == table({{0, {0, 3}}, {2, {0, 4}}, {23, {1}}, {27, {2}}, {31, {3}}}));

  ControlBytes bytes;
  bytes.fill(std::byte{0xee});
  bytes[0] = std::byte{0};
  bytes[1] = std::byte{2};
  CHECK(decode(bytes) == feature(Opcode::kKeepalive, 0, 0));
  bytes[1] = std::byte{1};
  CHECK(decode(bytes) == feature(Opcode::kSetClientFeature, 0xeeee, 0xeeeeeeeeeeeeeeee));
  bytes[1] = std::byte{3};
  ControlMessage registered = registration(0xeeeeeeeeeeeeeeee, 0xeeeeeeee, 0xeeeeeeee);
  registered.select = 0xeeee;
  CHECK(decode(bytes) == registered);
}

TEST_CASE("rdma wire: a control message of another size than 32 bytes is none",
          "[rdma][wire][hostile]") {
  const std::size_t size = GENERATE(0u, 1u, 2u, 31u, 33u, 64u);
  CAPTURE(size);
  std::vector<std::byte> bytes(size);
  for (int opcode = 0; opcode < 4; ++opcode) {
    if (size > 1) bytes[1] = static_cast<std::byte>(opcode);
    CHECK_FALSE(decode(bytes));
  }
}

TEST_CASE("rdma wire: every opcode beyond the four is unknown", "[rdma][wire][hostile]") {
  ControlBytes bytes{};
  int known = 0;
  for (unsigned opcode = 0; opcode <= 0xffff; ++opcode) {
    bytes[0] = static_cast<std::byte>(opcode >> 8);
    bytes[1] = static_cast<std::byte>(opcode & 0xff);
    if (const auto message = decode(bytes)) {
      ++known;
      CHECK(static_cast<unsigned>(message->opcode) == opcode);
    }
  }
  CHECK(known == 4);
}

// Goal: encode and decode are inverse. Method: random messages, encoded and decoded.
TEST_CASE("rdma wire: any message survives encode and decode", "[rdma][wire][random]") {
  const auto seed = GENERATE(take(10, random(0u, 0x7fffffffu)));
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 500; ++i) {
    ControlMessage message;
    message.opcode = static_cast<Opcode>(random() % 4);
    if (message.opcode <= Opcode::kSetClientFeature) {
      message.select = static_cast<std::uint16_t>(random());
      message.features = random();
    } else if (message.opcode == Opcode::kRegisterXferMemory) {
      message.select = static_cast<std::uint16_t>(random());
      message.address = random();
      message.length = static_cast<std::uint32_t>(random());
      message.key = static_cast<std::uint32_t>(random());
    }
    REQUIRE(decode(encode(message)) == message);
  }
}

TEST_CASE("rdma wire: a hello comes back, whatever follows it", "[rdma][wire]") {
  const Hello hello{Hello::kWindowMayChange | Hello::kSendsKeepalives | Hello::kTellsReceives,
                    3000,
                    0x102,
                    {0, 3, 14}};
  const auto bytes = request_of(hello);
  const std::vector<std::byte> expected = {std::byte{'A'},
                                           std::byte{'E'},
                                           std::byte{'C'},
                                           std::byte{'N'},
                                           std::byte{1},
                                           {},
                                           std::byte{3},
                                           std::byte{14},
                                           {},
                                           {},
                                           {},
                                           std::byte{13},
                                           {},
                                           {},
                                           std::byte{0x0b},
                                           std::byte{0xb8},
                                           {},
                                           {},
                                           std::byte{1},
                                           std::byte{2},
                                           {},
                                           {},
                                           {},
                                           {}};
  CHECK(bytes == expected);
  CHECK(answer_of(hello) == expected);
  CHECK(in_answer(bytes) == hello);
  CHECK(in_request(bytes) == hello);

  // rdma_cm delivers 56 bytes of a request's private data, 196 of a reply's, and at most 255.
  for (const std::size_t size :
       {std::size_t{24}, std::size_t{56}, std::size_t{196}, std::size_t{255}}) {
    for (const int padding : {0, 0xff}) {
      std::vector<std::byte> padded(size, static_cast<std::byte>(padding));
      std::copy(bytes.begin(), bytes.end(), padded.begin());
      CHECK(in_request(padded) == hello);
    }
  }
  Hello everything{~0u, ~0u, ~0u, {255, 255, 255}, 5, ~0u};
  CHECK(in_request(request_of(everything)) == everything);
  everything.grant.session = ~std::uint64_t{0};
  everything.grant.key.fill(std::byte{0xff});
  CHECK(in_answer(answer_of(everything)) == everything);
}

TEST_CASE("rdma wire: a hello of the first version of us, without receives, is one",
          "[rdma][wire]") {
  const auto bytes = request_of(Hello{Hello::kWindowMayChange | Hello::kTellsReceives, 1000, 77});
  CHECK(in_request(std::span(bytes).first(16)) == Hello{Hello::kWindowMayChange, 1000});
  CHECK(in_request(std::span(bytes).first(19)) == Hello{Hello::kWindowMayChange, 1000});
  // A hello without the flag has no receives, whatever bytes follow.
  auto unpromised = request_of(Hello{Hello::kWindowMayChange, 1000, 77});
  CHECK(in_request(unpromised) == Hello{Hello::kWindowMayChange, 1000});
}

TEST_CASE("rdma wire: a hello without an MTU, or with one that is none, tells none",
          "[rdma][wire]") {
  const Hello hello{Hello::kTellsReceives | Hello::kTellsMtu, 1000, 77, {0, 2, 0}, 3};
  const auto bytes = request_of(hello);
  CHECK(bytes[20] == std::byte{3});
  CHECK(in_request(bytes) == hello);
  // From a release whose hello ended before the MTU.
  const Hello shorter{Hello::kTellsReceives, 1000, 77, {0, 2, 0}};
  CHECK(in_request(std::span(bytes).first(20)) == shorter);
  CHECK(in_request(std::span(bytes).first(23)) == shorter);
  for (const int wrong : {0, 6, 255}) {
    auto garbled = bytes;
    garbled[20] = static_cast<std::byte>(wrong);
    CHECK(in_request(garbled) == shorter);
  }
  auto unpromised = request_of(Hello{0, 1000});
  unpromised[20] = std::byte{3};
  CHECK(in_request(unpromised) == Hello{0, 1000});
}

TEST_CASE("rdma wire: a hello that asks for resume has 28 bytes", "[rdma][wire]") {
  const Hello hello = resuming();
  const auto bytes = request_of(hello);
  std::vector<std::byte> expected = request_of(Hello{0, 1000, 77, {0, 4, 0}});
  expected[10] = std::byte{0x03};  // the flags 512 and 256
  expected[11] = std::byte{0x08};
  for (const int each : {1, 2, 3, 4}) expected.push_back(static_cast<std::byte>(each));
  CHECK(bytes == expected);
  CHECK(in_request(bytes) == hello);
  auto granted = resuming();  // a grant in a request is not sent
  granted.grant = granting().grant;
  CHECK(request_of(granted) == bytes);

  for (const std::size_t size : {std::size_t{56}, std::size_t{255}})
    for (const int padding : {0, 0xff}) {
      std::vector<std::byte> padded(size, static_cast<std::byte>(padding));
      std::copy(bytes.begin(), bytes.end(), padded.begin());
      CHECK(in_request(padded) == hello);
    }
}

TEST_CASE("rdma wire: a hello that grants resume has 52 bytes", "[rdma][wire]") {
  const Hello hello = granting();
  const auto bytes = answer_of(hello);
  auto expected = request_of(resuming());
  for (const int each : {0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88})
    expected.push_back(static_cast<std::byte>(each));
  for (int i = 0; i < 16; ++i) expected.push_back(static_cast<std::byte>(0xa0 + i));
  REQUIRE(bytes.size() == 52);
  CHECK(bytes == expected);
  CHECK(in_answer(bytes) == hello);
  for (const int padding : {0, 0xff}) {
    std::vector<std::byte> padded(196, static_cast<std::byte>(padding));
    std::copy(bytes.begin(), bytes.end(), padded.begin());
    CHECK(in_answer(padded) == hello);
  }
}

TEST_CASE("rdma wire: a hello that ends before what resume needs has no resume",
          "[rdma][wire][hostile]") {
  Hello without = resuming();
  without.flags &= ~Hello::kResumes;
  without.resume_ms = 0;
  const auto asked = request_of(resuming());
  const auto granted = answer_of(granting());
  for (std::size_t size = Hello::kSize; size < Hello::kRequestSize; ++size)
    CHECK(in_request(std::span(asked).first(size)) == without);
  for (std::size_t size = Hello::kSize; size < Hello::kAnswerSize; ++size)
    CHECK(in_answer(std::span(granted).first(size)) == without);
  CHECK(in_answer(asked) == without);                // as long as a request only
  CHECK(in_request(granted) == resuming());          // the rest is not read
  CHECK(in_answer(request_of(without)) == without);  // what a release without resume sends

  // The same where rdma_cm pads what was cut with zeros.
  const auto cut = [](std::vector<std::byte> bytes, std::size_t size) {
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(size), bytes.end(), std::byte{0});
    bytes.resize(196);
    return bytes;
  };
  CHECK(in_request(cut(asked, 24)) == without);
  CHECK(in_answer(cut(granted, 24)) == without);
  CHECK(in_answer(cut(granted, 28)) == without);  // no session
  CHECK(in_answer(cut(granted, 36)) == without);  // no key
}

TEST_CASE("rdma wire: a hello without the flag has no resume, whatever bytes follow",
          "[rdma][wire]") {
  Hello hello = granting();
  hello.flags &= ~Hello::kResumes;
  CHECK(request_of(hello).size() == 24);
  CHECK(answer_of(hello).size() == 24);
  auto bytes = answer_of(granting());
  bytes[10] &= ~std::byte{0x02};
  hello.resume_ms = 0;
  hello.grant = {};
  CHECK(in_answer(bytes) == hello);
  CHECK(in_request(bytes) == hello);
}

TEST_CASE("rdma wire: private data that is no hello is a plain peer's", "[rdma][wire][hostile]") {
  const auto bytes = request_of(Hello{7, 1000});
  constexpr std::size_t kFirst = 16;
  for (std::size_t size = 0; size < kFirst; ++size)
    CHECK_FALSE(in_request(std::span(bytes).first(size)));
  for (std::size_t i = 0; i < 5; ++i) {  // the magic and the version
    auto garbled = bytes;
    garbled[i] ^= std::byte{1};
    CHECK_FALSE(in_request(garbled));
  }
  for (const std::size_t size : {std::size_t{56}, std::size_t{255}}) {
    CHECK_FALSE(in_request(std::vector<std::byte>(size)));
    CHECK_FALSE(in_request(std::vector<std::byte>(size, std::byte{0xff})));
    std::mt19937 random(1);
    std::vector<std::byte> garbage(size);
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(random() & 0xff);
    CHECK_FALSE(in_request(garbage));
  }
}

}  // namespace
}}}  // namespace conn::rdma

#endif  // AECONN_RDMA
