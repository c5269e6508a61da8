// SPDX-License-Identifier: BSD-3-Clause
// Processes that are killed, stopped or do not answer, clocks that jump, and ends that close at the
// same time. Run by tests/softroce/faults.
#if AECONN_RDMA

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "tests/support/fault_bed.h"

using conn::ConnectionPtr;
using conn::State;
using testing::Background;
using testing::Baseline;
using testing::count_faults;
using testing::FaultBed;
using testing::inject;
using testing::Streams;
using testing::Subject;
using namespace std::chrono_literals;

namespace {

long ms_since(ae::TimePoint begin) { return (testing::now() - begin) / 1ms; }

void run_for(ae::EventLoop& loop, ae::Duration span) {
  for (const ae::TimePoint end = testing::now() + span; testing::now() < end;)
    loop.process_events(ae::kFullIteration);
}

/// An echo server in this process, with one client in each of `count` other processes.
struct Crowd {
  explicit Crowd(unsigned count, const std::string& options = {},
                 const std::string& client_options = {}, const std::string& verb = "connect ") {
    for (unsigned i = 0; i < count; ++i) subjects.push_back(std::make_unique<Subject>());
    site = std::make_unique<testing::Site>(testing::rdma_transport());
    listener = site->type.listen(
        site->loop, testing::rdma_endpoint(options),
        [this](ConnectionPtr accepted) { connections.push_back(std::move(accepted)); });
    site->loop.add_time_event(20ms, [] { return ae::Duration(20ms); });
    const std::string to =
        testing::with_options(testing::address_of(*listener), client_options).to_string();
    for (const auto& subject : subjects) {
      INFO("to " << to);
      REQUIRE(subject->ask(site->loop, verb + to) == "ok connected");
      RUN_UNTIL(site->loop,
                connections.size() == static_cast<std::size_t>(&subject - subjects.data() + 1));
      collectors.push_back(std::make_unique<testing::Collector>(*connections.back()));
    }
  }
  void echoes(std::size_t which, const std::string& bytes) {
    collectors[which]->bytes.clear();
    testing::send(site->loop, *connections[which], bytes);
    RUN_UNTIL(site->loop, collectors[which]->bytes.size() >= bytes.size());
    CHECK(collectors[which]->bytes == bytes);
  }
  ~Crowd() {
    connections.clear();
    while (site->type.counters(site->loop).open != 0) site->loop.process_events(ae::kFullIteration);
    listener.reset();
  }

  std::vector<std::unique_ptr<Subject>> subjects;
  std::unique_ptr<testing::Site> site;
  conn::ListenerPtr listener;
  std::vector<ConnectionPtr> connections;
  std::vector<std::unique_ptr<testing::Collector>> collectors;
};

void kill_one_by_one(unsigned count, const std::string& verb) {
  const Baseline baseline;
  Crowd crowd(count, "", "", verb);
  std::vector<long> took;
  for (unsigned i = 0; i < count; ++i) {
    const ae::TimePoint begin = testing::now();
    crowd.subjects[i]->signal(SIGKILL);
    count_faults();
    RUN_UNTIL(crowd.site->loop, crowd.collectors[i]->over());
    took.push_back(ms_since(begin));
    for (unsigned j = i + 1; j < count; ++j) CHECK_FALSE(crowd.collectors[j]->over());
    crowd.collectors[i]->bytes.clear();
    if (verb == "connect " && i + 1 < count) crowd.echoes(count - 1, "the last lives on");
  }
  std::sort(took.begin(), took.end());
  WARN("kill -9 of " << count << " peers (" << verb << "): noticed after " << took[took.size() / 2]
                     << " ms in the middle, " << took.back() << " ms at most");
  CHECK(took.back() * 1ms < testing::promptly());
}

}  // namespace

TEST_CASE("rdma faults: peers that are killed one by one are noticed at once", "[.rdma-faults]") {
  kill_one_by_one(8, "connect ");
}

