// SPDX-License-Identifier: BSD-3-Clause
// Redis's pending-data calls, for a host that calls them for TLS only.
#if AECONN_TLS

#include <vector>

#include "conn/tls/type.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using namespace std::chrono_literals;

namespace {

/// A fake lower type that always has pending data.
class Below final : public conn::ConnectionType {
 public:
  std::string_view name() const noexcept override { return "below"; }
  conn::Capabilities capabilities() const noexcept override { return {}; }
  void configure(const conn::Options&) override {}
  void check(const conn::Endpoint&) const override {}
  conn::ListenerPtr listen(ae::EventLoop&, const conn::Endpoint&,
                           conn::AcceptHandler) const override {
    return nullptr;
  }
  conn::ConnectionPtr create(ae::EventLoop&) const override { return nullptr; }
  bool has_pending_data(ae::EventLoop&) const override { return pending; }
  std::size_t process_pending_data(ae::EventLoop&) const override {
    return std::exchange(pending, false) ? 1 : 0;
  }
  mutable bool pending = false;
};

}  // namespace

TEST_CASE("tls: has_pending_data asks the layer below, and the one below that", "[tls][conn]") {
  testing::AnyLoop loop;
  Below below;
  const conn::tls::TlsType tls(below);
  const conn::tls::TlsType twice(static_cast<const conn::ConnectionType&>(tls));
  CHECK_FALSE(twice.has_pending_data(loop));
  below.pending = true;
  CHECK(tls.has_pending_data(loop));
  CHECK(twice.has_pending_data(loop));
  CHECK(twice.process_pending_data(loop) == 1);
  CHECK_FALSE(twice.has_pending_data(loop));
}

TEST_CASE("tls: what is decrypted and not read is pending data", "[tls][conn]") {
  testing::Pair pair({.name = "tls"});
  int calls = 0;
  pair.server->set_read_handler([&](conn::Connection& here) {
    ++calls;
    char byte = 0;
    (void)here.read(&byte, 1);
  });
  CHECK_FALSE(pair.type.has_pending_data(pair.loop));
  testing::send(pair.loop, *pair.client, "a record that is read byte by byte");
  RUN_UNTIL(pair.loop, calls > 0);
  CHECK(pair.type.has_pending_data(pair.loop));
  const int before = calls;
  CHECK(pair.type.process_pending_data(pair.loop) == 1);
  CHECK(calls == before + 1);
}

TEST_CASE("tls: a write does not forget what a read left in the wire", "[tls][conn]") {
  // More records at once than one read processes; once they are in memory, no event reports them.
  constexpr std::size_t kMessages = 1000;
  testing::Pair pair({.name = "tls"});
  std::size_t got = 0;
  std::vector<char> buffer(1 << 16);
  pair.server->set_read_handler([&](conn::Connection& here) {
    const ssize_t n = here.read(buffer.data(), buffer.size());
    if (n <= 0) return;
    got += static_cast<std::size_t>(n);
    (void)here.write("answer", 6);
  });
  for (std::size_t i = 0; i < kMessages; ++i) REQUIRE(pair.client->write("a record", 8) == 8);
  RUN_UNTIL(pair.loop, got == kMessages * 8);
}

#endif  // AECONN_TLS
