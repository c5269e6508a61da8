// SPDX-License-Identifier: BSD-3-Clause
#if AECONN_RDMA
#include "tests/support/fault_bed.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <thread>

#include "conn/rdma/device/memory.h"
#include "conn/rdma/device/verbs.h"

namespace testing {
namespace {

struct FaultCount {
  ~FaultCount() {
    if (count != 0) std::printf("%u faults injected\n", count);
  }
  unsigned count = 0;
};
FaultCount faults;

bool device_on(const char* device, const char* netdev) {
  const auto there = [](const std::string& path) { return access(path.c_str(), F_OK) == 0; };
  const bool ours = std::getenv("AECONN_SOFTROCE") != nullptr &&
                    there(std::string("/sys/class/infiniband/") + device) &&
                    there(std::string("/sys/class/net/") + netdev);
  if (!ours) WARN("skipped: this is for " << device << " on " << netdev << " in the microVM");
  return ours;
}

}  // namespace

// --- commands ------------------------------------------------------------------------------------

void command(const std::string& line) {
  INFO(line);
  REQUIRE(std::system(("{ " + line + "\n} >/dev/null 2>&1").c_str()) == 0);
}

void count_faults(unsigned count) { faults.count += count; }

void inject(const std::string& line) {
  command(line);
  count_faults();
}

bool on_veth() { return device_on("rxa", "va"); }
bool on_dummy() { return device_on("rxe0", "dummy0"); }

Background::Background(const std::string& line) : done_(folder_.path() + "/done") {
  command("( " + line + "; echo $? >" + done_ + ".new; mv " + done_ + ".new " + done_ + " ) &");
}
bool Background::ended() const { return access(done_.c_str(), F_OK) == 0; }
int Background::status() const {
  std::ifstream file(done_);
  int value = -1;
  file >> value;
  return value;
}

// --- Baseline ------------------------------------------------------------------------------------

long status_kib(const std::string& process, const std::string& name) {
  std::ifstream status("/proc/" + process + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name + ":")) return std::atol(line.c_str() + name.size() + 1);
  return -1;
}

std::string Baseline::held() {
  std::string all;
  for (const auto& [kind, count] : device_objects())
    all += kind + " " + std::to_string(count) + ", ";
  return all + "descriptors " + std::to_string(open_descriptors()) + ", pinned KiB " +
         std::to_string(status_kib("self", "VmPin")) + ", locked KiB " +
         std::to_string(status_kib("self", "VmLck")) + ", registered bytes " +
         std::to_string(conn::rdma::registered_bytes()) + ", failed teardowns " +
         std::to_string(conn::rdma::teardown_failures());
}

Baseline::Baseline() : log_(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  REQUIRE(log_ >= 0);
  // librdmacm opens each device once and keeps it open.
  static const bool warm = [] {
    const FaultBed both_devices("rdma");
    return true;
  }();
  (void)warm;
  lseek(log_, 0, SEEK_END);
  before_ = held();
}

// "level,number,time,-;text", possibly followed by lines of details; the first number combines
// facility and level.
std::vector<std::string> Baseline::new_warnings() const {
  std::vector<std::string> found;
  char record[8192];
  for (ssize_t n; (n = ::read(log_, record, sizeof record - 1)) > 0 || errno == EPIPE;) {
    if (n <= 0) continue;  // EPIPE: some records were overwritten
    record[n] = '\0';
    const std::string text(record);
    constexpr int kWarning = 4;
    if ((std::atoi(record) & 7) > kWarning) continue;
    const bool expected = std::any_of(allowed_.begin(), allowed_.end(), [&](const auto& each) {
      return text.find(each) != std::string::npos;
    });
    if (!expected) found.push_back(text.substr(0, text.find('\n')));
  }
  return found;
}

Baseline::~Baseline() {
  if (std::uncaught_exceptions() == 0) {
    // The kernel may free the last objects a moment after the process did.
    const ae::TimePoint limit = now() + 20s;
    std::string after = held();
    for (; after != before_ && now() < limit; after = held()) std::this_thread::sleep_for(50ms);
    CHECK(after == before_);
    CHECK(new_warnings() == std::vector<std::string>{});
  }
  ::close(log_);
}

// --- FaultBed ------------------------------------------------------------------------------------

FaultBed::FaultBed(const std::string& its_scheme, const std::string& listener_options,
                   const std::string& its_client_options, unsigned pairs)
    : Site({.name = its_scheme}), scheme(its_scheme), client_options(its_client_options) {
  conn::Endpoint to = rdma_endpoint();
  listener = type.listen(
      loop,
      conn::Endpoint::parse(scheme + "://" + to.hosts.front().name + ":0?" + listener_options),
      [this](conn::ConnectionPtr accepted) { newest = std::move(accepted); });
  // Makes the loop check conditions that change without an event.
  loop.add_time_event(20ms, [] { return ae::Duration(20ms); });
  for (unsigned i = 0; i < pairs; ++i) add_pair();
}

