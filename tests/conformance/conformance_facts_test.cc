// SPDX-License-Identifier: BSD-3-Clause
// Listeners, addresses, states and other information, over each transport.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/site_counters.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using testing::Pair;
using testing::Site;
using namespace std::chrono_literals;

// --- connecting and listening -------------------------------------------------------------------

TEST_CASE("connect: where nobody listens it fails with a sentence", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    int calls = 0;
    const ConnectionPtr client = site.connect(site.deserted(), [&](Connection&) { ++calls; });
    RUN_UNTIL(site.loop, calls > 0);
    REQUIRE(client->state() == State::kError);
    REQUIRE(client->error_code());
    CAPTURE(client->last_error());
    REQUIRE(std::count(client->last_error().begin(), client->last_error().end(), ' ') >= 2);
    char byte;
    REQUIRE(client->read(&byte, 1) == -1);
    REQUIRE(client->write("x", 1) == -1);
    testing::turns(site.loop, 5);
    REQUIRE(calls == 1);
  }
}

TEST_CASE("connect: an endpoint it cannot use fails through the handler", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    conn::Endpoint nonsense = site.fresh();
    nonsense.options.set("no-such-option", "1");
    REQUIRE_THROWS_AS(site.type.check(nonsense), conn::Error);
    REQUIRE_THROWS_AS((void)site.type.listen(site.loop, nonsense, [](ConnectionPtr) {}),
                      conn::Error);
    int calls = 0;
    const ConnectionPtr client = site.connect(nonsense, [&](Connection&) { ++calls; });
    REQUIRE(calls == 0);
    RUN_UNTIL(site.loop, calls == 1);
    REQUIRE(client->state() == State::kError);
    const ConnectionPtr blocking = site.type.create(site.loop);
    REQUIRE_FALSE(blocking->connect_blocking(nonsense, 1s));
    REQUIRE_FALSE(blocking->last_error().empty());
  }
}

TEST_CASE("connect: many addresses at once may fail, each for itself", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const conn::Endpoint deserted = pair.deserted();
    std::size_t failed = 0;
    std::vector<ConnectionPtr> clients;
    for (int i = 0; i < 50; ++i) {
      clients.push_back(
          pair.connect(deserted, [&](Connection& c) { failed += c.state() == State::kError; }));
    }
    RUN_UNTIL(pair.loop, failed == clients.size());
    testing::send(pair.loop, *pair.client, "unharmed");
    REQUIRE(testing::receive(pair.loop, *pair.server, 8) == "unharmed");
  }
}

TEST_CASE("listen: an address in use is refused with its code", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    const conn::ListenerPtr first = site.listen([](ConnectionPtr) {});
    REQUIRE(&first->type() == &site.type);
    std::error_code code;
    try {
      (void)site.type.listen(site.loop, testing::address_of(*first), [](ConnectionPtr) {});
    } catch (const conn::Error& error) {
      code = error.code();
    }
    REQUIRE(code == std::errc::address_in_use);
  }
}

TEST_CASE("listen: an address is free again when its listener is gone", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    testing::EchoServer echo;
    conn::ListenerPtr listener = site.listen(echo.handler());
    const conn::Endpoint address = testing::address_of(*listener);
    const ConnectionPtr before = site.connect(address);
    RUN_UNTIL(site.loop, echo.open() == 1 && before->state() == State::kConnected);
    listener.reset();
    listener = site.type.listen(site.loop, address, echo.handler());
    REQUIRE(testing::address_of(*listener).to_string() == address.to_string());
    const ConnectionPtr after = site.connect(address);
    for (Connection* client : {before.get(), after.get()}) {  // accepted connections outlive it
      RUN_UNTIL(site.loop, client->state() == State::kConnected);
      testing::send(site.loop, *client, "hello");
      REQUIRE(testing::receive(site.loop, *client, 5) == "hello");
    }
  }
}

