// SPDX-License-Identifier: BSD-3-Clause
// Everything that connects for a program (Redial, lists of schemes, several hosts, groups of loops,
// coroutines), while allocations, calls and descriptors fail: each one once, each with the twenty
// after it, and all of them for two seconds. An attempt may fail, but no exception may leave the
// loop, nothing may hang, and afterwards everything must work as before.
//
//   AECONN_TORTURE=redial:tcp   only this one; AECONN_TORTURE_NUMBER=20: only this, in-process

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conn/co.h"
#include "conn/listener_group.h"
#include "conn/redial.h"
#include "conn/transports/transports.h"
#include "tests/simulation/child.h"
#include "tests/simulation/memory.h"
#include "tests/simulation/world.h"
#include "tests/support/catch.h"
#include "tests/support/certificates.h"
#include "tests/support/no_descriptors.h"
#include "tests/support/shared_loops.h"
#include "tests/support/testing.h"

using namespace simulation;
using conn::ConnectionPtr;

namespace {

enum class What { kCall, kNew, kDescriptors };

struct Outcome {
  std::uint64_t reached = 0;
};

/// A way to connect.
struct Way {
  std::string name;     // "redial:tcp"
  std::string listen;   // URL; after "//" comes a path
  std::string connect;  // URL; the port or path is the listener's
  bool device = false;  // 127.0.0.1 is also the address of an RDMA device
  bool group = false;   // two loops serve
};

const std::vector<Way>& ways() {
  static const std::vector<Way> all = {
      {"redial:tcp", "tcp://127.0.0.1:0", "tcp://127.0.0.1"},
      {"redial:hosts", "tcp://127.0.0.1:0", "tcp://127.0.0.3,127.0.0.1"},
      {"redial:list", "rdma|tcp://127.0.0.1:0", "rdma|tcp://127.0.0.1", true},
      {"redial:list-to-tcp", "tcp://127.0.0.1:0", "rdma|tcp://127.0.0.1", true},
      {"redial:rdma", "rdma://127.0.0.1:0", "rdma://127.0.0.1", true},
      {"redial:tls", "tls://127.0.0.1:0", "tls://127.0.0.1"},
      {"redial:shm", "shm://", "shm://"},
      {"plain:hosts", "tcp://127.0.0.1:0", "tcp://127.0.0.3,127.0.0.1?spread=least"},
      {"plain:list", "rdma|tcp://127.0.0.1:0", "rdma|tcp://127.0.0.1", true},
      {"plain:list-to-tcp", "tcp://127.0.0.1:0", "rdma|tcp://127.0.0.1", true},
      {"plain:group", "tcp://127.0.0.1:0", "tcp://127.0.0.1", false, true},
      {"plain:group-list", "rdma|tcp://127.0.0.1:0", "rdma|tcp://127.0.0.1", true, true},
      {"co:tcp", "tcp://127.0.0.1:0", "tcp://127.0.0.1"},
      {"co:shm", "shm://", "shm://"},
      {"co:list", "rdma|tcp://127.0.0.1:0", "rdma|tcp://127.0.0.1", true},
  };
  return all;
}

// An API call that throws has no effect, so it is repeated.
template <class Call>
auto surely(Call call) {
  for (;;) try {
      return call();
    } catch (const std::bad_alloc&) {
    }
}

class Torture {
 public:
  explicit Torture(const Way& way) : way_(way) {
    if (way.device) world_.add_device("sim0", "127.0.0.1");
    for (const auto& each : registry_.types())
      if (each->name().starts_with("tls")) each->configure(testing::test_tls_options("localhost"));
    servers_.reserve(1000);
    tick_ = loop_->add_time_event(5ms, [] { return ae::Duration(5ms); });
    listen();
  }

  std::string run(What what, std::uint64_t number, std::uint64_t count, Outcome& outcome) {
    if (what == What::kNew) fail_allocation(Allocator::kNew, number, count);
    if (what == What::kCall) world_.fail_call(number, count);
    if (what == What::kDescriptors) short_at_ = number;
    if (way_.name.starts_with("redial:")) {
      redial();
    } else {
      const bool coroutines = way_.name.starts_with("co:");
      for (int round = 0; round < 2 && complaint_.empty(); ++round)
        (void)(coroutines ? co_client() : client());
    }
    outcome.reached = what == What::kNew    ? allocation_failed()
                      : what == What::kCall ? world_.failed_calls()
                                            : turns_ > number;
    fail_allocation(Allocator::kNew, 0);
    world_.fail_call(0);
    shortage_.reset();
    short_at_ = UINT64_MAX;
    if (redial_ && complaint_.empty()) again("no connection after it was over: ");
    if (complaint_.empty() && !client()) complain("no new connection after it was over");
    redial_.reset();
    servers_.clear();
    run_for(20s);
    if (!complaint_.empty() && what == What::kCall)
      complaint_ += " (the call: " + world_.last_failed() + ")";
    return complaint_;
  }

