// SPDX-License-Identifier: BSD-3-Clause
// abort() on each transport: the connection ends at once, and its peer is told that the stream was
// cut.

#include <limits.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/site_counters.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using testing::Collector;
using testing::Pair;
using testing::Site;
using namespace std::chrono_literals;

namespace {

std::uint64_t open(Site& site) { return testing::counters(site).open; }

void abort(ConnectionPtr& connection) { connection.release()->abort(); }

/// Checks that the peer of an abort() has learnt of it. `unread`: the aborting end had unread
/// bytes.
void require_cut(Pair& pair, Connection& peer, const Collector& seen, bool unread = false) {
  // The kernel's vsock has no resets that a reader sees.
  if (pair.carrier.capabilities().reset || (unread && pair.transport.name != "vsock")) {
    REQUIRE(seen.error == ECONNRESET);
    REQUIRE(peer.state() == State::kError);
    REQUIRE_FALSE(peer.last_error().empty());
  } else {
    REQUIRE(seen.ended);
  }
}

/// The test transport memory drops bytes that were received but not read.
bool forgets(const testing::Transport& transport) { return transport.name.ends_with("memory"); }

}  // namespace

TEST_CASE("abort: the peer's read says ECONNRESET after what it had", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    const bool client_aborts = GENERATE(false, true);
    Pair pair(transport);
    ConnectionPtr& ours = client_aborts ? pair.client : pair.server;
    Connection& peer = client_aborts ? *pair.server : *pair.client;
    testing::send(pair.loop, *ours, "part of an answer");
    REQUIRE(testing::receive(pair.loop, peer, 4) == "part");
    abort(ours);
    Collector seen(peer);
    RUN_UNTIL(pair.loop, seen.over());
    REQUIRE(std::string(" of an answer").starts_with(seen.bytes));
    require_cut(pair, peer, seen);
    (client_aborts ? pair.server : pair.client).reset();
    RUN_UNTIL(pair.loop, open(pair) == 0);
  }
}

TEST_CASE("abort: what had come is read, also after a write met the end", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    const std::string way = GENERATE(as<std::string>{}, "write", "commit", "send");
    const std::size_t room = GENERATE(1u, 1u << 16);
    CAPTURE(way, room);
    if (forgets(transport)) return;
    if (way == "send" && transport.name == "rdma") return;  // send() gives EAGAIN until all is read
    Pair pair(transport);
    std::string sent = "bye ";
    sent.append(40'000, 'b');
    testing::send(pair.loop, *pair.server, "bye ");
    testing::send(pair.loop, *pair.server, std::string_view(sent).substr(4));
    testing::await_readable(pair.loop, *pair.client);
    pair.client->set_read_handler(nullptr);
    testing::turns(pair.loop, 20);
    abort(pair.server);
    const auto attempt = [&] {
      if (way == "write") return pair.client->write("x", 1);
      if (way == "send") return pair.client->send({std::as_bytes(std::span("x", 1)), {}, {}});
      if (pair.client->reserve(1).empty()) return ssize_t{-1};
      pair.client->commit(1);
      pair.client->flush();
      return ssize_t{1};
    };
    const ae::TimerId again = pair.loop.add_time_event(1ms, [] { return 1ms; });
    RUN_UNTIL(pair.loop, attempt() < 0 && errno != EAGAIN);
    pair.loop.remove_time_event(again);
    Collector seen(*pair.client, room);
    RUN_UNTIL(pair.loop, seen.over());
    CHECK(pair.client->state() == State::kError);
    CHECK((seen.bytes == sent));
    CHECK_FALSE(seen.ended);
  }
}

