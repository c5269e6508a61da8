// SPDX-License-Identifier: BSD-3-Clause
// An endpoint that the transport does not accept is a failure of the connection, with a sentence:
// connect() and connect_blocking() neither throw nor crash, whatever the endpoint contains.

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::Endpoint;
using conn::State;
using testing::Contains;
using testing::Site;
using namespace std::chrono_literals;

namespace {

/// A URL of the transport with an address of a form that it does not have: a path instead of a
/// host, a host instead of a path, or a port after a name.
Endpoint other_form(Site& site) {
  Endpoint to = site.fresh();
  if (to.no_port) {
    to.no_port = false;
    to.port = 7;
  } else if (to.hosts.empty()) {
    to.path.clear();
    to.hosts.push_back({"a", false});
    to.port = 7;
  } else {
    to.hosts.clear();
    to.path = "/a";
  }
  return to;
}

struct Mistake {
  Endpoint to;
  std::string complaint;  // part of the sentence
};

std::vector<Mistake> mistakes(Site& site) {
  const std::string name(site.carrier.name());
  std::vector<Mistake> all;
  all.push_back({site.fresh(), "colour"});
  all.back().to.options.set("colour", "red");
  all.push_back({other_form(site), name});
  all.push_back({Endpoint{}, " "});
  Endpoint bare;
  bare.scheme = site.transport.name;
  all.push_back({bare, name});
  return all;
}

void require_refused(const Connection& connection, const Mistake& mistake) {
  REQUIRE(connection.state() == State::kError);
  INFO(connection.last_error());
  REQUIRE(connection.error_code() == std::errc::invalid_argument);
  REQUIRE_THAT(connection.last_error(), Contains(mistake.complaint));
  REQUIRE_THROWS_WITH(connection.type().check(mistake.to), connection.last_error());
}

}  // namespace

TEST_CASE("mistakes: an endpoint that check() refuses fails the connection, from the loop",
          "[conformance][mistakes]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    for (const Mistake& mistake : mistakes(site)) {
      CAPTURE(mistake.to.to_string());
      REQUIRE_THROWS_AS(site.type.check(mistake.to), conn::Error);
      int calls = 0;
      const ConnectionPtr client = site.connect(mistake.to, [&](Connection&) { ++calls; });
      REQUIRE(calls == 0);
      require_refused(*client, mistake);
      RUN_UNTIL(site.loop, calls == 1);
      testing::turns(site.loop, 3);
      REQUIRE(calls == 1);
      char byte;
      errno = 0;
      REQUIRE(client->read(&byte, 1) == -1);
      REQUIRE(errno == EINVAL);
      errno = 0;
      REQUIRE(client->write("x", 1) == -1);
      REQUIRE(errno == EINVAL);
      REQUIRE(client->local_address().empty());
      REQUIRE(client->peer_address().empty());
      REQUIRE(client->fd() == -1);
    }
  }
}

TEST_CASE("mistakes: connect_blocking() returns false with EINVAL", "[conformance][mistakes]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    for (const Mistake& mistake : mistakes(site)) {
      CAPTURE(mistake.to.to_string());
      const ConnectionPtr client = site.type.create(site.loop);
      errno = 0;
      REQUIRE_FALSE(client->connect_blocking(mistake.to, 10s));
      REQUIRE(errno == EINVAL);
      require_refused(*client, mistake);
    }
  }
}

TEST_CASE("mistakes: other handlers wait for the connect handler, which may close the connection",
          "[conformance][mistakes]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    for (const Mistake& mistake : mistakes(site)) {
      std::string ran;
      ConnectionPtr client = site.connect(mistake.to, [&](Connection&) {
        ran += 'c';
        client.reset();
      });
      client->set_close_handler([&](Connection&) { ran += 'e'; });
      client->set_read_handler([&](Connection&) { ran += 'r'; });
      client->set_write_handler([&](Connection&) { ran += 'w'; });
      RUN_UNTIL(site.loop, !ran.empty());
      testing::turns(site.loop, 3);
      REQUIRE(ran == "c");
      REQUIRE(site.type.counters(site.loop).open == 0);
    }
  }
}

TEST_CASE("mistakes: closed or aborted before the connect handler has run, it does not run",
          "[conformance][mistakes]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    for (const Mistake& mistake : mistakes(site)) {
      int calls = 0;
      ConnectionPtr closed = site.connect(mistake.to, [&](Connection&) { ++calls; });
      ConnectionPtr aborted = site.connect(mistake.to, [&](Connection&) { ++calls; });
      closed.reset();
      aborted.release()->abort();
      testing::turns(site.loop, 3);
      REQUIRE(calls == 0);
      REQUIRE(site.type.counters(site.loop).open == 0);
    }
  }
}

TEST_CASE("mistakes: the loop may end before the connect handler has run",
          "[conformance][mistakes]") {
  FOR_EVERY_TRANSPORT(transport) {
    int calls = 0;
    std::vector<ConnectionPtr> clients;
    {
      Site site(transport);
      for (const Mistake& mistake : mistakes(site))
        clients.push_back(site.connect(mistake.to, [&](Connection&) { ++calls; }));
    }
    REQUIRE(calls == 0);
    for (const ConnectionPtr& client : clients) REQUIRE(client->state() == State::kError);
  }
}

TEST_CASE("mistakes: connecting again from the connect handler", "[conformance][mistakes]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    ConnectionPtr server;
    const conn::ListenerPtr listener =
        site.listen([&](ConnectionPtr accepted) { server = std::move(accepted); });
    Endpoint good = testing::address_of(*listener);
    good.scheme = transport.name;
    Endpoint bad = good;
    bad.options.set("colour", "red");
    ConnectionPtr first, second;
    first = site.connect(bad, [&](Connection&) { second = site.connect(good); });
    RUN_UNTIL(site.loop, server && second && second->state() == State::kConnected);
    REQUIRE(first->state() == State::kError);
  }
}
