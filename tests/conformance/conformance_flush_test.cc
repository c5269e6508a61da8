// SPDX-License-Identifier: BSD-3-Clause
// Bytes accepted by write() are sent even if the program does not return to the loop: by flush(),
// by sync_write(), and at the end of the loop. Over each transport.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <future>
#include <optional>

#include "conn/kit/errno_of.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using testing::Collector;
using testing::Site;
using namespace std::chrono_literals;

namespace {

// Fits into all windows and buffers, so that the peer need not read meanwhile.
constexpr std::size_t kFits = 30'000;

/// Two ends on two loops of this thread, so that one loop can stand still. With memory and local,
/// both ends share one loop.
struct Ends : Site {
  explicit Ends(const testing::Transport& its_transport, const char* end_linger = nullptr)
      : Site(its_transport), together(its_transport.one_loop) {
    if (!together) near_loop = std::make_unique<testing::AnyLoop>();
    listener = listen([this](ConnectionPtr next) { far.push_back(std::move(next)); });
    to = testing::address_of(*listener);
    if (end_linger != nullptr && type.find_option("end-linger") != nullptr)
      to.options.set("end-linger", end_linger);
    near = connected();
  }
  testing::AnyLoop& here() { return together ? loop : *near_loop; }

  ConnectionPtr connected() {
    const std::size_t before = far.size();
    ConnectionPtr next = type.create(here());
    next->connect(to, {});
    run_both([&] { return far.size() > before && next->state() != State::kConnecting; });
    INFO(next->last_error());
    REQUIRE(next->state() == State::kConnected);
    // The set-up is complete once bytes have been transferred in both directions.
    exchange(*next, *far.back());
    exchange(*far.back(), *next);
    return next;
  }
  void exchange(Connection& from, Connection& into) {
    REQUIRE(from.write("x", 1) == 1);
    char byte = 0;
    run_both([&] { return into.read(&byte, 1) == 1; });
  }
  template <class Condition>
  void run_both(Condition condition) {
    const auto late = std::chrono::steady_clock::now() + testing::patience();
    while (!condition()) {
      REQUIRE(std::chrono::steady_clock::now() < late);
      for (testing::AnyLoop* each : {&here(), &loop}) {
        const ae::TimerId timer = each->add_time_event(1ms, [] { return ae::kNoMore; });
        each->process_events(ae::kFullIteration);
        each->remove_time_event(timer);
      }
    }
  }

  const bool together;
  std::unique_ptr<testing::AnyLoop> near_loop;
  std::vector<ConnectionPtr> far;
  conn::ListenerPtr listener;
  conn::Endpoint to;
  ConnectionPtr near;
};

std::string pattern(std::size_t size) {
  const testing::Pattern bytes(41);
  std::string all;
  while (all.size() < size) all += bytes.at(all.size());
  all.resize(size);
  return all;
}

/// Reads without a handler, and so without running the other end's loop.
std::string read_at(Connection& connection, std::size_t size) {
  std::string bytes(size, '\0');
  const ssize_t n = connection.sync_read(bytes.data(), size, testing::patience());
  INFO(connection.last_error());
  REQUIRE(n == static_cast<ssize_t>(size));
  return bytes;
}

/// Accepts one connection on a thread and a loop of its own, and reads all its bytes.
class Sink {
 public:
  struct Got {
    std::string bytes;
    bool ended = false;
    std::string error;
  };
  explicit Sink(const testing::Transport& transport) {
    std::promise<conn::Endpoint> listening;
    auto where = listening.get_future();
    thread_ = std::thread([this, transport, &listening] {
      Site site(transport);
      ConnectionPtr client;
      std::optional<Collector> collector;
      const conn::ListenerPtr listener = site.listen([&](ConnectionPtr next) {
        client = std::move(next);
        (void)client->write("unread", 6);  // unread bytes make a closing socket send a reset
        collector.emplace(*client);
      });
      const auto late = std::chrono::steady_clock::now() + testing::patience();
      site.loop.add_before_sleep([&] {
        if ((collector && (collector->over() || collector->bytes.size() >= enough_)) ||
            std::chrono::steady_clock::now() > late)
          site.loop.stop();
      });
      site.loop.add_time_event(1ms, [] { return ae::Duration(1ms); });
      listening.set_value(testing::address_of(*listener));
      site.loop.run();
      if (collector) {
        got_.set_value({collector->bytes, collector->ended, client->last_error()});
      } else {
        got_.set_value({});
      }
    });
    address = where.get();
  }
  ~Sink() { thread_.join(); }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  /// Makes it end after this many bytes, or at the end of the stream.
  void enough(std::size_t bytes) { enough_ = bytes; }
  Got got() { return got_.get_future().get(); }