TEST_CASE("rdma faults: peers that are killed while they write are noticed at once",
          "[.rdma-faults]") {
  kill_one_by_one(4, "blast ");
}

TEST_CASE("rdma faults: a crowd that is killed at once leaves nothing", "[.rdma-faults]") {
  const Baseline baseline;
  Crowd crowd(10);
  const ae::TimePoint begin = testing::now();
  for (const auto& subject : crowd.subjects) subject->signal(SIGKILL);
  count_faults(10);
  RUN_UNTIL(crowd.site->loop, std::all_of(crowd.collectors.begin(), crowd.collectors.end(),
                                          [](const auto& each) { return each->over(); }));
  WARN("10 peers killed at once: noticed after " << ms_since(begin) << " ms");
}

TEST_CASE("rdma faults: peers that are stopped for 6 s and for a minute go on",
          "[.rdma-faults-long]") {
  const Baseline baseline;
  Crowd crowd(2);  // keepalive=3s: twenty of them are missed
  for (std::size_t i = 0; i < 2; ++i) crowd.echoes(i, "both are there");
  for (const auto& subject : crowd.subjects) subject->signal(SIGSTOP);
  count_faults(2);
  REQUIRE(crowd.connections[0]->write("to a sleeper", 12) == 12);
  run_for(crowd.site->loop, 6s);
  crowd.subjects[0]->signal(SIGCONT);
  const std::string all = "both are thereto a sleeper";
  RUN_UNTIL(crowd.site->loop, crowd.collectors[0]->bytes.size() == all.size());
  CHECK(crowd.collectors[0]->bytes == all);
  run_for(crowd.site->loop, 54s);
  INFO(crowd.connections[1]->last_error());
  CHECK_FALSE(crowd.collectors[1]->over());
  crowd.subjects[1]->signal(SIGCONT);
  crowd.echoes(1, "after a minute");
  crowd.echoes(0, "as ever");
}

TEST_CASE("rdma faults: close is over within 3 s although the peer is stopped", "[.rdma-faults]") {
  const Baseline baseline;
  Crowd crowd(2);
  for (const auto& subject : crowd.subjects) subject->signal(SIGSTOP);
  count_faults(2);
  REQUIRE(crowd.connections[0]->write("never read", 10) == 10);
  const ae::TimePoint begin = testing::now();
  crowd.connections.clear();
  RUN_UNTIL(crowd.site->loop, crowd.site->type.counters(crowd.site->loop).open == 0);
  WARN("close towards stopped peers took " << ms_since(begin) << " ms");
  CHECK(testing::now() - begin < 3s + testing::promptly());
}

TEST_CASE("rdma faults: a server that dies while we connect to it is an error at once",
          "[.rdma-faults]") {
  const Baseline baseline;
  for (int round = 0; round < 3; ++round) {
    auto subject = std::make_unique<Subject>();
    testing::Site site(testing::rdma_transport());
    const std::string answer =
        subject->ask(site.loop, "listen " + testing::rdma_endpoint().to_string());
    REQUIRE(answer.starts_with("ok "));
    subject->signal(SIGSTOP);  // the request waits in the stopped process's kernel
    const ConnectionPtr client = site.connect(conn::Endpoint::parse(answer.substr(3)));
    run_for(site.loop, 200ms);
    CHECK(client->state() == State::kConnecting);
    const ae::TimePoint begin = testing::now();
    subject->signal(SIGKILL);
    count_faults();
    RUN_UNTIL(site.loop, client->state() != State::kConnecting);
    CHECK(client->state() == State::kError);
    CHECK_FALSE(client->last_error().empty());
    CHECK(testing::now() - begin < testing::promptly());
    if (round == 0)
      WARN("a server that dies: " << ms_since(begin) << " ms: " << client->last_error());
  }
}

