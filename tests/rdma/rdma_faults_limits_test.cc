// SPDX-License-Identifier: BSD-3-Clause
// Shortage of locked memory, descriptors, kernel objects and permissions: each limit is raised step
// by step, so that the n-th operation fails, until everything works. Run by tests/softroce/faults.
#if AECONN_RDMA

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "tests/support/fault_bed.h"

using conn::ConnectionPtr;
using conn::State;
using testing::Baseline;
using testing::command;
using testing::count_faults;
using testing::DeviceObjects;
using testing::Subject;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kUnlimited = RLIM_INFINITY;

/// This process without limits, and a second one (the subject) with limits.
struct Bench {
  explicit Bench(Subject::User user = Subject::User::kRoot) : subject(user) {
    site = std::make_unique<testing::Site>(testing::rdma_transport());
    listener = site->type.listen(site->loop, testing::rdma_endpoint(), echo.handler());
  }
  ~Bench() {
    echo.close_all();
    while (site->type.counters(site->loop).open != 0) site->loop.process_events(ae::kFullIteration);
  }
  std::string ours() const {
    return testing::with_options(testing::address_of(*listener), {}).to_string();
  }
  std::string ask(const std::string& order) { return subject.ask(site->loop, order); }
  /// Connects to the subject and echoes; returns the result.
  std::string reach(const std::string& url) {
    ConnectionPtr client = site->connect(conn::Endpoint::parse(url));
    testing::Collector collector(*client);
    RUN_UNTIL(site->loop, client->state() != State::kConnecting);
    if (client->state() != State::kConnected) return "error " + client->last_error();
    (void)client->write("hello", 5);
    RUN_UNTIL(site->loop, collector.bytes == "hello" || collector.over());
    if (collector.bytes == "hello") return "ok";
    return "error " + (collector.ended ? "end of stream" : client->last_error());
  }

  Subject subject;
  std::unique_ptr<testing::Site> site;
  testing::EchoLog echo;
  conn::ListenerPtr listener;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Raises a limit of the subject step by step, as a client and as a server, until a connection
/// works and echoes. `check_sentence` checks each failure's text, and a second try with the same
/// limit must not leave more behind than the first. Returns the number of failures.
unsigned raise_until_it_works(const std::function<void(const Subject&, unsigned)>& set_limit,
                              const std::function<void(const std::string&)>& check_sentence,
                              const std::function<void(const Subject&)>& lift, bool as_server) {
  Bench bench;
  std::string to;
  if (as_server) {
    to = bench.ask("listen " + testing::rdma_endpoint().to_string());
    REQUIRE(to.starts_with("ok "));
    to = to.substr(3);
  } else {
    // Warms up this process, so that its own end already holds everything it will keep.
    Subject warm_up;
    REQUIRE(warm_up.ask(bench.site->loop, "connect " + bench.ours()) == "ok connected");
    REQUIRE(warm_up.ask(bench.site->loop, "close") == "ok closed");
    RUN_UNTIL(bench.site->loop, bench.site->type.counters(bench.site->loop).open == 0);
  }
  const auto attempt = [&] {
    const std::string answer = as_server ? bench.reach(to) : bench.ask("connect " + bench.ours());
    RUN_UNTIL(bench.site->loop, as_server || answer.starts_with("ok") ||
                                    bench.site->type.counters(bench.site->loop).open == 0);
    return answer;
  };
  unsigned failures = 0;
  for (unsigned limit = 0;; ++limit) {
    INFO((as_server ? "server" : "client") << ", limit " << limit);
    REQUIRE(limit < 200);
    set_limit(bench.subject, limit);
    const std::string first = attempt();
    if (first.starts_with("ok")) break;
    check_sentence(first);
    const DeviceObjects objects = testing::device_objects();
    const std::size_t descriptors = bench.subject.descriptors();
    const std::string second = attempt();
    CHECK(second.starts_with("error"));
    check_sentence(second);
    // Not more objects than before; fewer if unused ones were freed in the meantime, which happens
    // once per second: perhaps before the first count and not yet before this one.
    const auto no_more = [&] {
      const DeviceObjects now = testing::device_objects();
      return bench.subject.descriptors() <= descriptors &&
             std::all_of(now.begin(), now.end(), [&](const auto& each) {
               const auto before = objects.find(each.first);
               return each.second <= (before != objects.end() ? before->second : 0);
             });
    };
    RUN_UNTIL(bench.site->loop, no_more());
    failures += 2;
  }
  count_faults(failures);
  lift(bench.subject);
  if (as_server) CHECK(bench.reach(to) == "ok");
  CHECK(bench.ask("close") == "ok closed");
  return failures;
}

}  // namespace

