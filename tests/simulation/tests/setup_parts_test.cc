// SPDX-License-Identifier: BSD-3-Clause
// Setup by itself (conn/rdma/setup.h): the order of the addresses, how an address fails, what both
// ends tell each other, and what later connections know of an address.

#include <array>
#include <cerrno>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "conn/setup_trace.h"
#include "tests/simulation/setup_bed.h"

using namespace simulation;
using Catch::Matchers::StartsWith;
using conn::SocketAddress;
using conn::rdma::CmEvent;
using conn::rdma::Handshake;
using conn::rdma::Hello;
using conn::rdma::HelloKind;
using conn::rdma::Refused;
using conn::rdma::Setup;
using testing::Contains;

// --- the connection is set up --------------------------------------------------------------------

TEST_CASE("rdma set-up: an accepted connection is handed over once", "[simulation][set-up]") {
  const bool blocks = GENERATE(false, true);
  SetupBed one;
  one.listen(kPeer);
  const conn::SetupTrace trace;
  Setup& setup = one.make({kPeer});
  CHECK(setup.until() == one.began + 10s);
  CHECK(setup.address_deadline() == setup.until());  // that of the look-up
  CHECK(setup.addresses() == 0);
  CHECK(setup.address() == 0);
  if (blocks) {
    setup.look_up_all(ae::TimePoint::max());
    CHECK(setup.addresses() == 1);  // before the loop runs
  } else {
    one.start();
  }
  CHECK_FALSE(one.over());
  CHECK(one.finish() < 1s);
  CHECK(one.set_up == 1);
  CHECK(setup.addresses() == 1);
  CHECK(setup.address() == 0);
  CHECK(setup.refused() == Refused::kNone);
  CHECK(one.bed.link.path.peer().to_string() == "10.77.0.2:7");
  CHECK(one.bed.link.stage.handshake() == Handshake::kKnown);
  CHECK(one.bed.queue_pair().actual == IBV_QPS_RTS);
  std::string steps;
  for (const auto& step : trace.steps())
    steps.append(step.name).append(step.done ? "; " : " failed; ");
  CHECK(steps == "resolve address; resolve route; queue pair; connect; ");
  one.run_for(8s);  // less than the peer waits for a window
  CHECK(one.set_up == 1);
  CHECK(one.failures.empty());
  CHECK(one.accepted.size() == 1);
  one.run_for(10s);
  CHECK(one.bed.expired.empty());  // the deadline was cleared
}

TEST_CASE("rdma set-up: the address that is asked for is tried first", "[simulation][set-up]") {
  const auto [first, host] =
      GENERATE(table<std::size_t, const char*>({{0, kPeer}, {1, kOther}, {3, kOther}}));
  SetupBed one;
  one.listen(kPeer);
  one.listen(kOther);
  Setup& setup = one.make({kPeer, kOther}, 10s, first);
  one.run();
  CHECK(one.set_up == 1);
  CHECK(setup.address() == first % 2);
  CHECK(one.bed.link.path.peer().host() == host);
  CHECK(one.calls("rdma_resolve_addr") == 1);
}

TEST_CASE("rdma set-up: after the last address come those before the first",
          "[simulation][set-up]") {
  SetupBed one;
  one.listen(kPeer);
  Setup& setup = one.make({kPeer, kOther}, 10s, 1);
  one.run();
  CHECK(one.set_up == 1);
  CHECK(setup.address() == 0);
  CHECK(one.calls("rdma_resolve_addr") == 2);
}

// --- failures ------------------------------------------------------------------------------------

TEST_CASE("rdma set-up: an address that fails is followed by the next", "[simulation][set-up]") {
  const auto fails = GENERATE(as<std::string>{}, kPeer, kNobody, "", "*");
  SetupBed one;
  one.listen(kOther);
  Setup& setup = one.make({fails, kOther});
  CHECK(one.run() < 3s);
  CHECK(one.set_up == 1);
  CHECK(one.failures.empty());
  CHECK(one.bed.link.path.peer().host() == kOther);
  const bool has_address = fails.starts_with("10.");
  CHECK(setup.addresses() == (has_address ? 2 : 1));
  CHECK(setup.address() == (has_address ? 1 : 0));
  one.run_for(8s);
  CHECK(one.accepted.size() == 1);
}