TEST_CASE("rdma faults: a server that sleeps is given up after connect-timeout, 5 s",
          "[.rdma-faults]") {
  const Baseline baseline;
  Subject subject;
  testing::Site site(testing::rdma_transport());
  const std::string answer =
      subject.ask(site.loop, "listen " + testing::rdma_endpoint().to_string());
  REQUIRE(answer.starts_with("ok "));
  subject.signal(SIGSTOP);
  count_faults();
  const ae::TimePoint begin = testing::now();
  ConnectionPtr client = site.connect(conn::Endpoint::parse(answer.substr(3)));
  RUN_UNTIL(site.loop, client->state() != State::kConnecting);
  WARN("a server that sleeps: " << ms_since(begin) << " ms: " << client->last_error());
  CHECK(client->state() == State::kError);
  CHECK(testing::now() - begin >= 5s);
  CHECK(testing::now() - begin < 5s + testing::promptly());
  subject.signal(SIGCONT);
  // After it goes on, it serves new clients.
  client = site.connect(conn::Endpoint::parse(answer.substr(3)));
  RUN_UNTIL(site.loop, client->state() != State::kConnecting);
  CHECK(client->state() == State::kConnected);
}

TEST_CASE("rdma faults: both ends close at once, with bytes under way, 500 times",
          "[.rdma-faults-long]") {
  const Baseline baseline;
  for (int round = 0; round < 10; ++round) {
    INFO("round " << round);
    FaultBed bed("rdma", round % 2 == 0 ? "" : "linger=0", "", 50);
    {
      Streams streams(bed);
      streams.go_on(100'000);
    }
    const ae::TimePoint begin = testing::now();
    for (std::size_t i = 0; i < bed.clients.size(); ++i) {
      bed.clients[i].reset();
      bed.servers[i].reset();
    }
    count_faults(50);
    RUN_UNTIL(bed.loop, bed.type.counters(bed.loop).open == 0);
    CHECK(testing::now() - begin < 3s + testing::promptly());
  }
}

TEST_CASE("rdma faults: a clock that is set back and forth by hours ends nothing",
          "[.rdma-faults]") {
  if (!testing::on_dummy()) return;
  const Baseline baseline;
  const std::string scheme = GENERATE("rdma", "tls+rdma");
  INFO(scheme);
  FaultBed bed(scheme, "keepalive=300ms", "keepalive=300ms", 2);
  struct Clock {
    ~Clock() { set(0h); }
    void set(std::chrono::seconds wanted) {
      timespec time{};
      clock_gettime(CLOCK_REALTIME, &time);
      time.tv_sec += (wanted - off).count();
      REQUIRE(clock_settime(CLOCK_REALTIME, &time) == 0);
      off = wanted;
    }
    std::chrono::seconds off{0};
  } clock;
  Streams streams(bed);
  for (const std::chrono::hours wanted : {1h, -1h, 0h, 24h, -48h}) {
    clock.set(wanted);
    count_faults();
    ae::Duration late{};
    const ae::TimePoint begin = testing::now();
    bool rang = false;
    bed.loop.add_time_event(500ms, [&] {
      late = testing::now() - begin - 500ms;
      rang = true;
      return ae::kNoMore;
    });
    streams.go_on(50'000);
    RUN_UNTIL(bed.loop, rang);
    CHECK(late >= 0ms);
    CHECK(late < testing::promptly());
  }
  clock.set(0h);
  streams.go_on(50'000);
}

TEST_CASE("rdma faults: we are stopped for 10 s and hold no peer dead for our own sleep",
          "[.rdma-faults-long]") {
  const Baseline baseline;
  // The clients promise a keepalive each second and send it; from this end they expect none for a
  // minute.
  Crowd crowd(3, "keepalive=20s", "keepalive=1s");
  const ae::TimePoint begin = testing::now();
  const std::string self = std::to_string(getpid());
  const Background sleep("kill -STOP " + self + "; sleep 10; kill -CONT " + self);
  count_faults();
  RUN_UNTIL(crowd.site->loop, sleep.ended());
  CHECK(testing::now() - begin >= 9s);
  for (std::size_t i = 0; i < 3; ++i) crowd.echoes(i, "we overslept");
}

#endif