TEST_CASE("rdma faults: a locked-memory limit of nobody is named, and the listener outlives it",
          "[.rdma-faults]") {
  Baseline baseline;
  baseline.allow("Unable to pin memory region");  // the kernel's message about the limit
  for (const std::uint64_t limit : {0u, 4096u, 65536u, 1u << 20}) {
    INFO("limit " << limit);
    Bench bench(Subject::User::kNobody);
    bench.subject.limit(RLIMIT_MEMLOCK, limit);
    const std::string listen =
        "listen " + testing::rdma_endpoint("isolation=connection").to_string();
    std::string listening = bench.ask(listen);
    if (limit < (1u << 20)) {  // not one connection would fit: the listener says so
      INFO(listening);
      CHECK(contains(listening, "no connection could be served: locked memory (memlock): " +
                                    std::to_string(limit / 1024) + " KiB"));
      count_faults(1);
      // As if the limit had been lowered later.
      bench.subject.limit(RLIMIT_MEMLOCK, kUnlimited);
      listening = bench.ask(listen);
      bench.subject.limit(RLIMIT_MEMLOCK, limit);
    }
    REQUIRE(listening.starts_with("ok "));
    // As a client it names the limit; as a server it rejects clients with a reason.
    const std::string connected = bench.ask("connect " + bench.ours());
    const std::string reached = bench.reach(listening.substr(3));
    if (limit < (1u << 20)) {
      INFO(connected << " / " << reached);
      CHECK(contains(connected, "locked-memory limit is " + std::to_string(limit / 1024) + " KiB"));
      CHECK(contains(reached, "error "));
      CHECK(contains(reached, "refused by the server"));
      count_faults(2);
    }
    // Counts the connections that fit.
    std::size_t fitting = 0;
    std::vector<ConnectionPtr> clients;
    for (std::string why; why.empty() && clients.size() < 100;) {
      clients.push_back(bench.site->connect(conn::Endpoint::parse(listening.substr(3))));
      RUN_UNTIL(bench.site->loop, clients.back()->state() != State::kConnecting);
      why = clients.back()->last_error();
      fitting += why.empty();
      count_faults(!why.empty());
      INFO(why);
      CHECK((why.empty() || contains(why, "refused by the server")));
    }
    WARN("locked memory of " << limit / 1024 << " KiB: " << fitting << " connections fit, "
                             << testing::status_kib(std::to_string(bench.subject.pid()), "VmPin")
                             << " KiB pinned; a client: " << connected);
    CHECK(fitting < 100);
    CHECK(testing::status_kib(std::to_string(bench.subject.pid()), "VmPin") * 1024 <=
          static_cast<long>(limit));
    clients.clear();
    // Without the limit, the same listener serves.
    bench.subject.limit(RLIMIT_MEMLOCK, kUnlimited);
    std::string served;
    for (int i = 0; i < 100 && served != "ok"; ++i) served = bench.reach(listening.substr(3));
    CHECK(served == "ok");
    CHECK(bench.ask("close") == "ok closed");
  }
}

TEST_CASE("rdma faults: each kernel object that cannot be made is one failed connection",
          "[.rdma-faults]") {
  if (!testing::on_dummy()) return;
  const Baseline baseline;
  const std::string root = "/sys/fs/cgroup", group = root + "/aeconn-faults";
  command("mountpoint -q " + root + " || mount -t cgroup2 none " + root);
  command("echo +rdma >" + root + "/cgroup.subtree_control && mkdir -p " + group);
  const bool as_server = GENERATE(false, true);
  const std::string kind = GENERATE("hca_object", "hca_handle");
  const auto set_limit = [&](const std::string& value) {
    const std::string other = kind == "hca_object" ? "hca_handle" : "hca_object";
    command("echo 'rxe0 " + kind + "=" + value + " " + other + "=max' >" + group + "/rdma.max");
  };
  std::string last;
  const unsigned failures = raise_until_it_works(
      [&](const Subject& subject, unsigned limit) {
        set_limit(std::to_string(limit));
        command("echo " + std::to_string(subject.pid()) + " >" + group + "/cgroup.procs");
      },
      [&](const std::string& why) {
        last = why;
        INFO(why);
        CHECK(why.starts_with("error "));
        // If only the memory for the answer is missing, the server closes.
        CHECK((contains(why, "Resource temporarily unavailable") ||
               (as_server && why == "error end of stream") ||
               // librdmacm omits devices that it may not open from its list.
               (kind == "hca_handle" && contains(why, "No such device"))));
      },
      [&](const Subject&) { set_limit("max"); }, as_server);
  WARN(kind << " as " << (as_server ? "server" : "client") << ": " << failures
            << " failures; the last: " << last);
  // A listener has opened the device before the limit was set.
  CHECK(failures >= (as_server && kind == "hca_handle" ? 0u : 2u));
  command("rmdir " + group);
}

TEST_CASE("rdma faults: each descriptor that cannot be had is one failed connection",
          "[.rdma-faults]") {
  const Baseline baseline;
  const bool as_server = GENERATE(false, true);
  std::string last;
  const unsigned failures = raise_until_it_works(
      [base = std::size_t{0}](const Subject& subject, unsigned limit) mutable {
        if (base == 0) base = subject.highest_descriptor() + 1;
        subject.limit(RLIMIT_NOFILE, base + limit);
      },
      [&](const std::string& why) {
        last = why;
        INFO(why);
        CHECK(why.starts_with("error "));
        CHECK(contains(why, "Too many open files"));
      },
      [](const Subject& subject) { subject.limit(RLIMIT_NOFILE, 65536); }, as_server);
  WARN("descriptors as " << (as_server ? "server" : "client") << ": " << failures
                         << " failures; the last: " << last);
  CHECK(failures >= (as_server ? 0u : 2u));  // a listener has opened everything before
}

TEST_CASE("rdma faults: a user that may not use /dev/infiniband is told so, TCP works on",
          "[.rdma-faults]") {
  const Baseline baseline;
  const std::string what = GENERATE("/dev/infiniband/rdma_cm", "/dev/infiniband/*");
  struct Permissions {
    explicit Permissions(const std::string& what_) : what(what_) { command("chmod 0600 " + what); }
    ~Permissions() { (void)std::system(("chmod 0666 " + what).c_str()); }
    std::string what;
  } permissions(what);
  count_faults();
  Subject subject(Subject::User::kNobody);
  testing::Site tcp({.name = "tcp"});
  const std::string connected = subject.ask(tcp.loop, "connect rdma://10.77.0.1:7000");
  const std::string listening = subject.ask(tcp.loop, "listen rdma://10.77.0.1:0");
  WARN(what << ": " << connected << " / " << listening);
  for (const std::string& answer : {connected, listening})
    CHECK(contains(answer, "this user may not use RDMA: give it access to /dev/infiniband"));
}

#endif
