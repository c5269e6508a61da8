// SPDX-License-Identifier: BSD-3-Clause
// AcceptorBase: what the listeners of all transports do alike. The conformance suite tests the
// rules for handlers over each transport.

#include "conn/core/acceptor_base.h"

#include <string>
#include <vector>

#include "conn/tcp/tcp_type.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

namespace {

using namespace conn;

/// Notes that it was destroyed, and why it was refused.
struct Pending final : PendingConnection {
  Pending(std::string its_name, std::vector<std::string>& its_log)
      : name(std::move(its_name)), log(its_log) {}
  ~Pending() override { log.push_back(name + " gone"); }
  std::string peer() const override { return name; }
  void refuse(std::string_view) noexcept override { log.push_back(name + " refused"); }
  const std::string name;
  std::vector<std::string>& log;
};

struct TestAcceptor final : AcceptorBase {
  TestAcceptor(const ConnectionType& its_type, ae::EventLoop& its_loop, unsigned batch,
               AcceptHandler accepted)
      : AcceptorBase(its_type, ConnectionSet::of(its_loop).ready(its_loop), batch,
                     std::move(accepted)) {}
  void begin(PendingConnectionPtr arrival) override {
    if (keeps) return kept.push_back(std::move(arrival));
    arrival.reset();
    hand_over(type().create(loop()));
  }
  void on_stop(bool loop_ends) noexcept override { ended_with_loop = loop_ends; }
  bool keeps = false;
  std::vector<PendingConnectionPtr> kept;
  bool ended_with_loop = false;
};

struct Watcher final : LoopEndWatcher {
  Watcher(char its_name, std::string& its_order) : name(its_name), order(its_order) {}
  void on_loop_end() noexcept override { order += name; }
  const char name;
  std::string& order;
};

}  // namespace

TEST_CASE("acceptor: a batch of those that wait begins in one iteration, in their order",
          "[conn][acceptor]") {
  testing::AnyLoop loop;
  const tcp::TcpType tcp;
  std::vector<std::string> log;
  int accepted = 0;
  const AcceptorPtr<TestAcceptor> acceptor(
      new TestAcceptor(tcp, loop, 2, [&](const ConnectionPtr&) { ++accepted; }));
  acceptor->pause();
  for (const char* const name : {"a", "b", "c"})
    acceptor->arrive(std::make_unique<Pending>(name, log));
  testing::turns(loop, 2);
  CHECK(accepted == 0);
  acceptor->resume();
  testing::turns(loop, 1);
  CHECK(accepted == 2);
  testing::turns(loop, 1);
  CHECK(accepted == 3);
  CHECK(log == std::vector<std::string>{"a gone", "b gone", "c gone"});
}

TEST_CASE("acceptor: beyond the limit a peer is refused, and the handler of refusals is told",
          "[conn][acceptor]") {
  testing::AnyLoop loop;
  const tcp::TcpType tcp;
  std::vector<std::string> log;
  const AcceptorPtr<TestAcceptor> acceptor(
      new TestAcceptor(tcp, loop, 8, [](const ConnectionPtr&) { FAIL("nothing is accepted"); }));
  acceptor->limit(1);
  acceptor->keeps = true;
  acceptor->on_refused([&](const Failure& why) { log.push_back(why.text); });
  acceptor->arrive(std::make_unique<Pending>("a", log));
  acceptor->arrive_later(std::make_unique<Pending>("b", log));
  CHECK(log.empty());  // arrive_later() runs no handler
  testing::turns(loop, 1);
  CHECK(log == std::vector<std::string>{"b refused", "b gone",
                                        "b: 1 connections are open (max-connections)"});
  CHECK(tcp.counters(loop).refused == 1);
  acceptor->kept.clear();
  log.clear();
}

TEST_CASE("acceptor: what comes while a handler runs waits until it has returned",
          "[conn][acceptor]") {
  testing::AnyLoop loop;
  const tcp::TcpType tcp;
  std::vector<std::string> log;
  int running = 0, accepted = 0;
  AcceptorPtr<TestAcceptor> acceptor;
  acceptor.reset(new TestAcceptor(tcp, loop, 8, [&](const ConnectionPtr&) {
    REQUIRE(++running == 1);
    if (++accepted == 1) {
      acceptor->arrive(std::make_unique<Pending>("b", log));
      testing::turns(loop, 2);
      CHECK(log.size() == 1);  // only "a" has begun
    }
    --running;
  }));
  acceptor->arrive(std::make_unique<Pending>("a", log));
  CHECK(accepted == 1);
  testing::turns(loop, 1);
  CHECK(accepted == 2);
  SECTION("a handler destroys it, and what waits is gone") {
    log.clear();
    acceptor.reset(new TestAcceptor(tcp, loop, 8, [&](const ConnectionPtr&) {
      acceptor.reset();
      CHECK(log == std::vector<std::string>{"c gone", "d gone"});
    }));
    acceptor->pause();
    acceptor->arrive(std::make_unique<Pending>("c", log));
    acceptor->arrive(std::make_unique<Pending>("d", log));
    acceptor->resume();
    testing::turns(loop, 2);
    CHECK(log.size() == 2);
    CHECK(acceptor == nullptr);
  }
}

TEST_CASE("acceptor: the end of the loop reaches it after all other watchers", "[conn][acceptor]") {
  const tcp::TcpType tcp;
  std::string order;
  Watcher first('1', order), last('3', order), second('2', order);
  AcceptorPtr<TestAcceptor> acceptor;
  {
    testing::AnyLoop loop;
    acceptor.reset(new TestAcceptor(tcp, loop, 1, nullptr));
    ConnectionSet& set = ConnectionSet::of(loop);
    set.add_last(last);
    set.add(second);
    set.add(first);
  }
  CHECK(order == "123");
  CHECK(acceptor->stopped());
  CHECK(acceptor->ended_with_loop);
}