FaultBed::~FaultBed() {
  clients.clear();
  servers.clear();
  newest.reset();
  listener.reset();
  // Lets closing connections finish before the loop ends.
  const ae::TimePoint limit = now() + 10s;
  while (type.counters(loop).open != 0 && now() < limit) loop.process_events(ae::kFullIteration);
}

conn::Endpoint FaultBed::target(const std::string& options) const {
  const conn::Endpoint at = address_of(*listener);
  const char* second = std::getenv("AECONN_RDMA_ADDRESS2");
  std::string all = options;
  if (second != nullptr) all += (all.empty() ? "source=" : "&source=") + std::string(second);
  return conn::Endpoint::parse(scheme + "://" + at.hosts.front().name + ":" +
                               std::to_string(at.port) + (all.empty() ? "" : "?" + all));
}

void FaultBed::add_pair() {
  newest.reset();
  conn::ConnectionPtr client = connect(target(client_options));
  RUN_UNTIL(loop, (newest && client->state() != conn::State::kConnecting) ||
                      client->state() == conn::State::kError);
  INFO("connect: " << client->last_error());
  REQUIRE(client->state() == conn::State::kConnected);
  clients.push_back(std::move(client));
  servers.push_back(std::move(newest));
}

void FaultBed::serves_again() {
  clients.clear();
  servers.clear();
  const ae::TimePoint limit = now() + 30s;
  std::string why;
  for (conn::ConnectionPtr client;; client.reset()) {
    INFO("the last try: " << why);
    REQUIRE(now() < limit);
    newest.reset();
    client = connect(target(client_options));
    RUN_UNTIL(loop, client->state() == conn::State::kError ||
                        (client->state() == conn::State::kConnected && newest != nullptr));
    why = client->last_error();
    if (client->state() == conn::State::kConnected) {
      clients.push_back(std::move(client));
      servers.push_back(std::move(newest));
      break;
    }
    std::this_thread::sleep_for(50ms);
  }
  Streams(*this, 100'000).finish();
}

// --- Streams -------------------------------------------------------------------------------------

Streams::Streams(FaultBed& bed, std::uint64_t bytes_each_way) : bed_(bed), total_(bytes_each_way) {
  for (std::size_t i = 0; i < bed.clients.size(); ++i) {
    for (conn::Connection* end : {bed.clients[i].get(), bed.servers[i].get()}) {
      const bool client = end == bed.clients[i].get();
      ends_.push_back({end, std::make_unique<Sender>(*end, 2 * i + client, total_),
                       std::make_unique<Receiver>(*end, 2 * i + !client)});
    }
  }
}

Streams::~Streams() {
  for (const End& end : ends_) {
    end.connection->set_read_handler(nullptr);
    end.connection->set_write_handler(nullptr);
  }
}

std::uint64_t Streams::received() const {
  std::uint64_t sum = 0;
  for (const End& end : ends_) sum += end.receiver->received;
  return sum;
}

bool Streams::complete() const {
  return std::all_of(ends_.begin(), ends_.end(),
                     [this](const End& end) { return end.receiver->received == total_; });
}
bool Streams::failed() const {
  return std::any_of(ends_.begin(), ends_.end(), [](const End& end) { return end.over(); });
}
bool Streams::all_over() const {
  return std::all_of(ends_.begin(), ends_.end(), [](const End& end) { return end.over(); });
}
bool Streams::intact() const {
  return std::all_of(ends_.begin(), ends_.end(),
                     [](const End& end) { return end.receiver->intact; });
}

std::string Streams::errors() const {
  std::string all;
  for (const End& end : ends_)
    if (end.over())
      all += (end.receiver->ended ? "end of stream" : end.connection->last_error()) + "; ";
  for (const End& end : ends_) {  // and the state of the other ends
    if (end.over()) continue;
    all += fmt::format("\n{} of {} bytes received, {} sent", end.receiver->received, total_,
                       end.sender->sent);
    for (const auto& [name, value] : end.connection->info()) all += ", " + name + " " + value;
  }
  return all;
}

void Streams::go_on(std::uint64_t bytes) {
  const std::uint64_t goal = received() + bytes;
  RUN_UNTIL(bed_.loop, received() >= goal || failed());
  INFO(errors());
  REQUIRE_FALSE(failed());
  REQUIRE(intact());
}

void Streams::finish() {
  RUN_UNTIL(bed_.loop, complete() || failed());
  INFO(errors());
  REQUIRE_FALSE(failed());
  REQUIRE(intact());
}

void Streams::check_all_over() {
  CHECK(all_over());
  CHECK(intact());
  for (const End& end : ends_)
    if (end.receiver->error != 0) CHECK_FALSE(end.connection->last_error().empty());
}

// --- Subject -------------------------------------------------------------------------------------

namespace {

class Servant {
 public:
  explicit Servant(int orders) : orders_(orders), site_(rdma_transport()) {}

  [[noreturn]] void run() {
    site_.loop.add_file_event(orders_, ae::kReadable, [this](int, ae::Mask) { on_readable(); });
    site_.loop.run();
    _exit(9);
  }

 private:
  void on_readable() {
    char bytes[4096];
    const ssize_t n = ::read(orders_, bytes, sizeof bytes);
    if (n <= 0) _exit(0);
    for (const char c : std::string_view(bytes, static_cast<std::size_t>(n)))
      if (c == '\n')
        obey(std::exchange(line_, {}));
      else
        line_ += c;
  }

  void obey(const std::string& order) {
    const std::size_t space = order.find(' ');
    const std::string verb = order.substr(0, space);
    try {
      if (verb == "close") return close();
      const conn::Endpoint to = conn::Endpoint::parse(order.substr(space + 1));
      if (verb == "listen") {
        listener_ = site_.type.listen(site_.loop, to, echo_.handler());
        return say("ok " + address_of(*listener_).to_string());
      }
      client_ = site_.connect(to, [this, verb](conn::Connection& c) { on_connected(c, verb); });
    } catch (const std::exception& error) {
      say(std::string("error ") + error.what());
    }
  }

  void on_connected(conn::Connection& connection, const std::string& verb) {
    if (connection.state() != conn::State::kConnected) {
      say("error " + connection.last_error());
      return client_.reset();
    }
    say("ok connected");
    if (verb == "blast") {
      connection.set_write_handler([](conn::Connection& c) {
        static const std::string much(100'000, 'b');
        if (c.write(much.data(), much.size()) < 0 && errno != EAGAIN) c.set_write_handler(nullptr);
      });
    } else {
      echo_.handler()(std::move(client_));
    }
  }

  void close() {
    client_.reset();
    listener_.reset();
    echo_.close_all();
    echo_.first = nullptr;
    site_.loop.add_time_event(10ms, [this]() -> ae::Duration {
      if (site_.type.counters(site_.loop).open != 0) return 10ms;
      site_.type.cleanup(site_.loop);
      say("ok closed");
      return ae::kNoMore;
    });
  }

  void say(const std::string& answer) const {
    const std::string line = answer + "\n";
    if (::write(orders_, line.data(), line.size()) < 0) _exit(0);
  }

  int orders_;
  std::string line_;
  Site site_;
  EchoLog echo_;
  conn::ListenerPtr listener_;
  conn::ConnectionPtr client_;
};

constexpr const char* kOrders = "AECONN_TEST_ORDERS";  // the descriptor of the orders
constexpr const char* kNobody = "AECONN_TEST_NOBODY";

}  // namespace

TEST_CASE("a subject of the tests of faults", "[.subject]") {
  const char* orders = std::getenv(kOrders);
  if (orders == nullptr) return;
  constexpr uid_t kNobodysId = 65534;
  if (std::getenv(kNobody) != nullptr &&
      (setgroups(0, nullptr) != 0 || setgid(kNobodysId) != 0 || setuid(kNobodysId) != 0))
    _exit(4);
  Servant(std::atoi(orders)).run();
}

Subject::Subject(User user) {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  child_ = std::make_unique<Child>([&] {
    setenv(kOrders, std::to_string(ends[1]).c_str(), 1);
    if (user == User::kNobody) setenv(kNobody, "1", 1);
    fcntl(ends[1], F_SETFD, 0);
    execl("/proc/self/exe", "unit-tests", "[subject]", nullptr);
    _exit(5);
  });
  ::close(ends[1]);
  fd_ = ends[0];
  fcntl(fd_, F_SETFL, O_NONBLOCK);
}

Subject::~Subject() { ::close(fd_); }

void Subject::order(const std::string& line) const {
  const std::string bytes = line + "\n";
  REQUIRE(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
}

bool Subject::answered() {
  char c;
  for (ssize_t n; (n = ::read(fd_, &c, 1)) >= 0;) {
    if (n == 0) {
      answer = "gone";
      return true;
    }
    if (c == '\n') {
      answer = std::exchange(partial_, {});
      return true;
    }
    partial_ += c;
  }
  return false;
}

std::string Subject::ask(ae::EventLoop& loop, const std::string& line) {
  order(line);
  const ae::TimerId look = loop.add_time_event(5ms, [] { return ae::Duration(5ms); });
  RUN_UNTIL(loop, answered());
  loop.remove_time_event(look);
  return answer;
}

std::size_t Subject::descriptors() const {
  const std::filesystem::directory_iterator all("/proc/" + std::to_string(pid()) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

std::size_t Subject::highest_descriptor() const {
  std::size_t highest = 0;
  for (const auto& each :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid()) + "/fd"))
    highest = std::max<std::size_t>(highest, std::stoul(each.path().filename()));
  return highest;
}

void Subject::limit(int resource, std::uint64_t value) const {
  rlimit limits{};
  REQUIRE(prlimit(pid(), static_cast<__rlimit_resource>(resource), nullptr, &limits) == 0);
  limits.rlim_cur = value;
  limits.rlim_max = std::max<rlim_t>(limits.rlim_max, value);
  REQUIRE(prlimit(pid(), static_cast<__rlimit_resource>(resource), &limits, nullptr) == 0);
}

}  // namespace testing
#endif