TEST_CASE("listener: destroyed inside its accept handler, it accepts no more", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    ConnectionPtr server;
    conn::ListenerPtr listener;
    int arrivals = 0;
    const auto resource = std::make_shared<int>(42);
    listener = site.listen([&, resource](ConnectionPtr accepted) {
      ++arrivals;
      server = std::move(accepted);
      listener.reset();
      REQUIRE(*resource == 42);  // the handler's captures still exist
    });
    const conn::Endpoint address = testing::address_of(*listener);
    std::vector<ConnectionPtr> clients;
    std::size_t settled = 0;
    for (int i = 0; i < 5; ++i) {
      clients.push_back(site.connect(address, [&](Connection&) { ++settled; }));
    }
    RUN_UNTIL(site.loop, settled == clients.size() && server);
    // One client is served; the others learn that the listener is gone.
    testing::send(site.loop, *server, "only you");
    std::size_t served = 0, over = 0;
    for (const ConnectionPtr& client : clients) {
      if (client->state() == State::kError) {
        ++over;
        continue;
      }
      client->set_read_handler([&](Connection& c) {
        const bool got = testing::read_some(c, 100) == "only you";
        ++(got ? served : over);
        c.set_read_handler(nullptr);
      });
    }
    RUN_UNTIL(site.loop, served == 1 && over == clients.size() - 1);
    REQUIRE(arrivals == 1);
    REQUIRE(resource.use_count() == 1);
  }
}

TEST_CASE("listener: paused, it leaves arrivals waiting until it is resumed", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    testing::EchoServer echo;
    const conn::ListenerPtr listener = site.listen(echo.handler());
    listener->pause();
    listener->pause();
    const ConnectionPtr client = site.connect(testing::address_of(*listener));
    testing::IterationCounter iterations(site.loop);
    iterations.during(50ms);
    REQUIRE(echo.open() == 0);
    REQUIRE(iterations.during(50ms) <= 10);  // and waiting takes no CPU time
    listener->resume();
    listener->resume();
    RUN_UNTIL(site.loop, echo.open() == 1 && client->state() == State::kConnected);
    testing::send(site.loop, *client, "hello");
    REQUIRE(testing::receive(site.loop, *client, 5) == "hello");
  }
}

TEST_CASE("listener: paused inside its accept handler, it keeps the next one waiting",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    conn::ListenerPtr listener;
    std::vector<ConnectionPtr> servers;
    listener = site.listen([&](ConnectionPtr accepted) {
      servers.push_back(std::move(accepted));
      listener->pause();
    });
    std::vector<ConnectionPtr> clients;
    for (int i = 0; i < 3; ++i) clients.push_back(site.connect(testing::address_of(*listener)));
    for (std::size_t i = 1; i <= clients.size(); ++i) {
      RUN_UNTIL(site.loop, servers.size() >= i);
      testing::turns(site.loop, 20);
      REQUIRE(servers.size() == i);
      listener->resume();
    }
  }
}

TEST_CASE("listener: a flood of arrivals is taken in batches", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    std::vector<ConnectionPtr> clients, servers;
    const conn::ListenerPtr listener =
        site.listen([&](ConnectionPtr accepted) { servers.push_back(std::move(accepted)); });
    const std::size_t flood = testing::listening_loops() == 1 ? 150 : 350;
    while (clients.size() < flood) clients.push_back(site.connect(testing::address_of(*listener)));
    std::size_t before = 0, most = 0;
    const ae::HookId hook = site.loop.add_before_sleep([&] {
      most = std::max(most, servers.size() - before);
      before = servers.size();
    });
    RUN_UNTIL(site.loop, servers.size() == flood);
    site.loop.remove_hook(hook);
    REQUIRE(most < 100 * testing::listening_loops());
  }
}