 private:
  void complain(const char* what, std::string_view more = {}) {
    fail_allocation(Allocator::kNew, 0);
    if (complaint_.empty()) complaint_ = fmt::format("{}{}", what, more);
  }

  conn::AcceptHandler accepts() {
    return [this](ConnectionPtr next) { servers_.push_back(std::move(next)); };
  }

  void listen() {
    const std::string path = way_.listen.ends_with("//") ? folder_.path() + "/s" : "";
    if (way_.group) {
      loops_ = std::make_unique<testing::SharedLoops>(*loop_, 2);
      listener_ = conn::listen(registry_, *loops_, way_.listen,
                               [this](ae::EventLoop&, std::size_t) { return accepts(); });
    } else {
      listener_ = registry_.listen(*loop_, way_.listen + path, accepts());
    }
    to_ = conn::Endpoint::parse(way_.connect + path);
    if (!path.empty()) return;
    to_.port = listener_->endpoints().front().port;
    to_.no_port = false;
  }

  void turn() {
    if (turns_++ == short_at_) {
      shortage_.emplace();
      enough_at_ = world_.now() + 2s;
    }
    if (shortage_ && world_.now() >= enough_at_) shortage_.reset();
    try {
      (void)loop_->process_events(ae::kFullIteration);
    } catch (const std::exception& error) {
      complain("left the loop: ", error.what());
    }
    for (ConnectionPtr& each : servers_) serve(each);
  }

  static void serve(ConnectionPtr& server) {
    if (!server) return;
    std::array<char, 64> bytes;
    const ssize_t n = server->read(bytes.data(), bytes.size());
    if (n > 0) {
      for (int tries = 0; tries < 100; ++tries)  // a failing call may give EAGAIN
        if (server->write(bytes.data(), static_cast<std::size_t>(n)) > 0) break;
    } else if (n == 0 || errno != EAGAIN) {
      server.reset();
    }
  }

  template <class Condition>
  bool until(Condition condition, Nanoseconds span = 30s) {
    const Nanoseconds limit = world_.now() + span;
    while (!condition() && world_.now() < limit && complaint_.empty()) turn();
    return condition();
  }
  void run_for(Nanoseconds span) {
    until([] { return false; }, span);
  }

  /// Sends four bytes once; true when they have been echoed.
  bool talks(conn::Connection& connection) {
    if (talking_ != connection.id()) {
      over_ = false;
      if (connection.write("ping", 4) != 4) return false;
      talking_ = connection.id();
      got_ = 0;
    }
    char byte;
    ssize_t n = 1;
    while (got_ < 4 && (n = connection.read(&byte, 1)) == 1) ++got_;
    over_ = n == 0 || (n < 0 && errno != EAGAIN);
    return got_ == 4;
  }

  void redial() {
    conn::Redial::Settings settings;
    settings.seed = 7;
    conn::Redial::Handlers handlers;
    handlers.down = [this](conn::Connection&, const conn::Redial::Loss&) { ++lost_; };
    surely([&] {
      redial_ = std::make_unique<conn::Redial>(registry_, *loop_, to_, handlers, settings);
      return 0;
    });
    again("no connection at first: ");
    if (complaint_.empty()) again("no connection after a loss: ");
  }

  /// The server drops all connections; the client must recover.
  void again(const char* when) {
    const int lost = lost_;
    const bool stands = redial_->connection() != nullptr;
    for (ConnectionPtr& each : servers_) each.reset();
    if (!until([&] {
          conn::Connection* const connection = redial_->connection();
          return (!stands || lost_ > lost) && connection != nullptr && talks(*connection);
        })) {
      fail_allocation(Allocator::kNew, 0);
      complain(when, redial_->describe());
    }
  }

