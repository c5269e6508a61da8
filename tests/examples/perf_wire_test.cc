// SPDX-License-Identifier: BSD-3-Clause
// conn-perf's messages: read back as written, in pieces of any size; damaged messages are detected.

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "programs/conn_perf/fields.h"
#include "programs/conn_perf/outbox.h"
#include "programs/conn_perf/wire.h"
#include "tests/support/catch.h"

using perf::Kind;
using perf::Parser;

namespace {

struct Seen {
  Kind kind;
  std::uint64_t sequence;
  std::size_t size;
  std::string text;
  bool operator==(const Seen&) const = default;
};

std::vector<Seen> feed(Parser& parser, std::string_view bytes) {
  std::vector<Seen> seen;
  std::span<const char> rest(bytes);
  while (const auto message = parser.next(rest))
    seen.push_back({message->kind, message->sequence, message->size, std::string(message->text)});
  if (parser.error().empty()) REQUIRE(rest.empty());
  return seen;
}

/// An outbox's output if writes accept `most` bytes at a time.
std::string drain(perf::Outbox& outbox, const perf::Payload& payload, std::size_t most) {
  perf::Batch batch;
  std::string out;
  while (!outbox.empty()) {
    outbox.gather(payload, batch);
    std::string all;
    for (const iovec& part : batch.vectors())
      all.append(static_cast<char*>(part.iov_base), part.iov_len);
    REQUIRE(all.size() == batch.size());
    REQUIRE(!all.empty());
    all.resize(std::min(all.size(), most));
    outbox.advance(all.size());
    out += all;
  }
  return out;
}

std::string data_messages(std::size_t size, std::uint64_t count, bool verify = true) {
  perf::Payload payload;
  payload.reserve(size);
  perf::Outbox outbox;
  outbox.set_data(Kind::kRequest, size, verify, 7);
  outbox.add_data(count);
  return drain(outbox, payload, SIZE_MAX);
}

std::string header(std::uint32_t length, std::uint32_t sum, std::uint8_t kind) {
  char bytes[perf::kHeaderSize];
  perf::Header{length, sum, std::uint64_t{kind} << 56 | 5}.encode(bytes);
  return {bytes, sizeof bytes};
}

}  // namespace

TEST_CASE("perf wire: payloads differ from message to message and from lane to lane", "[perf]") {
  perf::Payload payload;
  payload.reserve(4096);
  const auto text = [&](std::uint64_t lane, std::uint64_t message) {
    const auto bytes = payload.of((lane << 32) + message, 64);
    return std::string(bytes.begin(), bytes.end());
  };
  for (std::uint64_t lane = 2; lane < 200; ++lane) REQUIRE(text(1, 5) != text(lane, 5));
  REQUIRE(text(1, 5) != text(1, 6));
  REQUIRE(text(1, 5) != text(2, 4));
}

TEST_CASE("perf wire: what is written is read back, cut at every position", "[perf]") {
  std::string bytes;
  perf::append_text(bytes, Kind::kHello, 0, "mode=stream\n");
  bytes += data_messages(16, 2) + data_messages(100, 1);
  perf::append_text(bytes, Kind::kEnd, 9, "");
  const std::vector<Seen> expected = {{Kind::kHello, 0, 28, "mode=stream\n"},
                                      {Kind::kRequest, 7, 16, ""},
                                      {Kind::kRequest, 8, 16, ""},
                                      {Kind::kRequest, 7, 100, ""},
                                      {Kind::kEnd, 9, 16, ""}};
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    CAPTURE(cut);
    Parser parser;
    std::vector<Seen> seen = feed(parser, std::string_view(bytes).substr(0, cut));
    for (const Seen& message : feed(parser, std::string_view(bytes).substr(cut)))
      seen.push_back(message);
    REQUIRE(parser.error().empty());
    REQUIRE_FALSE(parser.midway());
    REQUIRE(seen == expected);
  }
  Parser parser;
  std::vector<Seen> seen;
  for (const char byte : bytes) {
    for (const Seen& message : feed(parser, {&byte, 1})) seen.push_back(message);
  }
  REQUIRE(seen == expected);
}

