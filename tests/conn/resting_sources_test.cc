// SPDX-License-Identifier: BSD-3-Clause
// The library's sources of a loop rest (ae::Source::rest()) while no connection has work for them,
// so that the loop settles again.

#include <cstring>
#include <string>

#include "ae/core/loop_core.h"
#include "ae/core/source_list.h"
#include "tests/support/catch.h"
#include "tests/support/in_place_kit.h"
#include "tests/support/testing.h"

using namespace in_place_kit;

namespace {

/// A loop whose sources are in a list of the test's own, which tells whether they rest.
class ListingLoop final : public testing::AnyLoop {
 public:
  ListingLoop() { AnyLoop::add_source(driver_); }
  ~ListingLoop() override { AnyLoop::remove_source(driver_); }
  void add_source(ae::Source& source) override { list_.add(source); }
  void remove_source(ae::Source& source) override { list_.remove(source); }
  bool idle() const { return list_.idle(); }

 private:
  struct Driver final : ae::Source {
    explicit Driver(ae::SourceList& of) : list(of) {}
    bool has_pending() const override { return ae::SourceList::Visit(list).has_pending(); }
    std::size_t process_pending() override { return ae::SourceList::Visit(list).process_pending(); }
    void flush() override { ae::SourceList::Visit(list).flush(); }
    bool arm() override { return ae::SourceList::Visit(list).arm(); }
    ae::SourceList& list;
  };
  ae::LoopCore core_;
  ae::SourceList list_{core_};
  Driver driver_{list_};
};

/// Two ends of a connection, on a ListingLoop.
struct Ends {
  explicit Ends(const std::string& scheme) : type(registry.require(scheme)) {
    listener = type.listen(loop, conn::Endpoint::parse(scheme + "://127.0.0.1:0"),
                           [this](conn::ConnectionPtr accepted) { server = std::move(accepted); });
    client = type.create(loop);
    client->connect(testing::address_of(*listener), [](Connection&) {});
    RUN_UNTIL(loop, server && client->state() == conn::State::kConnected);
  }
  /// Sends a text from memory that reserve() returns. Returns what the other end reads in place.
  std::string pass(Connection& from, Connection& to, std::string_view text) {
    const std::span<std::byte> room = from.reserve(text.size());
    REQUIRE(room.size() >= text.size());
    std::memcpy(room.data(), text.data(), text.size());
    from.commit(text.size());
    CHECK_FALSE(loop.idle());
    std::string arrived;
    to.set_read_handler([&arrived](Connection& c) {
      const View view = c.peek();
      arrived += text_of(view);
      c.consume(view.size);
    });
    RUN_UNTIL(loop, arrived.size() >= text.size());
    to.set_read_handler(nullptr);
    testing::turns(loop, 3);
    return arrived;
  }

  conn::Registry registry = testing::test_registry();
  conn::ConnectionType& type;
  ListingLoop loop;
  conn::ListenerPtr listener;
  conn::ConnectionPtr server, client;
};

}  // namespace

TEST_CASE("sources: they rest between the messages of a connection", "[conn]") {
  const std::string scheme = GENERATE("tcp", "tls");
  if (scheme == "tls" && !AECONN_TLS) return;
  CAPTURE(scheme);
  Ends ends(scheme);
  ends.server->set_close_handler([](Connection&) {});
  testing::turns(ends.loop, 3);
  CHECK(ends.loop.idle());
  for (int i = 0; i < 3; ++i) {
    CHECK(ends.pass(*ends.client, *ends.server, "request") == "request");
    CHECK(ends.loop.idle());
    CHECK(ends.pass(*ends.server, *ends.client, "reply") == "reply");
    CHECK(ends.loop.idle());
  }
  bool ended = false;
  ends.server->set_close_handler([&ended](Connection&) { ended = true; });
  ends.client.reset();
  RUN_UNTIL(ends.loop, ended);
  testing::turns(ends.loop, 3);
  CHECK(ends.loop.idle());
}
