// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the tests of Setup share. The bed takes the place of the connection that is being set up:
// it passes the events of rdma_cm and the expiry of the deadline to Setup, and records the end.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/link_bed.h"
#include "tests/simulation/memory.h"
#include "tests/simulation/rejecter.h"

namespace simulation {

inline constexpr const char* kPeer = "10.77.0.2";
inline constexpr const char* kOther = "10.77.0.3";
inline constexpr const char* kNobody = "10.77.0.9";  // no device has this address
inline constexpr std::uint16_t kPort = 7;

inline conn::SocketAddress address_of(const std::string& host) {
  conn::SocketAddress result;
  REQUIRE(conn::numeric_address(host, kPort, result));
  return result;
}

/// A connection that is being set up, and two machines that it may connect to.
struct SetupBed final : conn::rdma::SetupUser {
  using CmEvent = conn::rdma::CmEvent;
  using Deadline = conn::rdma::Deadline;
  using Phase = conn::rdma::Phase;
  using Setup = conn::rdma::Setup;

  explicit SetupBed(const std::string& options = "source=10.77.0.1")
      : bed(options, chosen_profile().name) {
    bed.world.add_device("sim1", kPeer);
    bed.world.add_device("sim2", kOther);
    failures.reserve(4);  // so that a failure for lack of memory can be recorded
    begin_again();
    bed.when_expired = [this] {
      if (on_expiry) on_expiry();
      bed.setup->on_deadline();
    };
    bed.when_event = [this](const CmEvent& event) {
      if (before_event && !before_event(event)) return;
      if (!bed.setup || !bed.link.stage.connecting()) return;
      try {
        bed.setup->on_event(event);
      } catch (const std::exception&) {
        ++escaped;
      }
      handled.push_back(event.type);
    };
  }
  ~SetupBed() {
    fail_allocation(Allocator::kNew, 0);
    abandon();
    accepted.clear();
    listeners.clear();
    run_for(110s);  // until the kernel's time-outs are over
    for (const std::string& each : bed.world.violations()) {
      UNSCOPED_INFO(each);
      CHECK(false);
    }
    CHECK(ids() == 0);
    CHECK(count("qp") == 0);
  }
  SetupBed(const SetupBed&) = delete;
  SetupBed& operator=(const SetupBed&) = delete;