TEST_CASE("perf wire: a header's bytes are as documented", "[perf]") {
  std::string bytes;
  perf::append_text(bytes, Kind::kStats, 0x0102030405, "ab");
  REQUIRE(bytes.size() == 18);
  REQUIRE(bytes.substr(0, 4) == std::string("\x12\0\0\0", 4));
  REQUIRE(bytes.substr(8, 8) == std::string("\x05\x04\x03\x02\x01\0\0\x08", 8));
}

TEST_CASE("perf wire: any damaged byte of a verified message is noticed", "[perf][hostile]") {
  const std::string good = data_messages(64, 1);
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      CAPTURE(at, bit);
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      Parser parser;
      // A changed length may make the parser wait for more bytes; then nothing is accepted, either.
      REQUIRE(feed(parser, bad).empty());
      REQUIRE((!parser.error().empty() || (at < 4 && parser.midway())));
    }
  }
}

TEST_CASE("perf wire: a wrong checksum is noticed in pieces as well, and named",
          "[perf][hostile]") {
  std::string bytes = data_messages(1000, 1);
  bytes[700] = static_cast<char>(bytes[700] + 1);
  Parser parser;
  REQUIRE(feed(parser, bytes.substr(0, 300)).empty());
  REQUIRE(parser.error().empty());
  REQUIRE(feed(parser, bytes.substr(300)).empty());
  REQUIRE(parser.error().starts_with("request 7 of 1000 bytes: the checksum is "));
  REQUIRE(feed(parser, data_messages(16, 1)).empty());  // the error is permanent
}

TEST_CASE("perf wire: lengths, kinds and texts that cannot be are refused", "[perf][hostile]") {
  const auto error_of = [](const std::string& bytes, bool in_pieces) {
    Parser parser;
    for (std::size_t at = 0; at < bytes.size(); at += in_pieces ? 5 : bytes.size())
      feed(parser, std::string_view(bytes).substr(at, in_pieces ? 5 : bytes.size()));
    return parser.error();
  };
  for (const bool in_pieces : {false, true}) {
    for (const std::uint32_t length : {0u, 1u, 15u, (64u << 20) + 1, 0x80000000u, 0xffffffffu}) {
      CAPTURE(length, in_pieces);
      REQUIRE(error_of(header(length, 0, 1), in_pieces).find("16 to 67108864 are allowed") !=
              std::string::npos);
    }
    for (const int kind : {0, 11, 77, 255}) {
      REQUIRE(error_of(header(16, 0, static_cast<std::uint8_t>(kind)), in_pieces) ==
              "a message of the unknown kind " + std::to_string(kind));
    }
    REQUIRE(error_of(header(16 + 4097, 0, 4), in_pieces) ==
            "a text of 4097 bytes; at most 4096 are allowed");
  }
}

TEST_CASE("perf wire: an announced length allocates nothing and ends with its bytes",
          "[perf][hostile]") {
  Parser parser;
  parser.trust_data();
  REQUIRE(feed(parser, header(64 << 20, 0, 1)).empty());
  const std::string piece(1 << 20, 'x');
  for (int i = 0; i < 63; ++i) REQUIRE(feed(parser, piece).empty());
  REQUIRE(feed(parser, piece.substr(16)).size() == 1);
}

TEST_CASE("perf wire: data that is trusted is taken with any checksum, a text never",
          "[perf][hostile]") {
  Parser parser;
  parser.trust_data();
  REQUIRE(feed(parser, header(16, 0x12345678, 1)).size() == 1);
  REQUIRE(feed(parser, header(16, 0x12345678, 4)).empty());
  REQUIRE_FALSE(parser.error().empty());
}

