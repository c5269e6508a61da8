// SPDX-License-Identifier: BSD-3-Clause
// Each call and each allocation fails in turn, from N = 1 until a run has no Nth: connect, echo
// both ways, close, beside a connection that must not be affected. The Nth failure may be an error
// of that one connection; it must not lose or leak anything elsewhere, and must not block anything.
//
//   AECONN_TORTURE_STRIDE=1   every allocation of OpenSSL (default: every 37th)
//   AECONN_TORTURE_NUMBER=20  only this one, in this process
//   AECONN_TORTURE=tcp        only this transport
//   AECONN_TORTURE_PROFILE=mlx5,hns   only devices of these profiles. Default: rdma on every one
//                             that can serve, and TLS over it on the first: TLS makes the same
//                             calls on all of them.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <thread>

#include "conn/kit/resolver.h"
#include "conn/rdma/device/memory.h"
#include "conn/rdma/device/verbs.h"
#include "conn/tcp/passed_descriptors.h"
#include "conn/transports/transports.h"
#include "tests/simulation/child.h"
#include "tests/simulation/memory.h"
#include "tests/simulation/world.h"
#include "tests/support/catch.h"
#include "tests/support/certificates.h"
#include "tests/support/pass_descriptors.h"
#include "tests/support/testing.h"

#if AECONN_TLS
#include "conn/tls/type.h"
#endif

using namespace simulation;

namespace {

enum class What { kCall, kNew, kOpenSsl };

struct Outcome {
  std::uint64_t failed = 0;    // runs that had an Nth
  std::uint64_t survived = 0;  // of these, runs without an error of the connection
};

// Echoes through a buffer that each client has from the start, so that a failing allocation is the
// library's, or concerns a client that is not accepted yet.
class Echo {
 public:
  explicit Echo(bool in_place = false) : in_place_(in_place) {}
  conn::AcceptHandler handler() {
    return [this](conn::ConnectionPtr next) {
      conn::Connection* key = next.get();
      clients_[key].connection = std::move(next);
      try {
        key->set_read_handler([this](conn::Connection& here) { pump(here); });
        if (in_place_) key->set_close_handler([](conn::Connection& here) { here.flush(); });
      } catch (const std::bad_alloc&) {  // refuses the client
        clients_.erase(key);
        throw;
      }
    };
  }
  std::size_t open() const noexcept { return clients_.size(); }
  bool in_place() const noexcept { return in_place_; }

 private:
  struct Client {
    conn::ConnectionPtr connection;
    std::array<char, 1 << 15> bytes;
    std::size_t begin = 0, end = 0;
  };

  // A copy of received bytes, which the device sends in place.
  struct Parcel {
    static void released(void* context, std::error_code) noexcept {
      delete static_cast<Parcel*>(context);  // detects a second release
    }
    std::array<char, 4000> bytes;
    std::unique_ptr<conn::Memory> memory;
  };

  // Number of bytes taken; 0: the caller uses reserve(); -1 with errno.
  static ssize_t send_back(conn::Connection& connection, std::string_view bytes) {
    auto parcel = std::unique_ptr<Parcel>(new (std::nothrow) Parcel);
    if (parcel == nullptr || bytes.size() < 2000) return 0;
    bytes = bytes.substr(0, parcel->bytes.size());
    std::copy(bytes.begin(), bytes.end(), parcel->bytes.begin());
    try {
      parcel->memory = connection.type().register_memory(
          *connection.loop(), std::as_writable_bytes(std::span(parcel->bytes)));
    } catch (const std::bad_alloc&) {
      return 0;
    }
    const std::span<const char> sent(parcel->bytes.data(), bytes.size());
    const ssize_t n = connection.send(
        {std::as_bytes(sent), &Parcel::released, parcel.get(), parcel->memory.get()});
    if (n > 0) (void)parcel.release();
    return n;
  }