TEST_CASE("rdma set-up: if every address fails the last failure is reported",
          "[simulation][set-up]") {
  const bool refused_last = GENERATE(true, false);
  SetupBed one;
  if (refused_last)
    one.make({kNobody, kPeer});
  else
    one.make({kPeer, kNobody});
  CHECK(one.run() < 3s);
  CHECK_THAT(one.failure().text,
             StartsWith(refused_last ? "connect to rdma://10.77.0.9,10.77.0.2:7: Connection refused"
                                     : "connect to rdma://10.77.0.2,10.77.0.9:7: no answer from "
                                       "the address (ARP or ND)"));
  CHECK(one.failure().code ==
        (refused_last ? std::errc::connection_refused : std::errc::timed_out));
  CHECK(one.bed.link.queue_pair() == nullptr);
  CHECK_FALSE(one.bed.link.id());
  one.run_for(20s);
  CHECK(one.failures.size() == 1);
  CHECK(one.calls("rdma_resolve_addr") == 2);
}

TEST_CASE("rdma set-up: a name without an address is reported", "[simulation][set-up]") {
  const auto [name, words] =
      GENERATE(table<const char*, const char*>({{"", "resolve an empty host name"},
                                                {"*", "* is an address to listen on"},
                                                {"no-such.invalid", "resolve no-such.invalid: "}}));
  SetupBed one;
  one.make({name});
  // A thread of the process may look the name up, so the simulated time must hardly pass.
  one.bed.setup->look_up_next();
  for (int i = 0; i < 10'000'000 && !one.over(); ++i) {
    testing::turns(one.bed.loop, 1);
    std::this_thread::yield();
  }
  CHECK_THAT(one.failure().text, StartsWith("connect to rdma://") && Contains(words));
  CHECK(one.failure().code != std::error_code());
  CHECK(one.calls("rdma_resolve_addr") == 0);
}

TEST_CASE("rdma set-up: the reason of a rejection is reported", "[simulation][set-up]") {
  const auto [text, words, refused, retry_after] =
      GENERATE(table<const char*, const char*, Refused, int>(
          {{"", "Connection refused", Refused::kNone, 0},
           {"full; try again in 250 ms", "by the server: full; try again in 250 ms", Refused::kNone,
            250},
           {text_of(Refused::kUnknown).data(), "by the server: ", Refused::kUnknown, 0}}));
  const bool goes_on = GENERATE(false, true);
  SetupBed one;
  const Rejecter rejecter(one.bed.loop, address_of(kPeer), text);
  if (goes_on) one.listen(kOther);
  Setup& setup = goes_on ? one.make({kPeer, kOther}) : one.make({kPeer});
  one.run();
  CHECK(rejecter.requests.size() == 1);
  if (goes_on) {
    CHECK(one.set_up == 1);
    CHECK(setup.refused() == Refused::kNone);  // the address that was tried last has accepted
    return;
  }
  CHECK(setup.refused() == refused);
  CHECK(one.failure().code == std::errc::connection_refused);
  CHECK(one.failure().retry_after == std::chrono::milliseconds(retry_after));
  CHECK_THAT(one.failure().text, StartsWith("connect to rdma://10.77.0.2:7: ") && Contains(words));
}

TEST_CASE("rdma set-up: a session is refused if an address ends it, or no address knows it",
          "[simulation][set-up]") {
  constexpr const char *kNoListener = "none", *kSilent = "silent", *kBusy = "try again in 250 ms";
  const auto text = [](Refused refused) { return text_of(refused).data(); };
  const auto [first, second, refused, nobody] =
      GENERATE_COPY(table<const char*, const char*, Refused, bool>({
          {text(Refused::kUnknown), text(Refused::kUnknown), Refused::kUnknown, true},
          {text(Refused::kOver), text(Refused::kUnknown), Refused::kOver, true},
          {text(Refused::kGap), kSilent, Refused::kGap, false},
          {text(Refused::kUnknown), kSilent, Refused::kNone, false},
          {text(Refused::kUnknown), kNoListener, Refused::kNone, true},
          {text(Refused::kUnknown), kBusy, Refused::kNone, false},
          {kNoListener, kSilent, Refused::kNone, false},
          {kNoListener, kNoListener, Refused::kNone, true},
          {text(Refused::kUnknown), "", Refused::kNone, false},  // a name without an address
      }));
  const bool swapped = GENERATE(false, true);
  CAPTURE(first, second, swapped);
  SetupBed one;
  std::vector<std::unique_ptr<Rejecter>> rejecters;
  std::vector<std::string> hosts;
  for (const auto& [host, says] : {std::pair{kPeer, first}, std::pair{kOther, second}}) {
    const std::string what = says;
    hosts.push_back(what.empty() ? "" : what == kSilent ? kNobody : host);
    if (!what.empty() && what != kSilent && what != kNoListener)
      rejecters.push_back(std::make_unique<Rejecter>(one.bed.loop, address_of(host), says));
  }
  if (swapped) std::swap(hosts[0], hosts[1]);
  Setup& setup = one.make(hosts);
  one.run();
  CHECK(one.failures.size() == 1);
  CHECK(setup.refused() == refused);
  CHECK(setup.nobody() == nobody);
}