TEST_CASE("perf wire: random bytes never get beyond an error", "[perf][hostile][random]") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = data_messages(40, 3);
    for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    Parser parser;
    std::size_t count = 0;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t part = 1 + random() % 50;
      count += feed(parser, std::string_view(bytes).substr(at, part)).size();
      at += part;
    }
    REQUIRE(count <= 3);
  }
}

TEST_CASE("perf outbox: short writes of any size change no byte", "[perf]") {
  const std::size_t size = GENERATE(16u, 17u, 100u, 9000u, 100000u);
  perf::Payload payload;
  payload.reserve(size);
  const auto filled = [&] {
    perf::Outbox outbox;
    outbox.set_data(Kind::kData, size, true, 1000);
    outbox.add_text(Kind::kHello, 0, "hello");
    outbox.add_data(5);
    return outbox;
  };
  perf::Outbox whole = filled();
  const std::string expected = drain(whole, payload, SIZE_MAX);
  REQUIRE(expected.size() == 21 + 5 * size);
  REQUIRE(whole.sent() == 1005);
  for (const std::size_t most : {1u, 7u, 16u, 21u, 22u, 1000u, 70000u}) {
    if (most < size / 1000) continue;
    CAPTURE(size, most);
    perf::Outbox outbox = filled();
    REQUIRE((drain(outbox, payload, most) == expected));
  }
  Parser parser;
  REQUIRE(feed(parser, expected).size() == 6);
}

TEST_CASE("perf outbox: a text goes before messages that have not begun, never into one",
          "[perf]") {
  perf::Payload payload;
  payload.reserve(100);
  perf::Batch batch;
  perf::Outbox outbox;
  outbox.set_data(Kind::kData, 100, true, 0);
  outbox.add_data(10);
  outbox.gather(payload, batch);
  const std::string first(static_cast<char*>(batch.vectors()[0].iov_base), 130);
  outbox.advance(130);
  REQUIRE(outbox.begun() == 2);
  REQUIRE(outbox.sent() == 1);
  outbox.add_text(Kind::kAck, 0, "x");
  outbox.end_data();
  Parser parser;
  const auto seen = feed(parser, first + drain(outbox, payload, 3));
  REQUIRE(parser.error().empty());
  REQUIRE(seen.size() == 3);
  REQUIRE(seen[1].sequence == 1);
  REQUIRE(seen[2].kind == Kind::kAck);
}

TEST_CASE("perf outbox: messages next to each other have different payloads", "[perf]") {
  const std::string bytes = data_messages(64, 2);
  REQUIRE(bytes.substr(16, 48) != bytes.substr(80, 48));
}

TEST_CASE("perf outbox: without verification there is no checksum", "[perf]") {
  REQUIRE(perf::Header::decode(data_messages(64, 1, false).data()).checksum == 0);
  REQUIRE(perf::Header::decode(data_messages(64, 1, true).data()).checksum != 0);
}

TEST_CASE("perf fields: what is stored is loaded; what is no line or no number is nothing",
          "[perf]") {
  perf::Fields fields;
  fields.set("text", "a=b c");
  fields.set("lines", "one\ntwo");
  fields.set("number", std::uint64_t{18446744073709551615u});
  fields.set("absent", std::optional<std::uint64_t>());
  const perf::Fields loaded = perf::Fields::parse(fields.to_string());
  REQUIRE(loaded.text("text") == "a=b c");
  REQUIRE(loaded.text("lines") == "one two");
  REQUIRE(loaded.number("number") == 18446744073709551615u);
  REQUIRE_FALSE(loaded.number("absent"));
  REQUIRE_FALSE(loaded.number("text"));
  const perf::Fields odd =
      perf::Fields::parse("\n\nno equals\n=empty\nx=1\nx=2\nbig=99999999999999999999\nn=1x");
  REQUIRE(odd.number("x") == 2u);
  REQUIRE_FALSE(odd.number("big"));
  REQUIRE_FALSE(odd.number("n"));
}