TEST_CASE("listener: arrivals beyond max-connections are refused, counted and told of",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    conn::Endpoint where = site.fresh();
    if (transport.name.ends_with("memory")) {  // URLs of memory take no options
      site.registry.require("memory").configure({{"max-connections", "3"}});
    } else {
      where.options.set("max-connections", "3");
    }
    std::vector<ConnectionPtr> servers, clients;
    std::vector<std::string> told;
    const conn::ListenerPtr listener = site.type.listen(
        site.loop, where, [&](ConnectionPtr accepted) { servers.push_back(std::move(accepted)); });
    listener->on_refused([&](const conn::Failure& why) { told.push_back(why.text); });
    const conn::Endpoint to = testing::address_of(*listener);
    for (int i = 0; i < 3; ++i) clients.push_back(site.connect(to));
    RUN_UNTIL(site.loop, servers.size() == 3);

    for (int i = 0; i < 4; ++i) {
      bool over = false;
      // A refused client learns it from the connect, the handshake or a read.
      const ConnectionPtr late = site.connect(to, [&](Connection& c) {
        over = c.state() == State::kError;
        if (over) return;
        c.set_read_handler([&](Connection& reader) {
          char byte;
          if (reader.read(&byte, 1) >= 0 || errno != EAGAIN) over = true;
        });
      });
      RUN_UNTIL(site.loop, over);
    }
    REQUIRE(servers.size() == 3);
    REQUIRE(site.carrier.counters(site.loop).refused == 4);
    REQUIRE(told.size() == 4);
    for (const std::string& why : told) {
      CAPTURE(why);
      REQUIRE(why.ends_with("3 connections are open (max-connections)"));
    }
    for (const auto& [name, value] : site.carrier.statistics(site.loop)) {
      if (name == "refused") REQUIRE(value == 4);
    }

    // Accepted connections continue, and a place that becomes free is taken by the next client.
    testing::send(site.loop, *clients[1], "still here");
    std::size_t heard = 0;
    for (const ConnectionPtr& server : servers) {
      server->set_read_handler([&](Connection& c) {
        char buffer[16];
        const ssize_t n = c.read(buffer, sizeof buffer);
        if (n > 0) heard += static_cast<std::size_t>(n);
      });
    }
    RUN_UNTIL(site.loop, heard == 10);
    servers.clear();
    clients.clear();
    // A place is free once its connection is gone, including the carrier below it.
    for (const auto& type : site.registry.types())
      RUN_UNTIL(site.loop, type->counters(site.loop).open == 0);
    for (int i = 0; i < 3; ++i) clients.push_back(site.connect(to));
    RUN_UNTIL(site.loop, servers.size() == 3);
    REQUIRE(site.carrier.counters(site.loop).refused == 4);
  }
}

// --- facts --------------------------------------------------------------------------------------

TEST_CASE("connection: states follow its life, and errors are empty while all is well",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    testing::EchoServer echo;
    const conn::ListenerPtr listener = site.listen(echo.handler());
    const ConnectionPtr client = site.type.create(site.loop);
    char byte;
    REQUIRE(client->state() == State::kNone);
    REQUIRE(client->read(&byte, 1) == -1);
    REQUIRE(errno == ENOTCONN);
    REQUIRE(client->write("x", 1) == -1);
    REQUIRE(errno == ENOTCONN);
    client->connect(testing::address_of(*listener), nullptr);
    RUN_UNTIL(site.loop, client->state() != State::kConnecting);
    REQUIRE(client->state() == State::kConnected);
    REQUIRE(client->last_error().empty());
    REQUIRE_FALSE(client->error_code());
    REQUIRE(to_string(client->state()) == "connected");
  }
}

TEST_CASE("connection: each end's local address is the other's peer address", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const std::string url = testing::address_of(*pair.listener).to_string();
    CAPTURE(url, pair.client->local_address(), pair.server->local_address());
    REQUIRE_FALSE(pair.client->peer_address().empty());
    REQUIRE(url.ends_with(pair.client->peer_address()));
    REQUIRE(pair.server->local_address() == pair.client->peer_address());
    if (!pair.client->local_address().empty()) {  // the client of a Unix socket has no address
      REQUIRE(pair.server->peer_address() == pair.client->local_address());
    }
    REQUIRE(pair.client->is_local() == true);
    REQUIRE(pair.server->is_local() == true);
  }
}

TEST_CASE("connection: it belongs to its type and loop, and has an id and a descriptor of its own",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    REQUIRE(&pair.client->type() == &pair.type);
    REQUIRE(pair.type.name() == transport.name);
    REQUIRE((pair.server->loop() == &pair.loop) == (testing::listening_loops() == 1));
    REQUIRE(pair.client->id() != pair.server->id());
    for (const Connection* one : {pair.client.get(), pair.server.get()}) {
      if (pair.type.capabilities().descriptor) {
        REQUIRE(fcntl(one->fd(), F_GETFD) >= 0);
      } else {
        REQUIRE(one->fd() == -1);
      }
      for (const auto& [key, value] : one->info()) REQUIRE_FALSE((key.empty() || value.empty()));
      if (pair.type.capabilities().integrity) continue;  // it authenticates its peer
      REQUIRE(one->peer_certificate().empty());
      REQUIRE(one->peer_user().empty());
    }
    // Only Unix sockets, and shm by its own, tell the process, also below another layer.
    const auto credentials = pair.client->peer_credentials();
    REQUIRE(credentials.has_value() == conn::carries_path(transport.name));
    if (credentials) REQUIRE(credentials->uid == ::geteuid());
  }
}