  void pump_in_place(conn::Connection& connection) {
    for (;;) {
      const conn::View view = connection.peek();
      if (view.size == 0) {
        if (errno != EAGAIN && errno != ENOMEM) clients_.erase(&connection);
        return;
      }
      const std::string_view bytes = view.first().substr(0, 10'000);
      const ssize_t sent = ++turns_ % 2 == 0 ? send_back(connection, bytes) : 0;
      if (sent > 0) {
        connection.consume(static_cast<std::size_t>(sent));
        continue;
      }
      if (sent < 0 && errno == EAGAIN) return resume_when_writable(connection);
      const std::span<std::byte> room = connection.reserve(bytes.size());
      if (room.empty() && errno == EAGAIN) return resume_when_writable(connection);
      if (room.empty() && errno == ENOMEM) return;  // the read handler runs again for unread bytes
      if (room.empty()) return (void)clients_.erase(&connection);
      std::memcpy(room.data(), bytes.data(), bytes.size());
      connection.commit(bytes.size());
      connection.consume(bytes.size());
    }
  }

  void resume_when_writable(conn::Connection& connection) {
    connection.set_write_handler([this](conn::Connection& here) {
      here.set_write_handler(nullptr);
      pump(here);
    });
  }

  void pump(conn::Connection& connection) {
    if (in_place_) return pump_in_place(connection);
    Client& client = clients_.at(&connection);
    for (;;) {
      if (client.begin == client.end) {
        const ssize_t n = connection.read(client.bytes.data(), client.bytes.size());
        if (n == 0 || (n < 0 && errno != EAGAIN)) return (void)clients_.erase(&connection);
        if (n < 0) return;
        client.begin = 0;
        client.end = static_cast<std::size_t>(n);
      }
      const ssize_t n =
          connection.write(client.bytes.data() + client.begin, client.end - client.begin);
      if (n < 0 && errno == EAGAIN) return resume_when_writable(connection);
      if (n < 0) return (void)clients_.erase(&connection);
      client.begin += static_cast<std::size_t>(n);
    }
  }
  bool in_place_;
  unsigned turns_ = 0;
  std::map<conn::Connection*, Client> clients_;
};

class Torture {
 public:
  Torture(std::string transport, const Profile& profile, bool in_place = false)
      : transport_(std::move(transport)), victim_echo_(in_place) {
    world_.add_device("sim0", "10.77.0.1", profile);
    for (const auto& each : registry_.types())
      if (each->name().starts_with("tls"))
        each->configure(testing::test_tls_options(each->name() == "tls+rdma" ? "localhost" : ""));
  }

  std::string run(What what, std::uint64_t number, Outcome& outcome) {
    const std::size_t before = testing::count_descriptors();
    loop_ = testing::make_loop();
    bystander_ = connect_to(listen(bystander_echo_));
    if (!settled(*bystander_) || !echoes(*bystander_, 3000)) return "no connection to begin with";
    arm(what, number);
    victim(outcome);
    outcome.failed = what == What::kCall ? world_.failed_calls() : allocation_failed();
    arm(what, 0);
    std::string complaint = complaint_;
    if (complaint.empty() && !echoes(*bystander_, 5000))
      complaint = "the bystander lost something: " + bystander_->last_error();
    // A new connection must work as before.
    if (complaint.empty()) {
      conn::ConnectionPtr next = connect_to(address_);
      if (!settled(*next) || !echoes(*next, 2000))
        complaint = "no connection afterwards: " + next->last_error();
    }
    bystander_.reset();
    listeners_.clear();
    turns_for(200s);
    if (complaint.empty() && victim_echo_.open() + bystander_echo_.open() != 0)
      complaint = "a server's end was never told";
    // Frees what the servers hold.
    victim_echo_ = Echo();
    bystander_echo_ = Echo();
    turns_for(20s);
    loop_.reset();
    world_.advance(world_.now() + 1s);
    world_.let_orphans_go();
    for (const auto& [kind, count] : world_.objects())
      if (complaint.empty()) complaint = fmt::format("left behind: {} {}", count, kind);
    for (const std::string& each : world_.violations())
      if (complaint.empty()) complaint = each;
    if (complaint.empty() && conn::rdma::registered_bytes() != 0)
      complaint = "registered bytes are counted wrong";
    // The thread that closes descriptors of peers is not of this world's time.
    while (conn::tcp::closing_aside() != 0) std::this_thread::yield();
    if (complaint.empty() && testing::count_descriptors() != before)
      complaint = "descriptors left open";
    if (!complaint.empty() && what == What::kCall)
      complaint += " (the call: " + world_.last_failed() + ")";
    return complaint;
  }

 private:
  using Handler = conn::Connection::Handler;

  void arm(What what, std::uint64_t number) {
    if (what == What::kCall) return world_.fail_call(number);
    fail_allocation(what == What::kNew ? Allocator::kNew : Allocator::kOpenSsl, number);
  }

  conn::Endpoint listen(Echo& echo) {
    std::string url = transport_ + "://";
    if (transport_.ends_with("rdma"))
      url += echo.in_place() ? "10.77.0.1:0?prepared=2&in-place=yes" : "10.77.0.1:0?prepared=2";
    else if (transport_.ends_with("unix") || transport_.ends_with("shm"))
      url += fmt::format("{}/{}", folder_.path(), ++names_);
    else
      url += "127.0.0.1:0";
    listeners_.push_back(
        registry_.require(transport_).listen(*loop_, conn::Endpoint::parse(url), echo.handler()));
    address_ = listeners_.back()->endpoints().front();
    if (transport_.ends_with("rdma")) {
      address_.options.set("spread", "near");
      address_.options.set("source", "10.77.0.1");
    } else if (!transport_.ends_with("unix") && !transport_.ends_with("shm")) {
      address_.options.set("spread", "least");
    }
    return address_;
  }