  conn::Endpoint address;

 private:
  std::atomic<std::size_t> enough_{SIZE_MAX};
  std::promise<Got> got_;
  std::thread thread_;
};

/// Accepts one connection on a thread and a loop of its own, reads nothing, and aborts it at a
/// time.
class Cutter {
 public:
  explicit Cutter(const testing::Transport& transport) {
    std::promise<conn::Endpoint> listening;
    auto where = listening.get_future();
    thread_ = std::thread([this, transport, &listening] {
      Site site(transport);
      ConnectionPtr client;
      const conn::ListenerPtr listener =
          site.listen([&](ConnectionPtr next) { client = std::move(next); });
      site.loop.add_time_event(1ms, [&] {
        if (client && std::chrono::steady_clock::now() >= at_.load()) client.release()->abort();
        if (over_) site.loop.stop();
        return ae::Duration(1ms);
      });
      listening.set_value(testing::address_of(*listener));
      site.loop.run();
    });
    address = where.get();
  }
  ~Cutter() {
    over_ = true;
    thread_.join();
  }
  Cutter(const Cutter&) = delete;
  Cutter& operator=(const Cutter&) = delete;
  void cut_in(ae::Duration delay) { at_ = std::chrono::steady_clock::now() + delay; }

  conn::Endpoint address;

 private:
  std::atomic<ae::TimePoint> at_{ae::TimePoint::max()};
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE("flush: what write() took reaches the peer while our loop stands still",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Ends ends(transport);
    const std::string bytes = pattern(kFits);
    for (std::size_t sent = 0; sent < bytes.size(); sent += 1000)
      REQUIRE(ends.near->write(bytes.data() + sent, 1000) == 1000);
    ends.near->flush();
    REQUIRE(read_at(*ends.far[0], bytes.size()) == bytes);
    // Again, to check that no state is left that only the loop would end.
    REQUIRE(ends.near->write("more", 4) == 4);
    ends.near->flush();
    ends.near->flush();
    REQUIRE(read_at(*ends.far[0], 4) == "more");
    ends.exchange(*ends.far[0], *ends.near);
  }
}

TEST_CASE("flush: where there is nothing to do it does nothing", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Ends ends(transport);
    const ConnectionPtr fresh = ends.type.create(ends.here());
    fresh->flush();
    REQUIRE(fresh->state() == State::kNone);
    fresh->connect(ends.deserted(), {});
    fresh->flush();
    ends.run_both([&] { return fresh->state() == State::kError; });
    fresh->flush();
    int calls = 0;
    ends.near->set_read_handler([&](Connection&) { ++calls; });
    ends.near->flush();
    REQUIRE(calls == 0);
    REQUIRE(ends.near->state() == State::kConnected);
    // The peer is gone: the next write reports it, not flush().
    ends.far.clear();
    ends.near->set_read_handler(nullptr);
    Collector end(*ends.near);
    ends.run_both([&] { return end.over(); });
    (void)ends.near->write("lost", 4);
    ends.near->flush();
    ends.near->flush();
  }
}

TEST_CASE("sync_write: it leaves nothing behind for the loop", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Ends ends(transport);
    const std::string bytes = pattern(kFits);
    REQUIRE(ends.near->sync_write(bytes.data(), bytes.size(), 5s) ==
            static_cast<ssize_t>(bytes.size()));
    REQUIRE(read_at(*ends.far[0], bytes.size()) == bytes);
  }
}

