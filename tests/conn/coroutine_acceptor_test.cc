// SPDX-License-Identifier: BSD-3-Clause
// A co::Acceptor that finds no memory.

#include <chrono>
#include <memory>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "conn/co.h"
#include "conn/core/transport.h"
#include "conn/registry.h"
#include "tests/support/allocations.h"
#include "tests/support/any_loop.h"
#include "tests/support/catch.h"
#include "tests/support/stuck_transport.h"
#include "tests/support/testing.h"

namespace co = conn::co;
using namespace std::chrono_literals;

namespace {

/// fed://any: a listener gets its connections from the test.
class FedType final : public conn::Transport {
 public:
  std::string_view name() const noexcept override { return "fed"; }
  conn::Capabilities capabilities() const noexcept override { return {}; }
  void configure(const conn::Options&) override {}
  void check(const conn::Endpoint&) const override {}
  conn::ConnectionPtr create(ae::EventLoop& loop) const override { return stuck_.create(loop); }
  conn::ListenerPtr listen(ae::EventLoop&, const conn::Endpoint&,
                           conn::AcceptHandler handler) const override {
    auto& its = const_cast<FedType&>(*this);
    its.accepted = std::move(handler);
    return std::make_unique<Fed>(its);
  }

  conn::AcceptHandler accepted;
  bool paused = false;
  bool lacks_memory = false;  ///< resume() throws std::bad_alloc

 private:
  struct Fed final : conn::Listener {
    explicit Fed(FedType& its) : of(its) {}
    const conn::ConnectionType& type() const noexcept override { return of; }
    std::vector<conn::Endpoint> endpoints() const override { return {}; }
    void pause() override { of.paused = true; }
    void resume() override {
      if (of.lacks_memory) throw std::bad_alloc();
      of.paused = false;
    }
    FedType& of;
  };
  const testing::StuckType stuck_;
};

}  // namespace

TEST_CASE("acceptor: a full queue loses nothing if its listener cannot be resumed", "[co]") {
  testing::AnyLoop loop;
  conn::Registry registry;
  auto& fed = static_cast<FedType&>(registry.add(std::make_unique<FedType>()));
  co::Acceptor acceptor(registry, loop, "fed://any", 2);
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < 2; ++i) {
    auto arrival = fed.create(loop);
    ids.push_back(arrival->id());
    fed.accepted(std::move(arrival));
  }
  REQUIRE(fed.paused);
  std::vector<std::uint64_t> taken;
  int failures = 0;
  const auto take = [&]() -> co::Task<> {
    try {
      const co::Stream next = co_await acceptor.next();
      taken.push_back(next->id());
    } catch (const std::bad_alloc&) {
      ++failures;
    }
  };
  co::Scope scope;
  fed.lacks_memory = true;
  scope.spawn(take());
  CHECK(failures == 1);
  CHECK(acceptor.waiting() == 2);
  CHECK(fed.paused);
  fed.lacks_memory = false;
  scope.spawn(take());
  CHECK_FALSE(fed.paused);
  scope.spawn(take());
  CHECK(taken == ids);
}

#if AECONN_COUNTS_ALLOCATIONS
TEST_CASE("acceptor: without memory to keep a connection it is closed, and the loop goes on",
          "[co]") {
  testing::Site site({.name = "tls"});
  // libstdc++ needs memory for the 64th element of a std::deque.
  constexpr std::size_t kKept = 63;
  co::Acceptor acceptor(site.registry, site.loop, site.fresh(), kKept);
  std::vector<conn::ConnectionPtr> clients;
  for (std::size_t i = 0; i < 2 * kKept; ++i)
    clients.push_back(site.connect(testing::address_of(acceptor.listener())));
  RUN_UNTIL(site.loop, acceptor.waiting() == kKept);
  testing::turns(site.loop, 50);
  std::vector<co::Stream> taken;
  taken.reserve(clients.size());
  const auto take = [](co::Acceptor& from, std::vector<co::Stream>& to,
                       std::size_t count) -> co::Task<> {
    while (count-- != 0) to.push_back(co_await from.next());
  };
  co::Scope scope;
  co::Task<> one = take(acceptor, taken, 1);
  bool thrown = false;
  {
    const testing::NoMemory none;
    try {
      scope.spawn(std::move(one));
      testing::turns(site.loop, 5);
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
  }
  REQUIRE_FALSE(thrown);
  REQUIRE(taken.size() == 1);
  // It goes on with the connections that it has and with those that come now.
  const conn::ConnectionPtr late = site.connect(testing::address_of(acceptor.listener()));
  scope.spawn(take(acceptor, taken, kKept));
  RUN_UNTIL(site.loop, taken.size() == 1 + kKept);
}
#endif
