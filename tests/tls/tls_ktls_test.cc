// SPDX-License-Identifier: BSD-3-Clause
// Kernel TLS, where the kernel supports it: in the virtual machine, whose kernel has the tls
// module.
#if AECONN_TLS

#include <cerrno>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"

using testing::TlsPair;
using namespace std::chrono_literals;

namespace {

bool kernel_has_tls() {
  std::ifstream file("/proc/sys/net/ipv4/tcp_available_ulp");
  for (std::string word; file >> word;) {
    if (word == "tls") return true;
  }
  return false;
}

}  // namespace

TEST_CASE("tls: the kernel encrypts, and everything goes on as without it", "[ktls][rdma-device]") {
  if (!kernel_has_tls()) FAIL("this kernel has no tls module; the microVM's has");
  const std::string version = GENERATE("1.2", "1.3");
  CAPTURE(version);
  // An emulated machine may need longer for one handshake than the default of ten seconds.
  TlsPair pair({{"ktls", "yes"}, {"max-version", version}, {"handshake-timeout", "60s"}},
               {{"ktls", "yes"}, {"connect-timeout", "60s"}, {"handshake-timeout", "60s"}});
  // Of TLS 1.3 the kernel only sends, whatever OpenSSL passes to it.
  const std::string does = testing::info_of(*pair.b, "ktls");
  if (version == "1.2") REQUIRE(does == "send,receive");
  if (version == "1.3") REQUIRE(does == "send");
  constexpr std::uint64_t kSize = 8 << 20;
  {
    testing::Receiver at_server(*pair.b, 1), at_client(*pair.a, 2);
    testing::Sender from_client(*pair.a, 1, kSize), from_server(*pair.b, 2, kSize);
    RUN_UNTIL(pair.loop, (at_server.received == kSize && at_client.received == kSize) ||
                             at_server.error != 0 || at_client.error != 0);
    INFO(pair.a->last_error() << " / " << pair.b->last_error());
    REQUIRE(at_server.error == 0);
    REQUIRE(at_client.error == 0);
    REQUIRE(at_server.intact);
    REQUIRE(at_client.intact);
  }
  SECTION("half-close is close_notify, sent through the kernel") {
    REQUIRE(pair.a->write("last words", 10) == 10);
    REQUIRE(pair.a->shutdown() == 0);
    REQUIRE(testing::receive(pair.loop, *pair.b, 10) == "last words");
    REQUIRE(testing::read_event(pair.loop, *pair.b) == "(end)");
    REQUIRE(pair.b->write("reply", 5) == 5);
    REQUIRE(testing::receive(pair.loop, *pair.a, 5) == "reply");
  }
  SECTION("close delivers what write took, then the end") {
    const std::string bytes(300'000, 'x');
    const ssize_t taken = pair.a->write(bytes.data(), bytes.size());
    REQUIRE(taken > 0);
    pair.a.reset();
    const auto size = static_cast<std::size_t>(taken);
    REQUIRE(testing::receive(pair.loop, *pair.b, size) == bytes.substr(0, size));
    REQUIRE(testing::read_event(pair.loop, *pair.b) == "(end)");
  }
  SECTION("a gathered write arrives in order") {
    const iovec vectors[] = {{const_cast<char*>("one "), 4}, {const_cast<char*>("two"), 3}};
    REQUIRE(pair.a->writev(vectors, 2) == 7);
    REQUIRE(testing::receive(pair.loop, *pair.b, 7) == "one two");
  }
}

TEST_CASE("tls: the peer's keys may change while the kernel encrypts", "[ktls][rdma-device]") {
  if (!kernel_has_tls()) FAIL("this kernel has no tls module; the microVM's has");
  testing::TlsSite site({{"ktls", "yes"}});
  const conn::ListenerPtr listener = site.listen();
  testing::RawContext context = testing::RawContext::client();
  context.set_versions(TLS1_3_VERSION, TLS1_3_VERSION);
  testing::RawTls peer = testing::aside(site.loop, [&] {
    testing::RawTls made(context, testing::RawSocket::connect(testing::address_of(*listener)));
    (void)made.handshake();
    return made;
  });
  const conn::ConnectionPtr ours = site.next_accepted();
  REQUIRE(testing::info_of(*ours, "ktls") == "send");
  for (int i = 0; i < 20; ++i) {
    CAPTURE(i);
    REQUIRE(SSL_key_update(peer.ssl(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
    REQUIRE(testing::aside(site.loop, [&] { return peer.send("new keys"); }));
    REQUIRE(testing::receive(site.loop, *ours, 8) == "new keys");
    REQUIRE(ours->write("answer", 6) == 6);
    REQUIRE(testing::aside(site.loop, [&] { return peer.receive(6); }) == "answer");
  }
  // A peer that asks for new keys of ours is told so: the kernel's key stays what it is.
  REQUIRE(SSL_key_update(peer.ssl(), SSL_KEY_UPDATE_REQUESTED) == 1);
  (void)testing::aside(site.loop, [&] { return peer.send("ours"); });
  char byte;
  RUN_UNTIL(site.loop, ours->read(&byte, 1) < 0 && errno != EAGAIN);
  REQUIRE_THAT(ours->last_error(), testing::Contains("asks for new keys (KeyUpdate)"));
  REQUIRE(ours->error_code() == conn::tls::Errc::kProtocol);
}

#endif  // AECONN_TLS