TEST_CASE("rdma set-up: an event that ends an address is described", "[simulation][set-up]") {
  const auto [type, status, code, words] =
      GENERATE(table<rdma_cm_event_type, int, std::errc, const char*>({
          {RDMA_CM_EVENT_ADDR_ERROR, -ENODEV, std::errc::no_such_device,
           "no RDMA device reaches 10.77.0.2:7: No such device; "},
          {RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH, std::errc::host_unreachable,
           "the address cannot be reached over RDMA: No route to host"},
          {RDMA_CM_EVENT_ROUTE_ERROR, -ENOMEM, std::errc::not_enough_memory,
           "no RDMA route to the address: Cannot allocate memory"},
          {RDMA_CM_EVENT_UNREACHABLE, 0, std::errc::timed_out, "the peer does not answer: "},
          {RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL, std::errc::invalid_argument,
           "the connection could not be set up: Invalid argument"},
          {RDMA_CM_EVENT_DEVICE_REMOVAL, 0, std::errc::connection_refused,
           "the RDMA device was removed"},
      }));
  SetupBed one;
  Setup& setup = one.make({kPeer});
  setup.look_up_all(ae::TimePoint::max());
  CmEvent event{};
  event.type = type;
  event.id = one.bed.link.id().get();
  event.status = status;
  setup.on_event(event);
  CHECK(one.failure().code == code);
  CHECK_THAT(one.failure().text,
             StartsWith(std::string("connect to rdma://10.77.0.2:7: ") + words));
}

TEST_CASE("rdma set-up: whichever call fails the next address is tried", "[simulation][set-up]") {
  std::uint64_t number = 0;
  for (bool failed = true; failed;) {
    SetupBed one;
    one.listen(kPeer);
    one.listen(kOther);
    Setup& setup = one.make({kPeer, kOther});
    one.bed.world.fail_call(++number);
    const ae::Duration took = one.run();
    failed = one.bed.world.failed_calls() != 0;
    INFO(number << ' ' << one.bed.world.last_failed());
    if (!one.failures.empty()) UNSCOPED_INFO(one.failures.front().text);
    CHECK(took < 3s);  // it does not wait for the deadline of the address
    CHECK(one.set_up == 1);
    CHECK(one.failures.empty());
    CHECK(setup.addresses() == 2);
    one.bed.world.fail_call(0);
    REQUIRE(number < 1000);
  }
  CHECK(number > 10);
}

TEST_CASE("rdma set-up: a source that is no address is reported", "[simulation][set-up]") {
  SetupBed one("source=nowhere");
  one.make({kPeer});
  one.run();
  CHECK(one.failure().code == std::errc::invalid_argument);
  CHECK(one.failure().text ==
        "connect to rdma://10.77.0.2:7: source=nowhere is not an address: Invalid argument");
}

// --- a failure that may be temporary -------------------------------------------------------------

TEST_CASE("rdma set-up: a request that the peer takes for an old one is repeated once",
          "[simulation][set-up]") {
  if (chosen_profile().iwarp) return;  // it has no such reject
  const int stale = GENERATE(1, 2, 3);
  SetupBed one;
  one.listen(kPeer);
  one.listen(kOther);
  one.bed.device->stale_answers = stale;
  Setup& setup = one.make({kPeer, kOther});
  one.run();
  CHECK(one.set_up == 1);
  CHECK(setup.address() == (stale == 1 ? 0 : 1));
  CHECK(one.calls("rdma_connect") == stale + 1);  // the second address has a repetition, too
}

TEST_CASE("rdma set-up: if our address moves to another device the peer's is resolved again once",
          "[simulation][set-up]") {
  const auto at = GENERATE(RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED);
  const int moves = GENERATE(1, 2);
  SetupBed one;
  one.listen(kPeer);
  int moved = 0;
  one.before_event = [&](const CmEvent& event) {
    if (event.type == at && moved < moves) {
      ++moved;
      one.bed.world.move_address(*one.bed.device);
    }
    return true;
  };
  one.make({kPeer});
  one.run();
  CHECK(moved == moves);
  CHECK(one.calls("rdma_resolve_addr") == 2);
  if (moves == 1) {
    CHECK(one.set_up == 1);
  } else {
    CHECK_THAT(one.failure().text, Contains("the address of the RDMA device changed"));
  }
}

// --- what the connection adds to the hellos ------------------------------------------------------