  /// Accepts connections to this address.
  void listen(const char* host) {
    listeners.push_back(
        bed.type.listen(bed.loop, conn::Endpoint::parse(std::string("rdma://") + host + ":7"),
                        [this](conn::ConnectionPtr one) { accepted.push_back(std::move(one)); }));
  }
  /// Makes the link ready for a set-up; the constructor has done so for the first one.
  void begin_again() {
    if (bed.link.stage.phase() != Phase::kResolving) bed.link.stage.move(Phase::kResolving);
    bed.link.renew_stream(1);
    handled.clear();
  }
  Setup& make(const std::vector<std::string>& hosts, ae::Duration limit = 10s,
              std::size_t first = 0, conn::rdma::HelloExchange* hellos = nullptr) {
    conn::Endpoint to;
    to.scheme = "rdma";
    for (const std::string& host : hosts) to.hosts.push_back({host, false});
    to.port = kPort;
    const Setup::Around around{bed.link, bed.deadline, bed.host(),
                               *this,    hellos,       bed.type.addresses()};
    began = now();
    bed.setup = std::make_unique<Setup>(around, to, began + limit, first);
    return *bed.setup;
  }
  /// Starts the set-up as a connection does.
  void start() {
    REQUIRE(bed.deadline.set(bed.setup->time_left(), Deadline::Of::kAddress));
    bed.setup->look_up_next();
  }
  /// Runs the set-up to its end. Returns how long it took since make().
  ae::Duration run() {
    start();
    return finish();
  }
  ae::Duration finish() {
    testing::run_until(
        bed.loop, [this] { return over(); }, "the set-up to end", 100s);
    return now() - began;
  }
  /// Gives the set-up up as a connection does.
  void abandon() {
    bed.setup.reset();
    bed.deadline.clear(&bed.loop);
    bed.link.tear_down();
    bed.state.forget(bed);
  }
  void run_for(Nanoseconds span) { bed.run_for(span); }
  /// Whether Setup has reported the end of the set-up.
  bool over() const { return set_up != 0 || !failures.empty(); }
  bool has_handled(rdma_cm_event_type type) const {
    return std::find(handled.begin(), handled.end(), type) != handled.end();
  }
  ae::TimePoint now() const { return std::chrono::steady_clock::now(); }
  int count(const char* kind) const {
    const auto objects = bed.world.objects();
    const auto found = objects.find(kind);
    return found != objects.end() ? found->second : 0;
  }
  /// Number of rdma_cm ids whose events the connection gets.
  std::ptrdiff_t ids() const {
    return std::count_if(bed.world.ids.begin(), bed.world.ids.end(), [this](const auto& each) {
      return each.second->context == static_cast<const conn::rdma::CmUser*>(&bed);
    });
  }
  /// Number of calls for the connection's device, such as "rdma_resolve_addr".
  std::int64_t calls(const char* name) const {
    const auto slow = bed.world.costs(*bed.device).slow;
    const auto found = slow.find(name);
    return found != slow.end() ? found->second : 0;
  }
  /// `stalls`: from now on a message of rdma_cm takes an hour; otherwise 2 ms at most.
  void stall(bool stalls) {
    auto& weather = bed.world.config.weather;
    weather.least_cm_delay = stalls ? Nanoseconds(1h) : 20us;
    weather.most_cm_delay = stalls ? Nanoseconds(1h) : 2ms;
  }
  /// The failure of a set-up that has failed.
  const conn::Failure& failure() const {
    REQUIRE(set_up == 0);
    REQUIRE(failures.size() == 1);
    return failures.front();
  }

  void on_set_up() override {
    if (throws != 0) {
      --throws;
      throw std::bad_alloc();
    }
    ++set_up;
    bed.link.stage.move(Phase::kOpen);
  }
  void on_set_up_failed(conn::Failure why) noexcept override {
    failures.push_back(std::move(why));
    bed.deadline.clear(&bed.loop);
    bed.link.stage.move(Phase::kDead);
  }

  LinkBed bed;
  std::vector<conn::ListenerPtr> listeners;
  std::vector<conn::ConnectionPtr> accepted;
  std::vector<rdma_cm_event_type> handled;
  std::function<bool(const CmEvent&)> before_event;  ///< false: Setup must not get the event
  std::function<void()> on_expiry;
  ae::TimePoint began;
  std::vector<conn::Failure> failures;
  int set_up = 0;
  int throws = 0;   ///< how many calls of on_set_up() throw
  int escaped = 0;  ///< exceptions that left Setup::on_event()
};

/// Adds a flag to the hello, and may throw.
struct Hellos final : conn::rdma::HelloExchange {
  explicit Hellos(SetupBed& its) : bed(its) {}
  void renew_stream() override {
    ++renewed;
    if (at_renewal) at_renewal();
    bed.bed.link.renew_stream(1);
  }
  conn::rdma::PrivateData request(conn::rdma::Hello hello) override {
    ++requests;
    if (at_request) at_request();
    hello.resume_ms = 1234;
    hello.flags |= conn::rdma::Hello::kResumes;
    return conn::rdma::PrivateData(encode(hello, conn::rdma::HelloKind::kRequest));
  }
  std::optional<conn::rdma::Hello> take_answer(std::span<const std::byte> data) override {
    ++answers;
    if (at_answer) at_answer();
    auto hello = conn::rdma::decode_hello(data, conn::rdma::HelloKind::kAnswer);
    if (hello) bed.bed.link.stream.on_hello(*hello);
    return hello;
  }
  SetupBed& bed;
  int renewed = 0, requests = 0, answers = 0;
  std::function<void()> at_renewal, at_request, at_answer;
};

}  // namespace simulation