  /// Returns whether there was an answer; the attempt must end in any case.
  bool client() {
    ConnectionPtr made;
    try {
      made = registry_.create(*loop_, to_);
      made->connect(to_, [](conn::Connection&) {});
    } catch (const std::exception&) {  // no memory, no descriptor
      return false;
    }
    bool good = over_ = false;
    const bool over = until([&] {
      good = made->state() == conn::State::kConnected && talks(*made);
      return good || over_ || made->state() == conn::State::kError;
    });
    if (!over) complain("a client came to no end");
    if (!good && made->state() == conn::State::kError && made->last_error().empty())
      complain("a client failed without a word");
    return good;
  }

  static conn::co::Task<> session(Torture& self, bool& over, bool& good) {
    try {
      conn::co::Connected there = co_await conn::co::connect(self.registry_, *self.loop_, self.to_);
      std::array<char, 4> bytes{};
      if (there && (co_await there.stream.write(std::string_view("ping"))).error == std::errc())
        good = (co_await there.stream.read_exactly(bytes)).error == std::errc();
    } catch (const std::exception&) {  // no memory, no descriptor
    }
    over = true;
  }
  bool co_client() {
    bool over = false, good = false;
    conn::co::Scope scope;
    try {
      scope.spawn(session(*this, over, good));
    } catch (const std::bad_alloc&) {
      return false;
    }
    if (!until([&] { return over; })) complain("a coroutine came to no end");
    return good;
  }

  const Way& way_;
  World world_;
  testing::TempFolder folder_;
  conn::Registry registry_ = conn::all_transports();
  std::unique_ptr<testing::AnyLoop> loop_ = std::make_unique<testing::AnyLoop>();
  std::unique_ptr<testing::SharedLoops> loops_;
  ae::TimerId tick_ = 0;
  std::vector<ConnectionPtr> servers_;
  conn::ListenerPtr listener_;
  conn::Endpoint to_;
  std::unique_ptr<conn::Redial> redial_;
  int lost_ = 0;
  std::uint64_t talking_ = 0;
  int got_ = 0;
  bool over_ = false;  // talks() has seen the end of the connection
  std::uint64_t turns_ = 0, short_at_ = UINT64_MAX;
  std::optional<testing::NoNewDescriptors> shortage_;
  Nanoseconds enough_at_{};
  std::string complaint_;
};

void torture(What what, std::uint64_t count) {
  testing::test_identity();
  const char* const only = std::getenv("AECONN_TORTURE");
  const char* const one = std::getenv("AECONN_TORTURE_NUMBER");
  const Stride stride;
  const std::uint64_t step = stride.each * (count == 1 ? 1 : 7);
  for (const Way& way : ways()) {
    if (only != nullptr && way.name != only) continue;
    if (one != nullptr) {
      Outcome outcome;
      CHECK(Torture(way).run(what, std::strtoull(one, nullptr, 10), count, outcome) == "");
      continue;
    }
    std::uint64_t tried = 0, failed = 0;
    for (std::uint64_t number = stride.first; failed < 5; number += step) {
      const ChildRun<Outcome> run = run_in_child<Outcome>(
          [&](Outcome& outcome) { return Torture(way).run(what, number, count, outcome); });
      if (!run.complaint.empty()) {
        fmt::print(stderr, "{}, number {}: {}\n", way.name, number, run.complaint);
        ++failed;
      } else if (run.sums.reached == 0 || (what == What::kDescriptors && number >= 60)) {
        break;
      }
      ++tried;
    }
    fmt::print("{}: {} tried\n", way.name, tried);
    CAPTURE(way.name);
    CHECK(failed == 0);
    CHECK(tried != 0);
  }
}

}  // namespace

TEST_CASE("torture: each allocation of who connects may fail", "[simulation][torture]") {
  torture(What::kNew, 1);
}

TEST_CASE("torture: twenty allocations of who connects may fail", "[simulation][torture]") {
  torture(What::kNew, 20);
}

TEST_CASE("torture: each call of who connects may fail", "[simulation][torture]") {
  torture(What::kCall, 1);
}

TEST_CASE("torture: twenty calls of who connects may fail", "[simulation][torture]") {
  torture(What::kCall, 20);
}

TEST_CASE("torture: who connects may find no descriptor at any moment", "[simulation][torture]") {
#ifdef __SANITIZE_ADDRESS__
  return;  // UBSan needs a descriptor to check memory
#endif
  torture(What::kDescriptors, 1);
}