  conn::ConnectionPtr connect_to(const conn::Endpoint& to) {
    conn::ConnectionPtr made = registry_.require(transport_).create(*loop_);
    made->connect(to, [](conn::Connection&) {});
    return made;
  }

  // An exception from an application's handler leaves the loop; the loop remains usable.
  void turn() {
    try {
      (void)loop_->process_events(ae::kFullIteration);
    } catch (const std::bad_alloc&) {
    }
  }
  // An API call that throws has no effect, so it is repeated.
  ae::TimerId wake_after(Nanoseconds span) {
    for (;;) try {
        return loop_->add_time_event(span, [] { return ae::kNoMore; });
      } catch (const std::bad_alloc&) {
      }
  }
  template <class Condition>
  bool until(Condition condition, Nanoseconds span = 30s) {
    const Nanoseconds limit = world_.now() + span;
    const ae::TimerId tick = wake_after(span);
    while (!condition() && world_.now() < limit) turn();
    loop_->remove_time_event(tick);
    return condition();
  }
  void turns_for(Nanoseconds span) {
    until([] { return false; }, span);
  }
  bool settled(conn::Connection& connection) {
    until([&] { return connection.state() != conn::State::kConnecting; });
    return connection.state() == conn::State::kConnected;
  }

  // If EAGAIN was simulated, no other event may end the iteration.
  static void wake_when_writable(conn::Connection& connection) {
    for (;;) try {
        return connection.set_write_handler(
            [](conn::Connection& here) { here.set_write_handler(nullptr); });
      } catch (const std::bad_alloc&) {
      }
  }

  // Sends bytes and receives their echo; false at the first error or after too long.
  bool echoes(conn::Connection& connection, std::size_t size) {
    const testing::Pattern pattern(7);
    std::size_t sent = 0, received = 0;
    bool broken = false;
    static std::array<char, 1 << 16> buffer;
    until([&] {
      while (sent < size) {
        const std::string_view piece = pattern.at(sent).substr(0, size - sent);
        const ssize_t n = connection.write(piece.data(), piece.size());
        if (n < 0 && errno != EAGAIN) broken = true;
        if (n < 0 && errno == EAGAIN) wake_when_writable(connection);
        if (n <= 0) break;
        sent += static_cast<std::size_t>(n);
      }
      for (;;) {
        const ssize_t n = connection.read(buffer.data(), buffer.size());
        if (n == 0 || (n < 0 && errno != EAGAIN)) broken = true;
        if (n <= 0) break;
        if (!pattern.matches(received, {buffer.data(), static_cast<std::size_t>(n)})) {
          complaint_ = "wrong bytes";
          broken = true;
        }
        received += static_cast<std::size_t>(n);
      }
      return broken || received == size;
    });
    return !broken && received == size;
  }

  void victim(Outcome& outcome) {
    conn::ConnectionPtr connection;
    try {
      const conn::Endpoint there = listen(victim_echo_);
      connection = connect_to(there);
      if (!settled(*connection)) {
        if (connection->state() == conn::State::kConnecting)
          complaint_ = "connect() never came to an end";
        else if (connection->last_error().empty())
          complaint_ = "connect() failed without a word";
      } else if (echoes(*connection, 150000)) {
        ++outcome.survived;
      } else if (connection->state() == conn::State::kConnected && complaint_.empty()) {
        // The server's side may have failed and closed; then a read reports it.
        char byte = 0;
        const ssize_t n = connection->read(&byte, 1);
        if (n < 0 && errno == EAGAIN) complaint_ = "an echo never came to an end";
      }
    } catch (const conn::Error&) {
    } catch (const std::exception&) {  // no memory
    }
    connection.reset();
    turns_for(10s);
  }