TEST_CASE("abort: a readv of many pieces that meets it loses neither bytes nor the failure",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    if (!pair.carrier.capabilities().reset || forgets(transport)) return;
    const std::string sent(IOV_MAX, 'x');  // one byte per piece, as many as one system call takes
    testing::send(pair.loop, *pair.server, sent);
    testing::await_readable(pair.loop, *pair.client);
    pair.client->set_read_handler(nullptr);
    testing::turns(pair.loop, 20);
    abort(pair.server);
    testing::turns(pair.loop, 20);
    std::string got(2 * IOV_MAX, '-');
    std::vector<iovec> pieces;
    for (char& each : got) pieces.push_back({&each, 1});
    ssize_t n = 0;
    RUN_UNTIL(pair.loop, (n = pair.client->readv(pieces.data(), 2 * IOV_MAX)) >= 0);
    REQUIRE(n == IOV_MAX);
    CHECK((got.substr(0, IOV_MAX) == sent));
    Collector seen(*pair.client);
    RUN_UNTIL(pair.loop, seen.over());
    CHECK(seen.bytes.empty());
    require_cut(pair, *pair.client, seen);
  }
}

TEST_CASE("abort: with bytes of the peer's unread", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    testing::send(pair.loop, *pair.client, "unread");
    testing::await_readable(pair.loop, *pair.server);
    abort(pair.server);
    Collector seen(*pair.client);
    RUN_UNTIL(pair.loop, seen.over());
    REQUIRE(seen.bytes.empty());
    require_cut(pair, *pair.client, seen, true);
  }
}

TEST_CASE("abort: the peer's close handler runs where nobody reads", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    int told = 0;
    pair.client->set_close_handler([&](Connection&) { ++told; });
    abort(pair.server);
    RUN_UNTIL(pair.loop, told == 1);
    Collector seen(*pair.client);
    RUN_UNTIL(pair.loop, seen.over());
    require_cut(pair, *pair.client, seen);
    REQUIRE(told == 1);
  }
}

TEST_CASE("abort: with much unsent towards a peer that does not read", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const std::string piece(64 << 10, 'x');
    std::size_t written = 0;
    for (int dry = 0; dry < 20;) {  // until the send buffer stays full
      const ssize_t n = pair.server->write(piece.data(), piece.size());
      dry = n < 0 ? dry + 1 : 0;
      if (n > 0) written += static_cast<std::size_t>(n);
      testing::turns(pair.loop, 1);
    }
    abort(pair.server);
    Collector seen(*pair.client);
    RUN_UNTIL(pair.loop, seen.over());
    REQUIRE(seen.bytes.size() <= written);
    require_cut(pair, *pair.client, seen);
  }
}

TEST_CASE("abort: no handler runs any more, and send() comes back with an error", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const std::string piece(16 << 10, 'x');
    struct Count {
      int released = 0, failed = 0;
    } count;
    int handlers = 0, sent = 0;
    for (int dry = 0; dry < 20;) {
      const ssize_t n =
          pair.server->send({{reinterpret_cast<const std::byte*>(piece.data()), piece.size()},
                             [](void* context, std::error_code error) noexcept {
                               auto& its = *static_cast<Count*>(context);
                               ++its.released;
                               if (error) ++its.failed;
                             },
                             &count});
      dry = n < 0 ? dry + 1 : 0;
      if (n > 0) ++sent;
      testing::turns(pair.loop, 1);
    }
    const auto handler = [&](Connection&) { ++handlers; };
    pair.server->set_read_handler(handler);
    pair.server->set_write_handler(handler);
    pair.server->set_close_handler(handler);
    const int before = count.released;
    abort(pair.server);
    REQUIRE(count.released == before);  // released from the loop only
    (void)pair.client->write("?", 1);
    RUN_UNTIL(pair.loop, count.released == sent);
    REQUIRE(count.failed > 0);
    REQUIRE(handlers == 0);
  }
}

TEST_CASE("abort: committed and not yet flushed", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const std::span<std::byte> room = pair.server->reserve(100);
    REQUIRE(room.size() >= 100);
    std::fill_n(room.begin(), 100, std::byte{'x'});
    SECTION("reserved") {}
    SECTION("committed") { pair.server->commit(100); }
    abort(pair.server);
    Collector seen(*pair.client);
    RUN_UNTIL(pair.loop, seen.over());
    REQUIRE(seen.bytes.empty());
    require_cut(pair, *pair.client, seen);
  }
}

