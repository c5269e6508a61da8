// SPDX-License-Identifier: BSD-3-Clause
// When handlers run and when they do not, as documented in conn/connection.h, over each transport.

#include <atomic>
#include <cerrno>
#include <memory>
#include <stdexcept>
#include <utility>

#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::Barrier;
using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using testing::await_readable;
using testing::Pair;
using testing::read_some;
using namespace std::chrono_literals;

TEST_CASE("read handler: it is called again while there is unread data, and then no more",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    std::string got;
    int calls = 0;
    pair.server->set_read_handler([&](Connection& c) {
      ++calls;
      got += read_some(c, 1);
    });
    REQUIRE(pair.client->write("abcde", 5) == 5);
    RUN_UNTIL(pair.loop, got.size() == 5);
    REQUIRE(got == "abcde");
    const int when_empty = calls;
    testing::turns(pair.loop, 20);
    REQUIRE(calls == when_empty);
  }
}

TEST_CASE("read handler: its answer hides nothing of what came with the question",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    constexpr int kQuestions = 600;  // each one a message or record
    std::atomic<int> got{0};
    pair.server->set_read_handler([&](Connection& c) {
      const std::size_t n = read_some(c, 4096).size();
      if (n != 0) (void)c.write("answer", 6);
      got += static_cast<int>(n);
    });
    int asked = 0;
    RUN_UNTIL(pair.loop, [&] {
      while (asked < kQuestions && pair.client->write("?", 1) == 1) {
        pair.client->flush();
        ++asked;
      }
      return asked == kQuestions;
    }());
    RUN_UNTIL(pair.loop, got == kQuestions);
  }
}

TEST_CASE("read handler: one that reads nothing is called in every iteration", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    int calls = 0;
    pair.server->set_read_handler([&](Connection&) { ++calls; });
    REQUIRE(pair.client->write("x", 1) == 1);
    RUN_UNTIL(pair.loop, calls > 0);
    for (int i = 0; i < 10; ++i) {
      const int before = calls;
      testing::turns(pair.loop, 1);
      REQUIRE(calls == before + 1);
    }
  }
}

TEST_CASE("read handler: one set after the data came is called", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    REQUIRE(pair.client->write("early", 5) == 5);
    await_readable(pair.loop, *pair.server);
    testing::turns(pair.loop, 5);  // no handler is set
    REQUIRE(testing::receive(pair.loop, *pair.server, 5) == "early");
  }
}

TEST_CASE("write handler: it is called in every iteration while there is room", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    int calls = 0;
    pair.client->set_write_handler([&](Connection&) { ++calls; });
    RUN_UNTIL(pair.loop, calls > 0);
    for (int i = 0; i < 10; ++i) {
      const int before = calls;
      testing::turns(pair.loop, 1);
      REQUIRE(calls == before + 1);
    }
  }
}

TEST_CASE("read handler: replaced inside itself, the new one runs from the next call on",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    std::string order;
    auto resource = std::make_shared<int>(42);
    pair.server->set_read_handler([&order, resource](Connection& c) {
      order += '1';
      c.set_read_handler([&order](Connection& again) {
        order += '2';
        again.set_read_handler(nullptr);
      });
      if (*resource == 42) order += '.';  // the handler's captures still exist
    });
    REQUIRE(pair.client->write("x", 1) == 1);
    RUN_UNTIL(pair.loop, order.size() == 3);
    testing::turns(pair.loop, 5);
    REQUIRE(order == "1.2");
    REQUIRE(resource.use_count() == 1);  // and are freed afterwards
    REQUIRE_FALSE(pair.server->has_read_handler());
  }
}

TEST_CASE("write handler: replaced inside itself, the new one runs from the next call on",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    std::string order;
    pair.client->set_write_handler([&](Connection& c) {
      order += '1';
      c.set_write_handler([&](Connection& again) {
        order += '2';
        again.set_write_handler(nullptr);
      });
      order += '.';
    });
    REQUIRE(pair.client->has_write_handler());
    RUN_UNTIL(pair.loop, order.size() == 3);
    testing::turns(pair.loop, 5);
    REQUIRE(order == "1.2");
    REQUIRE_FALSE(pair.client->has_write_handler());
  }
}

TEST_CASE("read handler: removed by the write handler, it does not run", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    REQUIRE(pair.client->write("x", 1) == 1);
    await_readable(pair.loop, *pair.server);
    bool wrote = false, read = false;
    pair.server->set_read_handler([&](Connection&) { read = true; });
    pair.server->set_write_handler(
        [&](Connection& c) {
          wrote = true;
          c.set_read_handler(nullptr);
          c.set_write_handler(nullptr);
        },
        Barrier::kYes);
    RUN_UNTIL(pair.loop, wrote);
    testing::turns(pair.loop, 5);
    REQUIRE_FALSE(read);
  }
}