TEST_CASE("sync_write: what is larger than any window is all under way when it returns",
          "[conformance][threads]") {
  FOR_EVERY_TRANSPORT(transport) {
    if (!transport.reaches_far || !transport.threads) return;  // the peer has to read meanwhile
    Sink sink(transport);
    const std::string bytes = pattern(400'000);
    sink.enough(bytes.size());
    Site site(transport);
    const ConnectionPtr client = site.type.create(site.loop);
    REQUIRE(client->connect_blocking(sink.address, testing::patience()));
    REQUIRE(client->sync_write(bytes.data(), bytes.size(), testing::patience()) ==
            static_cast<ssize_t>(bytes.size()));
    REQUIRE(sink.got().bytes == bytes);
  }
}

TEST_CASE("sync_write: a blocking flush after both ends is no failure if nothing was lost",
          "[conformance]") {
  const bool writes = GENERATE(false, true);
  CAPTURE(writes);
  FOR_EVERY_TRANSPORT(transport) {
    testing::Pair pair(transport);
    if (!pair.client->type().capabilities().half_close) return;
    if (writes) {
      testing::send(pair.loop, *pair.client, "delivered");
      REQUIRE(testing::receive(pair.loop, *pair.server, 9) == "delivered");
    }
    pair.server.reset();
    Collector collector(*pair.client);
    RUN_UNTIL(pair.loop, collector.over());
    REQUIRE(collector.ended);
    REQUIRE(pair.client->shutdown() == 0);
    REQUIRE(pair.client->state() == State::kClosed);
    REQUIRE(pair.client->sync_write(nullptr, 0, testing::patience()) == 0);
  }
}

TEST_CASE("sync_write: a blocking flush tells the failure that ends it", "[conformance][threads]") {
  // Before the flush write() has taken all that it takes, or somewhat less, so that no layer above
  // a full one has output of its own; or commit() has taken more.
  enum class Before { kFull, kLess, kCommitted };
  const auto before = GENERATE(Before::kFull, Before::kLess, Before::kCommitted);
  CAPTURE(static_cast<int>(before));
  const bool commits = before == Before::kCommitted;
  FOR_EVERY_TRANSPORT(transport) {
    if (!transport.reaches_far || !transport.threads) return;  // the peer fails during the call
    Site site(transport);
    const std::string block(16 << 10, 'x');
    const auto fill = [&](Connection& client, std::size_t most) {
      std::size_t taken = 0;
      for (ssize_t n = 1; n > 0 && taken<most; taken += n> 0 ? static_cast<std::size_t>(n) : 0)
        n = client.write(block.data(), std::min(block.size(), most - taken));
      return taken;
    };
    std::size_t most = SIZE_MAX;
    if (before == Before::kLess) {
      Cutter measured(transport);
      const ConnectionPtr client = site.type.create(site.loop);
      REQUIRE(client->connect_blocking(measured.address, testing::patience()));
      most = fill(*client, SIZE_MAX);
      most -= std::min(most, 2 * block.size());
      measured.cut_in(0ms);
    }
    Cutter server(transport);
    const ConnectionPtr client = site.type.create(site.loop);
    REQUIRE(client->connect_blocking(server.address, testing::patience()));
    const std::size_t taken = fill(*client, most);
    REQUIRE((taken == most || errno == EAGAIN));
    if (commits)
      for (std::span<std::byte> room; !(room = client->reserve(block.size())).empty();)
        client->commit(room.size());
    server.cut_in(50ms);
    errno = 0;
    const ssize_t n = client->sync_write(nullptr, 0, testing::patience());
    const int err = errno;
    CAPTURE(err, client->last_error());
    // A socket of the kernel has what write() accepted, so there may be nothing to wait for.
    if (!commits && n == 0) return;
    REQUIRE(n == -1);
    REQUIRE(client->state() == State::kError);
    REQUIRE(err == conn::errno_of(conn::Failure{client->error_code(), ""}));
    // Where both are possible, a socket whose peer is gone says either.
    if (site.type.capabilities().reset && transport.name.find("unix") == std::string::npos)
      REQUIRE(err == ECONNRESET);
  }
}

TEST_CASE("loop: what a connection had written when it and its loop went is delivered",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Ends ends(transport, transport.one_loop ? nullptr : "10s");
    if (ends.together) return;  // both ends go with the loop
    const std::string bytes = pattern(kFits);
    // Unread bytes would make a socket answer with a reset.
    const bool unread = GENERATE(false, true);
    if (unread) {
      testing::send(ends.loop, *ends.far[0], std::string(5000, 'u'));
      testing::await_readable(*ends.near_loop, *ends.near);
    }
    REQUIRE(ends.near->write(bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    ends.near.reset();
    ends.near_loop.reset();
    Collector far(*ends.far[0]);
    RUN_UNTIL(ends.loop, far.over());
    INFO(ends.far[0]->last_error());
    REQUIRE(far.bytes == bytes);
    REQUIRE(far.ended);
  }
}

TEST_CASE("loop: what a connection had written is delivered though only the loop went",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Ends ends(transport, transport.one_loop ? nullptr : "10s");
    if (ends.together) return;
    const std::string bytes = pattern(kFits);
    REQUIRE(ends.near->write(bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    ends.near_loop.reset();
    REQUIRE(ends.near->state() == State::kError);
    Collector far(*ends.far[0]);
    RUN_UNTIL(ends.loop, far.bytes.size() == bytes.size());
    REQUIRE(far.bytes == bytes);
    ends.near.reset();
  }
}

TEST_CASE("loop: more than any buffer holds is delivered to a peer that reads",
          "[conformance][threads]") {
  FOR_EVERY_TRANSPORT(transport) {
    if (!transport.reaches_far || !transport.threads) return;
    Sink sink(transport);
    Site site(transport);
    auto loop = std::make_unique<testing::AnyLoop>();
    conn::Endpoint to = sink.address;
    for (const char* key : {"linger", "end-linger"})
      if (site.type.find_option(key) != nullptr) to.options.set(key, "60s");
    ConnectionPtr client = site.type.create(*loop);
    REQUIRE(client->connect_blocking(to, testing::patience()));
    testing::await_readable(*loop, *client);
    std::string sent;
    const std::string chunk = pattern(50'000);
    while (sent.size() < 2'000'000) {
      const ssize_t n = client->write(chunk.data(), chunk.size());
      if (n < 0) break;
      sent.append(chunk, 0, static_cast<std::size_t>(n));
    }
    client.reset();
    loop.reset();
    const Sink::Got got = sink.got();
    INFO(got.error);
    REQUIRE(got.bytes.size() == sent.size());
    REQUIRE((got.bytes == sent));
    REQUIRE(got.ended);
  }
}

TEST_CASE("loop: peers that do not read hold up its end for one end-linger, all together",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    if (transport.one_loop) return;
    Ends ends(transport, "200ms");
    std::vector<ConnectionPtr> all;
    all.push_back(std::move(ends.near));
    while (all.size() < 6) all.push_back(ends.connected());
    const std::string bytes(64 << 10, 'x');
    for (const ConnectionPtr& each : all)
      while (each->write(bytes.data(), bytes.size()) > 0) continue;
    all.resize(3);  // some linger, some have not noticed the end yet
    const auto before = std::chrono::steady_clock::now();
    ends.near_loop.reset();
    REQUIRE(std::chrono::steady_clock::now() - before < 1s * testing::slower());
  }
}

TEST_CASE("option end-linger: every transport that may have to wait knows it", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    if (!transport.lingers) return;
    Site site(transport);
    conn::Endpoint at = site.fresh();
    at.options.set("end-linger", "0");
    REQUIRE_NOTHROW(site.type.check(at));
    at.options.set("end-linger", "never");
    std::string complaint;
    try {
      site.type.check(at);
    } catch (const conn::Error& error) {
      complaint = error.what();
    }
    REQUIRE(complaint.find("end-linger=never") != std::string::npos);
  }
}