TEST_CASE("abort: inside a handler of its own", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    const std::string which = GENERATE("read", "write", "close", "release");
    CAPTURE(which);
    Pair pair(transport);
    int calls = 0;
    const auto handler = [&](Connection&) {
      ++calls;
      abort(pair.server);
    };
    if (which == "read") pair.server->set_read_handler(handler);
    if (which == "write") pair.server->set_write_handler(handler);
    if (which == "close") pair.server->set_close_handler(handler);
    struct Aborts {
      ConnectionPtr& connection;
      int& calls;
    } aborts{pair.server, calls};
    if (which == "release") {
      static const std::byte one{'1'};
      REQUIRE(pair.server->send({{&one, 1},
                                 [](void* context, std::error_code) noexcept {
                                   auto& its = *static_cast<Aborts*>(context);
                                   ++its.calls;
                                   abort(its.connection);
                                 },
                                 &aborts}) == 1);
    }
    if (which == "close")
      pair.client.reset();
    else
      (void)pair.client->write("now", 3);  // may come too late
    RUN_UNTIL(pair.loop, calls == 1 && !pair.server);
    if (pair.client) {
      Collector seen(*pair.client);
      RUN_UNTIL(pair.loop, seen.over());
      if (which != "read") require_cut(pair, *pair.client, seen, seen.error != 0);
    }
    testing::turns(pair.loop, 5);
    REQUIRE(calls == 1);
    pair.client.reset();
    RUN_UNTIL(pair.loop, open(pair) == 0);
  }
}

TEST_CASE("abort: before it stands, inside the connect and the accept handler", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    int accepted = 0, connected = 0;
    const std::string when = GENERATE("at once", "connected", "accepted");
    CAPTURE(when);
    std::vector<ConnectionPtr> kept;
    const conn::ListenerPtr listener = site.listen([&](ConnectionPtr arrival) {
      ++accepted;
      if (when == "accepted")
        abort(arrival);
      else
        kept.push_back(std::move(arrival));
    });
    ConnectionPtr client = site.type.create(site.loop);
    client->connect(testing::address_of(*listener), [&](Connection&) {
      ++connected;
      if (when == "connected") abort(client);
    });
    if (when == "at once") {
      abort(client);
      testing::turns(site.loop, 10);
      REQUIRE(connected == 0);
    } else {
      RUN_UNTIL(site.loop, connected == 1 && (accepted == 1 || !client));
    }
    if (when == "accepted" && client->state() == State::kConnected) {
      Collector seen(*client);
      RUN_UNTIL(site.loop, seen.over());
      REQUIRE(seen.bytes.empty());
      if (site.carrier.capabilities().reset) REQUIRE(seen.error == ECONNRESET);
    }
    client.reset();
    RUN_UNTIL(site.loop, (kept.clear(), open(site) == 0));
  }
}

TEST_CASE("abort: after shutdown(), shutdown_both(), an end of stream, an error", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    const std::string when = GENERATE("shutdown", "both", "ended", "failed", "closed");
    CAPTURE(when);
    Pair pair(transport);
    if (when == "shutdown") (void)pair.server->shutdown();
    if (when == "both") REQUIRE(pair.server->shutdown_both() == 0);
    if (when == "ended") {
      Collector ours(*pair.server);
      pair.client.reset();
      RUN_UNTIL(pair.loop, ours.over());
    }
    if (when == "failed") {
      Collector ours(*pair.server);
      testing::send(pair.loop, *pair.server, "unread");
      abort(pair.client);
      RUN_UNTIL(pair.loop, ours.over());
    }
    if (when == "closed") pair.client.reset();  // the close was not seen yet
    abort(pair.server);
    if (pair.client) {
      Collector seen(*pair.client);
      RUN_UNTIL(pair.loop, seen.over());  // the outcome depends on timing
    }
    pair.client.reset();
    RUN_UNTIL(pair.loop, open(pair) == 0);
  }
}

TEST_CASE("abort: after its loop, and on no loop", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    {
      ConnectionPtr kept;
      {
        Pair pair(transport);
        kept = std::move(pair.server);
        pair.client.reset();
      }
      abort(kept);
    }
    Pair pair(transport);
    if (!pair.type.capabilities().rebind) return;
    REQUIRE(pair.server->leave());
    abort(pair.server);
    Collector seen(*pair.client);
    RUN_UNTIL(pair.loop, seen.over());
    require_cut(pair, *pair.client, seen);
  }
}