TEST_CASE("connection: info() tells how much output the transport has not taken", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const auto pending = [&]() -> std::size_t {
      for (const auto& [key, value] : pair.client->info())
        if (key == "pending") return std::stoul(value);
      return 0;
    };
    CHECK(pending() == 0);
    const std::string bytes(24 << 20, 'x');
    REQUIRE(pair.client->send({std::as_bytes(std::span(bytes))}) ==
            static_cast<ssize_t>(bytes.size()));
    CHECK(pending() == bytes.size());
    testing::turns(pair.loop, 5);
    const std::size_t before = pending();
    CHECK(before > 0);
    CHECK(before < bytes.size());
    REQUIRE(testing::receive(pair.loop, *pair.server, bytes.size() / 2).size() == bytes.size() / 2);
    CHECK(pending() < before);
    REQUIRE(testing::receive(pair.loop, *pair.server, bytes.size() / 2).size() == bytes.size() / 2);
    CHECK(pending() == 0);
  }
}

TEST_CASE("type: what is no socket of its kind it does not adopt", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    REQUIRE_THROWS_AS((void)site.type.adopt(site.loop, -1), conn::Error);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    REQUIRE_THROWS_AS((void)site.type.adopt(site.loop, ends[0]), conn::Error);
    REQUIRE(close(ends[0]) == 0);  // still owned by the caller
    REQUIRE(close(ends[1]) == 0);
  }
}

TEST_CASE("connection: the host's private pointer is kept and left alone", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    int data = 42;
    REQUIRE(pair.client->private_data() == nullptr);
    pair.client->set_private_data(&data);
    bool seen = false;
    pair.client->set_read_handler([&](Connection& c) {
      seen = c.private_data() == &data;
      c.set_read_handler(nullptr);
    });
    testing::send(pair.loop, *pair.server, "x");
    RUN_UNTIL(pair.loop, seen);
    pair.client.reset();
    REQUIRE(data == 42);
  }
}

TEST_CASE("type: it counts what becomes of its connections", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const auto counters = [&] { return testing::counters(pair); };
    REQUIRE(counters().accepted == 1);
    REQUIRE(counters().connected == 1);
    REQUIRE(counters().open == 2);
    REQUIRE(counters().failed == 0);
    REQUIRE(counters().closed == 0);
    bool failed = false;
    ConnectionPtr lost = pair.connect(pair.deserted(), [&](Connection&) { failed = true; });
    RUN_UNTIL(pair.loop, failed);
    REQUIRE(counters().failed == 1);
    lost.reset();
    pair.client.reset();
    pair.server.reset();
    RUN_UNTIL(pair.loop, counters().open == 0);
    REQUIRE(counters().closed == 3);
    REQUIRE(counters().connected == 1);
    const conn::Statistics statistics = pair.carrier.statistics(pair.loop);
    REQUIRE(statistics.size() >= 8);
    const std::uint64_t here = pair.carrier.counters(pair.loop).closed;
    REQUIRE(std::find(statistics.begin(), statistics.end(),
                      std::pair<std::string, std::uint64_t>("closed", here)) != statistics.end());
  }
}

TEST_CASE("path: one line says what carries the bytes", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    std::string name(pair.type.name());
    if (const std::size_t bar = name.rfind('|'); bar != std::string::npos) name.erase(0, bar + 1);
    for (Connection* each : {pair.client.get(), pair.server.get()}) {
      const std::string path = each->path();
      CAPTURE(path);
      REQUIRE(std::count(path.begin(), path.end(), '\n') == 0);
      const std::size_t plus = name.find('+');
      if (name.starts_with("tls")) {
        const std::string below = plus == std::string::npos ? "tcp" : name.substr(plus + 1);
        REQUIRE(path.starts_with("tls TLSv1."));
        REQUIRE(path.find(" over " + below + " ") != std::string::npos);
      } else {
        REQUIRE(path.starts_with(name + " "));
      }
      const std::string here = each->local_address(), there = each->peer_address();
      // A Unix socket has one name, which both ends may report.
      const std::string both = here.empty() || here == there ? there
                               : there.empty()               ? here
                                                             : here + " > " + there;
      REQUIRE(path.find(both) != std::string::npos);
    }
    // Information remains available after the end.
    pair.server.reset();
    RUN_UNTIL(pair.loop, [&] {
      char byte;
      return pair.client->read(&byte, 1) == 0 || pair.client->state() != State::kConnected;
    }());
    REQUIRE_FALSE(pair.client->path().empty());
  }
}