TEST_CASE("rdma set-up: the hellos are those of the connection", "[simulation][set-up]") {
  SetupBed one;
  const Rejecter rejecter(one.bed.loop, address_of(kPeer), "no");
  one.listen(kOther);
  Hellos hellos(one);
  one.make({kPeer, kOther}, 10s, 0, &hellos);
  one.run();
  CHECK(one.set_up == 1);
  CHECK(hellos.renewed == 1);  // after the address that failed
  CHECK(hellos.requests == 2);
  CHECK(hellos.answers == 1);
  REQUIRE(rejecter.requests.size() == 1);
  const auto asked = conn::rdma::decode_hello(rejecter.requests.front(), HelloKind::kRequest);
  REQUIRE(asked);
  CHECK(asked->resume_ms == 1234);
}

TEST_CASE("rdma set-up: without a HelloExchange those of the stream are sent",
          "[simulation][set-up]") {
  SetupBed one;
  const Rejecter rejecter(one.bed.loop, address_of(kPeer), "no");
  one.listen(kOther);
  one.make({kPeer, kOther});
  one.run();
  CHECK(one.set_up == 1);
  CHECK(one.bed.link.stream.peer().is_aeconn());
  REQUIRE(rejecter.requests.size() == 1);
  const auto asked = conn::rdma::decode_hello(rejecter.requests.front(), HelloKind::kRequest);
  REQUIRE(asked);
  CHECK((asked->flags & Hello::kResumes) == 0);
  CHECK((asked->mtu != 0) == !chosen_profile().iwarp);
}

TEST_CASE("rdma set-up: the queue pair has the path MTU of the option", "[simulation][set-up]") {
  if (chosen_profile().iwarp) return;  // it agrees on none
  SetupBed one("source=10.77.0.1&path-mtu=512");
  one.listen(kPeer);
  one.make({kPeer});
  one.run();
  CHECK(one.set_up == 1);
  CHECK(one.bed.queue_pair().path_mtu == IBV_MTU_512);
}

// --- what later connections know of an address ---------------------------------------------------

namespace {

/// Whether a connection that chooses among both prefers kPeer to kOther, which has a connection.
bool prefers_peer(conn::AddressBook& book) {
  std::array<SocketAddress, 1> busy{address_of(kOther)};
  const auto connection = book.choose(conn::AddressOrder::kLeast, busy, {});
  bool prefers = true;
  for (int i = 0; i < 20; ++i) {  // among equal ones the choice is random
    std::array<SocketAddress, 2> both{address_of(kOther), address_of(kPeer)};
    const auto place = book.choose(conn::AddressOrder::kLeast, both, {});
    prefers = prefers && both[0].host() == kPeer;
  }
  return prefers;
}

}  // namespace

TEST_CASE("rdma set-up: later connections avoid an address that failed or was silent",
          "[simulation][set-up]") {
  SetupBed one("source=10.77.0.1&spread=least");
  conn::AddressBook& book = one.bed.type.addresses();
  CHECK(prefers_peer(book));
  Setup& setup = one.make({kPeer});
  SECTION("refused") {
    one.run();
    CHECK(one.failures.size() == 1);
    CHECK_FALSE(prefers_peer(book));
  }
  SECTION("rdma_cm refuses to resolve it") {
    one.bed.world.fail_call(2);  // after rdma_create_id()
    one.run();
    CHECK_THAT(one.failure().text, Contains("no RDMA device reaches 10.77.0.2:7"));
    CHECK_FALSE(prefers_peer(book));
  }
  SECTION("there was no memory: the address did not fail, and has no connection") {
    one.bed.world.fail_call(1);
    one.run();
    CHECK(one.failures.size() == 1);
    CHECK(prefers_peer(book));
  }
  SECTION("abandoned after 100 ms") {
    const bool waits = GENERATE(false, true);
    one.stall(true);
    setup.look_up_all(ae::TimePoint::max());
    one.run_for(waits ? 110ms : 90ms);
    setup.report_silence();
    one.bed.host().occupy({});  // as a connection does at its end
    CHECK(prefers_peer(book) != waits);
  }
  SECTION("abandoned before an address is tried") {
    one.bed.world.spend(1s);
    setup.report_silence();
    CHECK(prefers_peer(book));
  }
}

TEST_CASE("rdma set-up: a connection counts for its address, which is good again",
          "[simulation][set-up]") {
  SetupBed one("source=10.77.0.1&spread=least");
  one.listen(kPeer);
  conn::AddressBook& book = one.bed.type.addresses();
  std::array<SocketAddress, 1> failed{address_of(kPeer)};
  (void)book.choose(conn::AddressOrder::kLeast, failed, {});
  book.report(conn::AddressOrder::kLeast, failed[0],
              std::make_error_code(std::errc::connection_refused));
  REQUIRE_FALSE(prefers_peer(book));
  one.make({kPeer});
  one.run();
  CHECK(one.set_up == 1);
  CHECK_FALSE(prefers_peer(book));
  one.bed.host().occupy({});  // as a connection does at its end
  CHECK(prefers_peer(book));
}
