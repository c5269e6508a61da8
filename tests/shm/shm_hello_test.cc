// SPDX-License-Identifier: BSD-3-Clause
// The two messages of shm's set-up: what they contain, what is refused, and that no descriptor is
// left open whatever a peer sends.

#include <string>

#include "tests/shm/shm_kit.h"
#include "tests/support/catch.h"

using conn::shm::Answer;
using conn::shm::Hello;
using conn::shm::Receipt;
using testing::SocketPair;
using Step = conn::shm::Receipt::Step;

namespace {

constexpr std::uint64_t kMostRing = 16 << 20;

std::string hello() { return conn::shm::encode(Hello{64 << 10, 128 << 10}); }

/// What a server answers to this hello.
Answer answered(const std::string& message) {
  Hello ignored;
  return conn::shm::decode(message, kMostRing, ignored);
}

std::string changed(std::size_t at, const std::string& bytes) {
  return hello().replace(at, bytes.size(), bytes);
}

}  // namespace

TEST_CASE("shm: a hello says how large the rings are", "[shm][shm-hello]") {
  Hello read;
  REQUIRE(conn::shm::decode(hello(), kMostRing, read).status == Answer::kStands);
  CHECK(read.client_ring == 64 << 10);
  CHECK(read.server_ring == 128 << 10);
  CHECK(hello().size() == conn::shm::kHeader);
  CHECK(conn::shm::message_length(hello()) == conn::shm::kHeader);
}

TEST_CASE("shm: an answer brings the reason in words", "[shm][shm-hello]") {
  Answer read;
  REQUIRE(conn::shm::decode(conn::shm::encode({Answer::kFull, "full; try again in 100 ms"}), read));
  CHECK(read.status == Answer::kFull);
  CHECK(read.text == "full; try again in 100 ms");
  REQUIRE(conn::shm::decode(conn::shm::encode(Answer{}), read));
  CHECK(read.status == Answer::kStands);
  const std::string endless(10000, 'x');
  CHECK(conn::shm::encode({Answer::kRule, endless}).size() == conn::shm::kMostMessage);
}

TEST_CASE("shm: a hello that breaks a rule is refused with its reason",
          "[shm][shm-hello][hostile]") {
  using namespace std::string_literals;
  CHECK(answered(changed(7, "\2")).status == Answer::kVersion);
  CHECK(answered(changed(12, "\2")).status == Answer::kVersion);         // a feature that must be
  CHECK(answered(changed(16, "\1")).status == Answer::kStands);          // one that may be
  CHECK(answered(changed(20, "\4\2\1\2"s)).status == Answer::kVersion);  // another layout
  CHECK(answered(changed(24, "\0\0\0\0"s)).status == Answer::kSize);
  CHECK(answered(changed(24, "\1\0\1\0"s)).status == Answer::kSize);    // no power of two
  CHECK(answered(changed(28, "\0\0\0\x02"s)).status == Answer::kSize);  // 32 MiB
  CHECK(answered(changed(28, "\0\0\0\x80"s)).status == Answer::kSize);
  CHECK(answered(changed(48, "\1\0"s)).status == Answer::kRule);  // a text that is not there
  Answer ignored;
  const std::string answer = conn::shm::encode({Answer::kRule, "why"});
  CHECK_FALSE(conn::shm::decode(std::string(answer).replace(24, 1, "\4"), ignored));
  CHECK_FALSE(conn::shm::decode(std::string(answer).replace(7, 1, "\2"), ignored));
}

TEST_CASE("shm: a message is received in pieces, or at once with its descriptors",
          "[shm][shm-hello]") {
  const std::size_t before = testing::count_descriptors();
  {
    SocketPair sockets;
    Receipt receipt;
    CHECK(receipt.receive(sockets.other.get()) == Step::kMore);
    const std::string all = hello();
    const bool whole = GENERATE(true, false);
    if (whole) {
      const conn::tcp::Fd one = testing::memory(64 << 10, 0), other = testing::memory(64 << 10, 0);
      REQUIRE(testing::pass(sockets.one.get(), all, {one.get(), other.get()}) == 0);
    } else {
      for (std::size_t i = 0; i < all.size(); i += 21) {
        CHECK(receipt.receive(sockets.other.get()) == Step::kMore);
        REQUIRE(conn::shm::send_message(sockets.one.get(), all.substr(i, 21)) == 0);
      }
    }
    CHECK(receipt.receive(sockets.other.get()) == Step::kDone);
    CHECK(receipt.descriptors() == (whole ? 2 : 0));
    CHECK(receipt.message() == all);
  }
  CHECK(testing::open_descriptors_become(before));
}