TEST_CASE("path: nothing carries bytes before a connection has stood", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    int calls = 0;
    const ConnectionPtr client = site.connect(site.deserted(), [&](Connection&) { ++calls; });
    REQUIRE(client->path().empty());
    RUN_UNTIL(site.loop, calls > 0);
    REQUIRE(client->state() == State::kError);
    REQUIRE(client->path().empty());
    REQUIRE(site.type.create(site.loop)->path().empty());
  }
}

TEST_CASE("connection: it moves to another loop exactly where the type says so", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    ae::EventLoop* const home = pair.server->loop();
    testing::AnyLoop other;
    if (!pair.type.capabilities().rebind) {
      errno = 0;
      REQUIRE_FALSE(pair.server->rebind(other));
      REQUIRE(errno == EOPNOTSUPP);
      REQUIRE(pair.server->loop() == home);
      return;
    }
    bool refused = false;
    pair.server->set_write_handler([&](Connection& c) {
      refused = !c.rebind(other) && errno == EBUSY;  // not within one of its own handlers
      c.set_write_handler(nullptr);
    });
    RUN_UNTIL(pair.loop, refused);
    std::string got;
    pair.server->set_read_handler([&](Connection& c) {
      REQUIRE(other.in_handler());
      got += testing::read_some(c, 100);
    });
    REQUIRE(pair.client->write("moved", 5) == 5);
    REQUIRE(pair.server->rebind(other));
    REQUIRE(pair.server->loop() == &other);
    RUN_UNTIL(other, got == "moved");
    REQUIRE(pair.carrier.counters(other).open == 1);
    REQUIRE(pair.carrier.counters(pair.loop).open == 1);
    pair.server.reset();
  }
}

// --- quiet loops and many loops -----------------------------------------------------------------

TEST_CASE("loop: connections that are idle cost no iterations", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    testing::send(pair.loop, *pair.client, "hello");
    REQUIRE(testing::receive(pair.loop, *pair.server, 5) == "hello");
    int calls = 0;
    pair.client->set_read_handler([&](Connection&) { ++calls; });
    pair.server->set_read_handler([&](Connection&) { ++calls; });
    testing::IterationCounter iterations(pair.loop);
    iterations.during(50ms);  // events caused by the last bytes
    REQUIRE(iterations.during(300ms) <= 10);
    REQUIRE(calls == 0);
  }
}

TEST_CASE("type: two loops on two threads share it", "[conformance][threads]") {
  FOR_EVERY_TRANSPORT(transport) {
    if (!transport.threads) {
      WARN("skipped: simulated devices are for one thread");
      return;
    }
    Site site(transport);
    std::vector<conn::Endpoint> addresses{site.fresh(), site.fresh()};
    std::vector<std::string> answers(2);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      threads.emplace_back([&, i] {  // no REQUIRE here: Catch2's macros are not thread-safe
        testing::AnyLoop loop;
        testing::EchoServer echo;
        const conn::ListenerPtr listener = site.type.listen(loop, addresses[i], echo.handler());
        const ConnectionPtr client = site.type.create(loop);
        int rounds = 0;
        client->set_read_handler([&](Connection& c) {
          answers[i] += testing::read_some(c, 100);
          if (++rounds == 100) {
            loop.stop();
          } else {
            c.write("x", 1);
          }
        });
        client->connect(testing::address_of(*listener), [&](Connection& c) { c.write("x", 1); });
        loop.add_time_event(testing::patience(), [&] {
          loop.stop();
          return ae::kNoMore;
        });
        loop.run();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& answer : answers) REQUIRE(answer == std::string(100, 'x'));
  }
}
