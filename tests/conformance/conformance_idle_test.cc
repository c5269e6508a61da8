// SPDX-License-Identifier: BSD-3-Clause
// Option idle-timeout, over each transport that has it: the core implements it once for all.

#include <cerrno>
#include <chrono>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using testing::Contains;
using testing::Site;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

/// Two connected ends, of which those given a time have the option.
struct Ends : Site {
  explicit Ends(const testing::Transport& its_transport) : Site(its_transport) {}
  bool has_option() const { return type.find_option("idle-timeout") != nullptr; }
  void open(const std::string& client_time, const std::string& server_time,
            const std::string& read_budget = {}, bool in_place = false) {
    conn::Endpoint at = fresh();
    if (!server_time.empty()) at.options.set("idle-timeout", server_time);
    listener = type.listen(loop, at, [this](ConnectionPtr c) { server = std::move(c); });
    conn::Endpoint to = testing::address_of(*listener);
    if (!client_time.empty()) to.options.set("idle-timeout", client_time);
    if (!read_budget.empty()) to.options.set("read-budget", read_budget);
    if (in_place && type.find_option("in-place")) to.options.set("in-place", "yes");
    client = connect(to);
    RUN_UNTIL(loop, client->state() == State::kConnected && server != nullptr);
  }
  /// `from` writes a byte every so often, 30 in all, which `to` reads.
  void talk(Connection& from, Connection& to, ae::Duration pause) {
    int sent = 0;
    std::size_t got = 0;
    const ae::TimerId timer = loop.add_time_event(pause, [&] {
      if (from.write("x", 1) == 1) ++sent;
      return sent < 30 ? pause : ae::kNoMore;
    });
    to.set_read_handler([&](Connection& c) { got += testing::read_some(c, 100).size(); });
    RUN_UNTIL(loop,
              got == 30 || from.state() != State::kConnected || to.state() != State::kConnected);
    to.set_read_handler(nullptr);
    if (got != 30) loop.remove_time_event(timer);
    last = Clock::now();
    REQUIRE(got == 30);
  }
  conn::ListenerPtr listener;
  ConnectionPtr client, server;
  Clock::time_point last;
};

}  // namespace

TEST_CASE("idle-timeout: silence ends the connection, any byte puts it off",
          "[conformance][idle]") {
  FOR_EVERY_TRANSPORT(transport) {
    const bool accepted = GENERATE(false, true), reads = GENERATE(false, true);
    Ends ends(transport);
    if (!ends.has_option()) return;
    ends.open(accepted ? "" : "200ms", accepted ? "200ms" : "");
    Connection& watched = accepted ? *ends.server : *ends.client;
    Connection& other = accepted ? *ends.client : *ends.server;
    ends.talk(reads ? other : watched, reads ? watched : other, 25ms);
    REQUIRE(watched.state() == State::kConnected);

    int errors = 0, closes = 0;
    watched.set_close_handler([&](Connection&) { ++closes; });
    watched.set_read_handler([&](Connection& c) {
      char byte;
      if (c.read(&byte, 1) == -1 && errno == ETIMEDOUT) ++errors;
      c.set_read_handler(nullptr);
    });
    RUN_UNTIL(ends.loop, errors == 1 && closes == 1);
    REQUIRE(Clock::now() - ends.last >= 150ms);  // a byte may be seen up to a step later
    REQUIRE(watched.state() == State::kError);
    REQUIRE(watched.error_code() == std::errc::timed_out);
    REQUIRE_THAT(watched.last_error(), Contains("nothing was read or written for 200ms"));
    REQUIRE(watched.write("x", 1) == -1);
    REQUIRE(errno == ETIMEDOUT);
    // The peer hears of it when the connection is closed.
    bool gone = false;
    other.set_close_handler([&](Connection&) { gone = true; });
    (accepted ? ends.server : ends.client).reset();
    RUN_UNTIL(ends.loop, gone);
  }
}

TEST_CASE("idle-timeout: what had arrived and was not read can still be read",
          "[conformance][idle]") {
  FOR_EVERY_TRANSPORT(transport) {
    const bool peer_closes = GENERATE(false, true), in_place = GENERATE(false, true);
    CAPTURE(peer_closes, in_place);
    Ends ends(transport);
    if (!ends.has_option()) return;
    // More than one iteration may read.
    const bool budget = ends.type.find_option("read-budget") != nullptr &&
                        transport.name.find("tls") == std::string::npos;
    ends.open("300ms", "", budget ? "4k" : "", in_place);
    const std::string late(20'000, 'x');
    REQUIRE(ends.server->write(late.data(), late.size()) == ssize_t(late.size()));
    RUN_UNTIL(ends.loop, ends.client->state() == State::kError);
    if (peer_closes) ends.server.reset();
    testing::turns(ends.loop, 10);
    std::string got;
    int error = 0;
    ends.client->set_read_handler([&](Connection& c) {
      char bytes[1000];
      errno = 0;
      if (in_place) {
        // At the end fewer bytes are left than it asks for.
        const conn::View view = c.peek(got.empty() ? 1 : 10'000);
        if (view.size == 0) {
          if (errno != EAGAIN) error = errno;
          return;
        }
        for (int i = 0; i < view.count; ++i)
          got.append(static_cast<const char*>(view.pieces[i].iov_base), view.pieces[i].iov_len);
        c.consume(view.size);
        return;
      }
      const ssize_t n = c.read(bytes, sizeof bytes);
      if (n > 0) got.append(bytes, static_cast<std::size_t>(n));
      if (n < 0 && errno != EAGAIN) error = errno;
    });
    RUN_UNTIL(ends.loop, error != 0);
    REQUIRE(got == late);
    REQUIRE(error == ETIMEDOUT);
  }
}

TEST_CASE("idle-timeout: it goes with a connection to another loop, and ends by its close",
          "[conformance][idle]") {
  FOR_EVERY_TRANSPORT(transport) {
    Ends ends(transport);
    if (!ends.has_option()) return;
    ends.open("1s", "1s");
    ends.server.reset();  // its timer is gone with it
    testing::turns(ends.loop, 3);
    if (!ends.type.capabilities().rebind) return;
    testing::AnyLoop other;
    REQUIRE(ends.client->rebind(other));
    RUN_UNTIL(other, ends.client->state() == State::kError);
    REQUIRE(ends.client->error_code() == std::errc::timed_out);
    ends.client.reset();
    testing::turns(other, 3);
  }
}

TEST_CASE("idle-timeout: without it a silent connection has no timer", "[conformance][idle]") {
  FOR_EVERY_TRANSPORT(transport) {
    Ends ends(transport);
    if (!ends.has_option()) return;
    ends.open("0", "");
    testing::IterationCounter iterations(ends.loop);
    iterations.during(50ms);  // events of the set-up
    REQUIRE(iterations.during(200ms) <= 10);
    REQUIRE(ends.client->state() == State::kConnected);
  }
}
