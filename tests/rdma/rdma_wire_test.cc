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
  const auto bytes = encode(hello);
  const std::array<std::byte, Hello::kSize> expected = {std::byte{'A'},
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
                                                        std::byte{2}};
  CHECK(bytes == expected);
  CHECK(decode_hello(bytes) == hello);

  // rdma_cm delivers 56 bytes of a request's private data, 196 of a reply's, and at most 255.
  for (const std::size_t size :
       {std::size_t{24}, std::size_t{56}, std::size_t{196}, std::size_t{255}}) {
    for (const int padding : {0, 0xff}) {
      std::vector<std::byte> padded(size, static_cast<std::byte>(padding));
      std::copy(bytes.begin(), bytes.end(), padded.begin());
      CHECK(decode_hello(padded) == hello);
    }
  }
  const Hello everything{~0u, ~0u, ~0u, {255, 255, 255}, 5};
  CHECK(decode_hello(encode(everything)) == everything);
}

TEST_CASE("rdma wire: a hello of the first version of us, without receives, is one",
          "[rdma][wire]") {
  const auto bytes = encode(Hello{Hello::kWindowMayChange | Hello::kTellsReceives, 1000, 77});
  CHECK(decode_hello(std::span(bytes).first(16)) == Hello{Hello::kWindowMayChange, 1000});
  CHECK(decode_hello(std::span(bytes).first(19)) == Hello{Hello::kWindowMayChange, 1000});
  // A hello without the flag has no receives, whatever bytes follow.
  auto unpromised = encode(Hello{Hello::kWindowMayChange, 1000, 77});
  CHECK(decode_hello(unpromised) == Hello{Hello::kWindowMayChange, 1000});
}

TEST_CASE("rdma wire: a hello without an MTU, or with one that is none, tells none",
          "[rdma][wire]") {
  const Hello hello{Hello::kTellsReceives | Hello::kTellsMtu, 1000, 77, {0, 2, 0}, 3};
  const auto bytes = encode(hello);
  CHECK(bytes[20] == std::byte{3});
  CHECK(decode_hello(bytes) == hello);
  // From a release whose hello ended before the MTU.
  const Hello shorter{Hello::kTellsReceives, 1000, 77, {0, 2, 0}};
  CHECK(decode_hello(std::span(bytes).first(20)) == shorter);
  CHECK(decode_hello(std::span(bytes).first(23)) == shorter);
  for (const int wrong : {0, 6, 255}) {
    auto garbled = bytes;
    garbled[20] = static_cast<std::byte>(wrong);
    CHECK(decode_hello(garbled) == shorter);
  }
  auto unpromised = encode(Hello{0, 1000});
  unpromised[20] = std::byte{3};
  CHECK(decode_hello(unpromised) == Hello{0, 1000});
}

TEST_CASE("rdma wire: private data that is no hello is a plain peer's", "[rdma][wire][hostile]") {
  const auto bytes = encode(Hello{7, 1000});
  constexpr std::size_t kFirst = 16;
  for (std::size_t size = 0; size < kFirst; ++size)
    CHECK_FALSE(decode_hello(std::span(bytes).first(size)));
  for (std::size_t i = 0; i < 5; ++i) {  // the magic and the version
    auto garbled = bytes;
    garbled[i] ^= std::byte{1};
    CHECK_FALSE(decode_hello(garbled));
  }
  for (const std::size_t size : {std::size_t{56}, std::size_t{255}}) {
    CHECK_FALSE(decode_hello(std::vector<std::byte>(size)));
    CHECK_FALSE(decode_hello(std::vector<std::byte>(size, std::byte{0xff})));
    std::mt19937 random(1);
    std::vector<std::byte> garbage(size);
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(random() & 0xff);
    CHECK_FALSE(decode_hello(garbage));
  }
}

}  // namespace
}}}  // namespace conn::rdma

#endif  // AECONN_RDMA