TEST_CASE("handlers: read runs before write, and with the barrier write before read",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    const Barrier barrier = GENERATE(Barrier::kNo, Barrier::kYes);
    Pair pair(transport);
    REQUIRE(pair.client->write("x", 1) == 1);
    await_readable(pair.loop, *pair.server);
    std::string order;
    pair.server->set_read_handler([&](Connection&) { order += 'r'; });
    pair.server->set_write_handler([&](Connection&) { order += 'w'; }, barrier);
    RUN_UNTIL(pair.loop, order.size() >= 6);
    REQUIRE(order.substr(0, 6) == (barrier == Barrier::kYes ? "wrwrwr" : "rwrwrw"));
    // The barrier may be changed.
    pair.server->set_write_handler([&](Connection&) { order += 'w'; },
                                   barrier == Barrier::kYes ? Barrier::kNo : Barrier::kYes);
    order.clear();
    RUN_UNTIL(pair.loop, order.size() >= 6);
    REQUIRE(order.substr(0, 6) == (barrier == Barrier::kYes ? "rwrwrw" : "wrwrwr"));
  }
}

TEST_CASE("handlers: none runs inside a call", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    REQUIRE(pair.client->write("abc", 3) == 3);
    await_readable(pair.loop, *pair.server);
    bool inside = false;
    int ran = 0;
    const auto handler = [&](Connection&) {
      REQUIRE_FALSE(inside);
      ++ran;
    };
    inside = true;
    pair.server->set_read_handler(handler);  // already readable and writable
    pair.server->set_write_handler(handler);
    pair.client->set_write_handler(handler);
    pair.client->set_read_handler(handler);
    char byte;
    REQUIRE(pair.server->read(&byte, 1) == 1);
    REQUIRE(pair.server->write("x", 1) == 1);
    REQUIRE(pair.client->write("x", 1) == 1);
    ConnectionPtr other = pair.connect(testing::address_of(*pair.listener), handler);
    other->set_read_handler(handler);
    other->set_write_handler(handler);
    other.reset();
    pair.client.reset();
    inside = false;
    REQUIRE(ran == 0);
    RUN_UNTIL(pair.loop, ran > 0);
  }
}

TEST_CASE("connect handler: it runs once, after connect() has returned", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    testing::Site site(transport);
    ConnectionPtr server;
    const conn::ListenerPtr listener =
        site.listen([&](ConnectionPtr accepted) { server = std::move(accepted); });
    bool returned = false;
    int calls = 0;
    ConnectionPtr client = site.type.create(site.loop);
    client->connect(testing::address_of(*listener), [&](Connection& c) {
      REQUIRE(returned);
      REQUIRE(c.state() == State::kConnected);
      ++calls;
    });
    returned = true;
    REQUIRE(calls == 0);
    REQUIRE(client->state() != State::kNone);
    RUN_UNTIL(site.loop, calls > 0 && server);
    // A second connect() has no effect.
    client->connect(testing::address_of(*listener), [&](Connection&) { ++calls; });
    testing::send(site.loop, *client, "x");
    REQUIRE(testing::receive(site.loop, *server, 1) == "x");
    testing::turns(site.loop, 10);
    REQUIRE(calls == 1);
  }
}

TEST_CASE("connect handler: it runs before read and write handlers that were set early",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    testing::Site site(transport);
    ConnectionPtr server;
    const conn::ListenerPtr listener = site.listen([&](ConnectionPtr accepted) {
      server = std::move(accepted);
      REQUIRE(server->write("x", 1) == 1);
    });
    std::string order;
    const ConnectionPtr client = site.type.create(site.loop);
    client->set_read_handler([&](Connection&) { order += 'r'; });
    client->set_write_handler([&](Connection&) { order += 'w'; });
    testing::turns(site.loop, 3);
    REQUIRE(order.empty());
    client->connect(testing::address_of(*listener), [&](Connection&) { order += 'c'; });
    RUN_UNTIL(site.loop,
              order.find('r') != std::string::npos && order.find('w') != std::string::npos);
    REQUIRE(order.find_last_of('c') == 0);
  }
}

TEST_CASE("connect handler: it may write at once and set handlers", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    testing::Site site(transport);
    testing::EchoServer echo;
    const conn::ListenerPtr listener = site.listen(echo.handler());
    std::string answer;
    const ConnectionPtr client = site.connect(testing::address_of(*listener), [&](Connection& c) {
      REQUIRE(c.write("hello", 5) == 5);
      c.set_read_handler([&](Connection& again) { answer += read_some(again, 100); });
    });
    RUN_UNTIL(site.loop, answer == "hello");
  }
}

TEST_CASE("connect handler: there may be none", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    testing::Site site(transport);
    testing::EchoServer echo;
    const conn::ListenerPtr listener = site.listen(echo.handler());
    const ConnectionPtr client = site.connect(testing::address_of(*listener));
    RUN_UNTIL(site.loop, client->state() == State::kConnected && echo.open() == 1);
    testing::send(site.loop, *client, "x");
    REQUIRE(testing::receive(site.loop, *client, 1) == "x");
  }
}