TEST_CASE("shm: what is no message is known by its first bytes", "[shm][shm-hello][hostile]") {
  SocketPair sockets;
  Receipt receipt;
  const std::string other = GENERATE(as<std::string>{}, "P", "PING\r\n", "aeshm", "aeshm\r\n\1");
  REQUIRE(conn::shm::send_message(sockets.one.get(), other) == 0);
  CHECK(receipt.receive(sockets.other.get()) == (other[0] == 'a' ? Step::kMore : Step::kForeign));
  sockets.one.reset();
  if (other[0] == 'a') CHECK(receipt.receive(sockets.other.get()) == Step::kEnded);
}

TEST_CASE("shm: a length that is impossible ends the message", "[shm][shm-hello][hostile]") {
  SocketPair sockets;
  Receipt receipt;
  const std::string length =
      GENERATE(as<std::string>{}, std::string("\x3f\0", 2), std::string("\x01\x10", 2), "\xff\xff");
  REQUIRE(conn::shm::send_message(sockets.one.get(), changed(10, length)) == 0);
  CHECK(receipt.receive(sockets.other.get()) == Step::kForeign);
}

TEST_CASE("shm: descriptors that do not belong to a hello are closed, and refused",
          "[shm][shm-hello][hostile]") {
  const std::size_t before = testing::count_descriptors();
  {
    SocketPair sockets;
    Receipt receipt;
    const conn::tcp::Fd memory = testing::memory(64 << 10, 0);
    const int it = memory.get(), other = sockets.one.get();
    switch (GENERATE(0, 1, 2, 3)) {
      case 0:
        REQUIRE(testing::pass(other, hello(), {it, it, it}) == 0);
        break;
      case 1:  // as many as the kernel takes
        REQUIRE(testing::pass(other, hello(), std::vector<int>(253, it)) == 0);
        break;
      case 2:  // no memory
        REQUIRE(testing::pass(other, hello(), {it, other}) == 0);
        break;
      default:  // the rest of the hello may never come
        REQUIRE(testing::pass(other, hello().substr(0, 63), {it, it}) == 0);
    }
    CHECK(receipt.receive(sockets.other.get()) == Step::kForeign);
  }
  CHECK(testing::open_descriptors_become(before));
}

TEST_CASE("shm: closing a descriptor of the peer stops nobody", "[shm][shm-hello][hostile]") {
  // The last close() of a socket with unsent bytes and SO_LINGER waits until they are sent.
  const conn::tcp::Fd listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  REQUIRE((::bind(listening.get(), any, size) == 0 && ::listen(listening.get(), 1) == 0));
  REQUIRE(getsockname(listening.get(), any, &size) == 0);
  conn::tcp::Fd lingering(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(lingering.get(), any, size) == 0);
  const std::string bytes(1 << 20, 'x');
  while (::send(lingering.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
  }
  constexpr int kSeconds = 600;
  const linger waits{1, kSeconds};
  REQUIRE(setsockopt(lingering.get(), SOL_SOCKET, SO_LINGER, &waits, sizeof waits) == 0);
  SocketPair sockets;
  const std::size_t before = testing::count_descriptors();
  REQUIRE(testing::pass(sockets.one.get(), hello(), {lingering.get()}) == 0);
  lingering.reset();
  const auto began = std::chrono::steady_clock::now();
  Receipt receipt;
  CHECK(receipt.receive(sockets.other.get()) == Step::kForeign);
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(kSeconds / 2));
  CHECK(testing::open_descriptors_become(before - 1));  // its number is free, though close() waits
}