  std::string transport_;
  World world_;
  conn::Registry registry_ = conn::all_transports();
  testing::TempFolder folder_;
  int names_ = 0;
  std::unique_ptr<ae::EventLoop> loop_;
  Echo bystander_echo_;
  Echo victim_echo_;
  std::vector<conn::ListenerPtr> listeners_;
  conn::Endpoint address_;
  conn::ConnectionPtr bystander_;
  std::string complaint_;
};

std::vector<const Profile*> profiles_for(const std::string& transport) {
  const bool told = std::getenv("AECONN_TORTURE_PROFILE") != nullptr;
  if (!transport.ends_with("rdma")) return {&all_profiles().front()};
  if (!told && transport != "rdma") return {&all_profiles().front()};
  return profiles_from("AECONN_TORTURE_PROFILE");
}

void torture_on(const Profile& profile, const std::string& transport, What what,
                std::uint64_t stride, bool in_place) {
  std::uint64_t tried = 0, survived = 0, failed = 0;
  const Stride which;
  for (std::uint64_t number = which.first;; number += stride * which.each) {
    const ChildRun<Outcome> run = run_in_child<Outcome>([&](Outcome& outcome) {
      return Torture(transport, profile, in_place).run(what, number, outcome);
    });
    if (!run.complaint.empty()) {
      fmt::print(stderr, "{} on {}, number {}: {}\n", transport, profile.name, number,
                 run.complaint);
      if (++failed == 10) break;
    } else if (run.sums.failed == 0) {
      break;
    }
    ++tried;
    survived += run.sums.survived;
  }
  static constexpr std::array<const char*, 3> kNames = {"calls", "allocations",
                                                        "allocations of OpenSSL"};
  fmt::print("{}{}: {} {} failed in turn, {} went unnoticed\n", transport,
             transport.ends_with("rdma") ? fmt::format(" on {}", profile.name) : "", tried,
             kNames[static_cast<std::size_t>(what)], survived);
  CAPTURE(profile.name);
  CHECK(failed == 0);
  // A selection that begins late may find none: some transports make few calls.
  CHECK((tried != 0 || which.first != 1));
}

void torture(const std::string& transport, What what, std::uint64_t stride = 1,
             bool in_place = false) {
  const char* only = std::getenv("AECONN_TORTURE");
  if (only != nullptr && transport != only) return;
  testing::test_identity();
  for (const Profile* profile : profiles_for(transport)) {
    if (const char* one = std::getenv("AECONN_TORTURE_NUMBER")) {
      Outcome outcome;
      CHECK(Torture(transport, *profile, in_place)
                .run(what, std::strtoull(one, nullptr, 10), outcome) == "");
    } else {
      torture_on(*profile, transport, what, stride, in_place);
    }
  }
}

}  // namespace

TEST_CASE("torture: each call of verbs, rdma_cm and sockets may fail", "[simulation][torture]") {
  const char* transport = GENERATE("rdma", "tcp", "unix", "shm", "tls+rdma", "tls");
  torture(transport, What::kCall);
}

TEST_CASE("torture: each allocation may fail", "[simulation][torture]") {
  const char* transport = GENERATE("rdma", "tcp", "unix", "shm", "tls+rdma", "tls");
  torture(transport, What::kNew);
}

TEST_CASE("torture: each allocation may fail where a server reads and writes in place",
          "[simulation][torture]") {
  const char* transport = GENERATE("rdma", "tcp", "unix", "shm", "tls+rdma", "tls");
  torture(transport, What::kNew, 1, true);
}

TEST_CASE("torture: each call may fail where a server reads and writes in place",
          "[simulation][torture]") {
  const char* transport = GENERATE("rdma", "tls+rdma");
  torture(transport, What::kCall, 1, true);
}

TEST_CASE("torture: a name that is looked up is answered, whichever allocation fails",
          "[simulation][torture]") {
  std::uint64_t tried = 0, failed = 0;
  for (std::uint64_t number = 1;; ++number) {
    const ChildRun<Outcome> run = run_in_child<Outcome>([&](Outcome& outcome) -> std::string {
      testing::AnyLoop loop;
      bool answered = false;
      std::unique_ptr<conn::Resolution> lookup;
      fail_allocation(Allocator::kNew, number);
      try {
        lookup = conn::resolve_async(loop, "localhost", 80,
                                     [&](const conn::Resolved&) { answered = true; });
      } catch (const std::bad_alloc&) {  // nothing was started
        answered = true;
      }
      while (!answered) {
        try {
          (void)loop.process_events(ae::kFullIteration);
        } catch (const std::bad_alloc&) {
        }
      }
      outcome.failed = allocation_failed();
      fail_allocation(Allocator::kNew, 0);  // else one of this child's own may fail, after the body
      return "";
    });
    if (!run.complaint.empty()) fmt::print(stderr, "number {}: {}\n", number, run.complaint);
    failed += run.complaint.empty() ? 0 : 1;
    if (run.complaint.empty() && run.sums.failed == 0) break;
    if (++tried == 200) break;
  }
  fmt::print("a name: {} allocations failed in turn\n", tried);
  CHECK(failed == 0);
  CHECK(tried > 2);
}

TEST_CASE("torture: each allocation of OpenSSL may fail", "[simulation][torture]") {
  const char* stride = std::getenv("AECONN_TORTURE_STRIDE");
  const char* transport = GENERATE("tls", "tls+rdma");
  torture(transport, What::kOpenSsl, stride != nullptr ? std::strtoull(stride, nullptr, 10) : 37);
}