TEST_CASE("accept handler: it may answer at once and set handlers", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    testing::Site site(transport);
    ConnectionPtr server;
    std::string got;
    const conn::ListenerPtr listener = site.listen([&](ConnectionPtr accepted) {
      server = std::move(accepted);
      REQUIRE(server->state() == State::kConnected);
      REQUIRE(server->write("welcome", 7) == 7);
      server->set_read_handler([&](Connection& c) { got += read_some(c, 100); });
    });
    const ConnectionPtr client = site.connect(testing::address_of(*listener));
    REQUIRE(testing::receive(site.loop, *client, 7) == "welcome");
    testing::send(site.loop, *client, "thanks");
    RUN_UNTIL(site.loop, got == "thanks");
  }
}

TEST_CASE("handlers: one that throws leaves its connection usable", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    int calls = 0;
    pair.server->set_read_handler([&](Connection& c) {
      if (++calls == 1) throw std::runtime_error("thrown by a handler");
      REQUIRE(read_some(c, 10) == "x");
    });
    REQUIRE(pair.client->write("x", 1) == 1);
    bool thrown = false;
    const auto turn = [&] {
      try {
        pair.loop.process_events(ae::kFullIteration);
      } catch (const std::runtime_error&) {
        thrown = true;
      }
      // A loop that shares another's ev_loop keeps the exception.
      for (std::size_t i = 1; pair.loops && i < pair.loops->size(); ++i)
        if ((*pair.loops)[i].take_exception()) thrown = true;
    };
    while (!thrown) turn();
    RUN_UNTIL(pair.loop, calls == 2);
    REQUIRE(pair.server->state() == State::kConnected);
  }
}

TEST_CASE("handlers: what they hold is let go when they are removed or the connection is closed",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const auto resource = std::make_shared<int>();
    const auto handler = [resource](Connection&) {};
    const long others = resource.use_count();
    pair.client->set_read_handler(handler);
    pair.client->set_write_handler(handler);
    REQUIRE(resource.use_count() == others + 2);
    pair.client->set_write_handler(nullptr);
    REQUIRE(resource.use_count() == others + 1);
    pair.client.reset();
    REQUIRE(resource.use_count() == others);
  }
}

TEST_CASE("handlers: one that owns its connection may be removed after the end of the loop",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    const int which = GENERATE(0, 1, 2, 3, 4);
    const bool all = which == 4 || GENERATE(false, true);
    CAPTURE(which, all);
    Pair pair(transport);
    if (pair.loops) return;
    const auto set = [&](Connection& c, Connection::Handler handler) {
      if (which == 0) c.set_read_handler(std::move(handler));
      if (which == 1) c.set_write_handler(std::move(handler));
      if (which == 2) c.set_close_handler(std::move(handler));
      if (which == 3) c.set_path_handler(std::move(handler));
      if (which == 4) c.connect(testing::address_of(*pair.listener), std::move(handler));
    };
    auto owner = std::make_shared<ConnectionPtr>(which == 4 ? pair.type.create(pair.loop)
                                                            : std::move(pair.server));
    const std::weak_ptr<ConnectionPtr> lives = owner;
    Connection& owned = **owner;
    set(owned, [held = std::move(owner)](Connection&) {});
    pair.client.reset();
    pair.listener.reset();
    std::destroy_at(&pair.loop);
    const bool lived = !lives.expired();
    if (all)
      owned.clear_handlers();
    else
      set(owned, nullptr);
    const bool ended = lives.expired();
    std::construct_at(&pair.loop);
    REQUIRE(lived);
    REQUIRE(ended);
  }
}

TEST_CASE("handlers: a dead connection tells each direction once, and then lets the loop sleep",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    pair.server.reset();
    int failed_writes = 0, failed_reads = 0, calls = 0;
    pair.client->set_write_handler([&](Connection& c) {
      ++calls;
      if (c.write("x", 1) == -1 && errno != EAGAIN) ++failed_writes;
    });
    RUN_UNTIL(pair.loop, failed_writes > 0);
    REQUIRE(pair.client->state() == State::kError);
    pair.client->set_read_handler([&](Connection& c) {
      ++calls;
      char byte;
      if (c.read(&byte, 1) == -1 && errno != EAGAIN) ++failed_reads;
    });
    RUN_UNTIL(pair.loop, failed_reads > 0);
    const int calls_until_told = calls;
    testing::IterationCounter iterations(pair.loop);
    REQUIRE(iterations.during(50ms) <= 10);
    REQUIRE(calls == calls_until_told);
    REQUIRE(failed_writes == 1);
    REQUIRE(failed_reads == 1);
    char byte;
    REQUIRE(pair.client->read(&byte, 1) == -1);
    REQUIRE(errno == ENOTCONN);
    REQUIRE(pair.client->write("x", 1) == -1);
    REQUIRE(errno == ENOTCONN);
  }
}
