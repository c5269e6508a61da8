// SPDX-License-Identifier: BSD-3-Clause
// resume=yes on real devices: connections whose path is lost, under load in both directions and
// idle, go on over a new one. On two rxe devices on a veth pair, run by
// tests/softroce/veth_case_resume.sh, and on one, rxe0 on dummy0, which both ends lose at once.
// AECONN_RESUME_ROUNDS is the number of losses of each kind, busy and idle; without it each kind
// of loss happens once, busy and idle in turn.
#if AECONN_RDMA

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <sstream>
#include <thread>

#include "conn/rdma/device/memory.h"
#include "tests/support/fault_bed.h"

using conn::ConnectionPtr;
using conn::State;
using testing::Background;
using testing::Baseline;
using namespace std::chrono_literals;

namespace {

const std::string kResume = "resume=yes&resume-time=10s&keepalive=300ms";
const std::string kMissing = "bytes that the peer misses";

unsigned rounds() {
  const char* count = std::getenv("AECONN_RESUME_ROUNDS");
  return count != nullptr ? static_cast<unsigned>(std::atoi(count)) : 1;
}

long milliseconds(ae::Duration span) {
  return static_cast<long>(std::chrono::duration_cast<std::chrono::milliseconds>(span).count());
}

// --- traffic -------------------------------------------------------------------------------------

/// One end of a conversation: writes a stream of known bytes, and checks those of the peer.
class Talker {
 public:
  Talker(ConnectionPtr connection, std::uint64_t seed, std::uint64_t peers_seed)
      : connection_(std::move(connection)), mine_(seed), theirs_(peers_seed) {
    connection_->set_read_handler([this](conn::Connection&) { read(); });
  }
  /// Writes until so many bytes have been written in all.
  void write_until(std::uint64_t most) {
    most_ = most;
    connection_->set_write_handler([this](conn::Connection&) { write(); });
  }
  /// Writes at most what the peer has not received yet and `more` bytes: the stream's last ones.
  void finish_with(std::uint64_t more) { write_until(written_ + more); }
  std::uint64_t written() const noexcept { return written_; }
  std::uint64_t received() const noexcept { return received_; }
  bool wrote_all() const noexcept { return written_ == most_; }
  /// "": all bytes so far were right, and the peer's stream goes on.
  const std::string& ending() const noexcept { return ending_; }
  /// From here on, moved_at() is the time of the first byte that arrives.
  void watch() noexcept { moved_at_.reset(); }
  std::optional<ae::TimePoint> moved_at() const noexcept { return moved_at_; }
  void close() { connection_.reset(); }
  std::string facts() const {
    std::string all = std::to_string(received_) + " received, " + std::to_string(written_) +
                      " written, ending \"" + ending_ + "\"";
    if (connection_)
      for (const auto& [name, value] : connection_->info()) all += ", " + name + " " + value;
    return all;
  }

 private:
  void read() {
    const ssize_t n = connection_->read(buffer_.data(), buffer_.size());
    if (n > 0) {
      if (!moved_at_) moved_at_ = testing::now();
      const std::string_view bytes(buffer_.data(), static_cast<std::size_t>(n));
      if (!theirs_.matches(received_, bytes) && ending_.empty())
        ending_ = "wrong bytes after " + std::to_string(received_);
      received_ += bytes.size();
      return;
    }
    if (n < 0 && errno == EAGAIN) return;
    if (ending_.empty()) ending_ = n == 0 ? "end of stream" : connection_->last_error();
    connection_->set_read_handler(nullptr);
    connection_->set_write_handler(nullptr);
  }
  void write() {
    while (written_ < most_) {
      const std::string_view next =
          mine_.at(written_).substr(0, std::min<std::uint64_t>(most_ - written_, 16'000));
      const ssize_t n = connection_->write(next.data(), next.size());
      if (n < 0) return;
      written_ += static_cast<std::uint64_t>(n);
    }
    connection_->set_write_handler(nullptr);
  }

  ConnectionPtr connection_;
  const testing::Pattern mine_, theirs_;
  std::uint64_t most_ = 0, written_ = 0, received_ = 0;
  std::string ending_;
  std::optional<ae::TimePoint> moved_at_;
  std::vector<char> buffer_ = std::vector<char>(64 << 10);
};

// --- the network ---------------------------------------------------------------------------------

/// What a kind of test needs to know of its network.
struct Network {
  std::string hosts;   ///< the server's, as in a URL
  std::string source;  ///< the client's, or ""
  /// Restores everything after a test or a failure, with new devices.
  std::string mend;
  /// rping's arguments for an attempt of its own to connect.
  std::string rping_server, rping_client;
};

const std::string kVeth = "tests/softroce/veth";

Network veth() {
  return {.hosts = "10.9.0.1",
          .source = "10.9.0.2",
          .mend = "rdma link delete rxa; rdma link delete rxb; " + kVeth,
          .rping_server = "-a 10.9.0.1",
          .rping_client = "-a 10.9.0.1 -I 10.9.0.2"};
}

Network dummy() {
  return {.hosts = "10.77.0.1",
          .source = "",
          .mend =
              "ip link set dummy0 up; ip addr replace 10.77.0.1/24 dev dummy0; "
              "ip addr replace fd77:ae::1/64 dev dummy0 nodad; "
              "rdma link delete rxe0; rdma link add rxe0 type rxe netdev dummy0",
          .rping_server = "-a 10.77.0.1",
          .rping_client = "-a 10.77.0.1"};
}

// --- a server and its client on one loop ---------------------------------------------------------

struct Bed : testing::Site {
  explicit Bed(Network its_network)
      : Site(testing::rdma_transport()), network(std::move(its_network)) {
    listener =
        type.listen(loop, conn::Endpoint::parse("rdma://" + network.hosts + ":7100?" + kResume),
                    [this](ConnectionPtr next) { accepted = std::move(next); });
    // Wakes the loop to check conditions that change without an event.
    loop.add_time_event(2ms, [] { return ae::Duration(2ms); });
  }
  ~Bed() {
    client.reset();
    server.reset();
    accepted.reset();
    listener.reset();
    (void)wait([&] { return type.counters(loop).open == 0; }, 20s);
  }
  Bed(const Bed&) = delete;
  Bed& operator=(const Bed&) = delete;

  /// Runs the loop until the condition holds; returns whether it did in time.
  bool wait(const std::function<bool()>& condition, ae::Duration most) {
    for (const ae::TimePoint limit = testing::now() + most * testing::slower(); !condition();) {
      if (testing::now() > limit) return false;
      iterate();
    }
    return true;
  }
  void run_for(ae::Duration span) {
    for (const ae::TimePoint end = testing::now() + span; testing::now() < end;) iterate();
  }
  void iterate() {
    const ae::TimePoint begin = testing::now();
    loop.process_events(ae::kFullIteration);
    longest = std::max(longest, testing::now() - begin);
  }
  /// Runs a command beside the loop, since it may wait for what this process has to release.
  void run(const std::string& line) {
    CAPTURE(line);
    const Background command("{ " + line + "; } >/dev/null 2>&1");
    REQUIRE(wait([&] { return command.ended(); }, 30s));
  }
  /// Whether soft-RoCE itself connects within four seconds: after its link was down, its queue pair
  /// for connection management may no longer send or receive (docs/networks.md), for ever or for
  /// twenty seconds.
  bool device_connects() {
    if (network.rping_server.empty()) return true;
    const Background listening("timeout 8 rping -s " + network.rping_server + " -p 7999 -C 1");
    run_for(1s);
    const Background asking("timeout 4 rping -c " + network.rping_client + " -p 7999 -C 1");
    (void)wait([&] { return asking.ended() && listening.ended(); }, 30s);
    return asking.status() == 0;
  }
  /// Connects, also if the listener is not back yet. Returns why not, or "".
  std::string connect_soon(unsigned seed) {
    std::string why;
    for (const ae::TimePoint limit = testing::now() + 8s; testing::now() < limit; run_for(100ms)) {
      why = try_to_connect(seed);
      if (why.empty()) break;
    }
    return why;
  }
  std::string try_to_connect(unsigned seed) {
    accepted.reset();
    std::string url = "rdma://" + network.hosts + ":7100?" + kResume;
    if (!network.source.empty()) url += "&source=" + network.source;
    ConnectionPtr next = connect(conn::Endpoint::parse(url));
    (void)wait(
        [&] {
          return next->state() == State::kError || (next->state() == State::kConnected && accepted);
        },
        10s);
    if (next->state() != State::kConnected || !accepted)
      return "no connection: " + next->last_error();
    client = std::make_unique<Talker>(std::move(next), 2 * seed, 2 * seed + 1);
    server = std::make_unique<Talker>(std::move(accepted), 2 * seed + 1, 2 * seed);
    return "";
  }
  std::uint64_t counted(const std::string& name) { return testing::counter(type, loop, name); }
  bool both(const std::function<bool(const Talker&)>& holds) const {
    return holds(*client) && holds(*server);
  }
  bool ended() const { return !client->ending().empty() || !server->ending().empty(); }
  std::string facts() {
    std::string all = "client: " + client->facts() + "\nserver: " + server->facts() +
                      "\nlongest iteration " + std::to_string(milliseconds(longest)) + " ms\n";
    for (const auto& [name, value] : type.statistics(loop))
      if (value != 0) all += " " + name + " " + std::to_string(value);
    return all;
  }

  const Network network;
  conn::ListenerPtr listener;
  ConnectionPtr accepted;
  std::unique_ptr<Talker> client, server;
  ae::Duration longest{};  ///< of the loop's iterations, each of which ends after 2 ms
};

// --- losses of the path --------------------------------------------------------------------------

struct Loss {
  std::string name;
  /// Takes the path away and brings it, or another one, back. Returns after that, or at once if
  /// the connection has to find another path by itself.
  std::function<void(Bed&, unsigned round)> happens;
  /// Bytes that nobody has counted may be gone with a device: the connection then ends with an
  /// error, and no byte is wrong.
  bool takes_bytes = false;
  std::string restore{};  ///< after each round, when the connection is closed
};

struct Outcome {
  std::vector<ae::Duration> times;  ///< from the path's return to the first byte
  unsigned resumed = 0, missing = 0, deaf = 0, failed = 0;
  std::uint64_t resent = 0;
};

void print(const std::string& name, bool busy, Outcome& all) {
  std::sort(all.times.begin(), all.times.end());
  std::printf("resume: %s, %s: %zu of %u went on", name.c_str(), busy ? "busy" : "idle",
              all.times.size(), rounds());
  if (!all.times.empty())
    std::printf(", after %ld ms (median), %ld ms at most",
                milliseconds(all.times[all.times.size() / 2]), milliseconds(all.times.back()));
  std::printf("; %u resumed, %llu bytes sent again; %u ended with \"%s\"", all.resumed,
              static_cast<unsigned long long>(all.resent), all.missing, kMissing.c_str());
  if (all.deaf != 0) std::printf("; %u times rping could not connect either", all.deaf);
  if (all.failed != 0) std::printf("; %u FAILED", all.failed);
  std::printf("\n");
  std::fflush(stdout);
}

/// What went wrong; "" for nothing.
std::string lose_and_go_on(Bed& bed, const Loss& loss, bool busy, unsigned round, Outcome& all) {
  const std::string refused = bed.connect_soon(round);
  if (!refused.empty()) return refused;
  for (Talker* each : {bed.client.get(), bed.server.get()})
    each->write_until(busy ? ~std::uint64_t{0} : 100);
  const std::uint64_t first = busy ? 100'000 : 100;
  if (!bed.wait([&] { return bed.both([&](const Talker& t) { return t.received() >= first; }); },
                10s))
    return "no traffic before the loss: " + bed.facts();
  bed.run_for(std::chrono::milliseconds(round % 7 * 9));

  const std::uint64_t resumes = bed.counted("resumes"), resent = bed.counted("bytes_resent");
  const auto watch = [&] {
    for (Talker* each : {bed.client.get(), bed.server.get()}) each->watch();
  };
  loss.happens(bed, round);
  const ae::TimePoint returned = testing::now();
  watch();
  if (!busy)
    for (Talker* each : {bed.client.get(), bed.server.get()}) each->finish_with(1000);
  (void)bed.wait(
      [&] {
        return bed.ended() || bed.both([](const Talker& t) { return t.moved_at().has_value(); });
      },
      20s);
  const auto over = [&](const char* when) {
    const std::string endings = bed.client->ending() + " | " + bed.server->ending();
    if (loss.takes_bytes && busy && endings.find(kMissing) != std::string::npos &&
        endings.find("wrong bytes") == std::string::npos)
      return std::string(kMissing);
    return std::string(when) + ": " + bed.facts();
  };
  if (bed.ended()) return over("it ended");
  if (!bed.both([](const Talker& t) { return t.moved_at().has_value(); }))
    return over("it stood still");
  const ae::Duration took = std::max(*bed.client->moved_at(), *bed.server->moved_at()) - returned;

  for (Talker* each : {bed.client.get(), bed.server.get()}) each->finish_with(busy ? 100'000 : 0);
  (void)bed.wait(
      [&] {
        return bed.ended() || (bed.client->wrote_all() && bed.server->wrote_all() &&
                               bed.client->received() == bed.server->written() &&
                               bed.server->received() == bed.client->written());
      },
      20s);
  if (bed.ended()) return over("it ended after it had gone on");
  if (bed.client->received() != bed.server->written() ||
      bed.server->received() != bed.client->written())
    return over("bytes are missing");
  // Each end in turn closes first; what it wrote last arrives.
  Talker& closes = round % 2 == 0 ? *bed.client : *bed.server;
  Talker& stays = round % 2 == 0 ? *bed.server : *bed.client;
  closes.finish_with(5000);
  if (!bed.wait([&] { return closes.wrote_all() || bed.ended(); }, 10s))
    return over("no last bytes");
  const std::uint64_t last = closes.written();
  closes.close();
  (void)bed.wait([&] { return !stays.ending().empty(); }, 10s);
  if (stays.ending() != "end of stream" || stays.received() != last) return over("no clean end");
  stays.close();
  if (!bed.wait([&] { return bed.type.counters(bed.loop).open == 0; }, 10s))
    return over("it stays open");
  if (bed.counted("paths_lost") != 0) return "counted as lost after its end";
  all.times.push_back(std::max(took, ae::Duration::zero()));
  if (bed.counted("resumes") != resumes) ++all.resumed;
  all.resent += bed.counted("bytes_resent") - resent;
  return "";
}

void go_on_after(const Network& network, const Loss& loss, bool busy) {
  Bed bed(network);
  Outcome all;
  // A round in which soft-RoCE itself could not connect shows nothing, and is repeated.
  const unsigned most_deaf = 3 + rounds() / 4;
  for (unsigned round = 0; round < rounds() + all.deaf; ++round) {
    testing::count_faults();
    const std::string wrong = lose_and_go_on(bed, loss, busy, round, all);
    if (!wrong.empty()) {
      bed.client.reset();
      bed.server.reset();
      const bool no_path =
          wrong.find("no new path") != std::string::npos || wrong.starts_with("no connection");
      if (wrong == kMissing) {
        ++all.missing;
      } else if (no_path && all.deaf < most_deaf && !bed.device_connects()) {
        ++all.deaf;
        std::printf("resume: rping cannot connect either: %s; longest iteration %ld ms\n",
                    wrong.c_str(), milliseconds(bed.longest));
        bed.run(network.mend);
      } else {
        ++all.failed;
        FAIL_CHECK("round " << round << ": " << wrong);
        bed.run(network.mend);
      }
    }
    bed.client.reset();
    bed.server.reset();
    if (!loss.restore.empty()) bed.run(loss.restore);
  }
  print(loss.name, busy, all);
  // The next test finds devices that connect: after a move of addresses they may take a while.
  for (int attempts = 3; attempts > 0 && !bed.connect_soon(rounds()).empty(); --attempts)
    bed.run(network.mend);
}

void go_on_after(const Network& network, const std::vector<Loss>& losses) {
  for (std::size_t i = 0; i < losses.size(); ++i)
    for (const bool busy : {true, false}) {
      if (rounds() == 1 && losses.size() > 1 && busy != (i % 2 == 0)) continue;
      DYNAMIC_SECTION(losses[i].name << (busy ? ", busy" : ", idle")) {
        go_on_after(network, losses[i], busy);
      }
    }
}

// Only what a link's return does not bring back by itself.
const std::string kRoutesOfVa =
    "ip route replace 10.9.0.2/32 dev va src 10.9.0.1 table 101; "
    "ip neigh replace 10.9.0.2 lladdr $(cat /sys/class/net/vb/address) dev va nud permanent; "
    "ip neigh replace 10.9.0.1 lladdr $(cat /sys/class/net/va/address) dev vb nud permanent";
const std::string kRoutesOfVb =
    "ip route replace 10.9.0.1/32 dev vb src 10.9.0.2 table 102; "
    "ip neigh replace 10.9.0.2 lladdr $(cat /sys/class/net/vb/address) dev va nud permanent; "
    "ip neigh replace 10.9.0.1 lladdr $(cat /sys/class/net/va/address) dev vb nud permanent";

Loss away(std::string name, std::string down, ae::Duration span, std::string up,
          bool takes_bytes = false) {
  return {.name = std::move(name),
          .happens =
              [=](Bed& bed, unsigned) {
                bed.run(down);
                bed.run_for(span);
                bed.run(up);
              },
          .takes_bytes = takes_bytes};
}

}  // namespace

TEST_CASE("rdma resume: connections go on when their link is up again", "[.rdma-resume-veth]") {
  if (!testing::on_veth()) return;
  go_on_after(
      veth(),
      {
          away("the server's link down for 0.2 s", "ip link set va down", 200ms,
               "ip link set va up; " + kRoutesOfVa),
          away("the client's link down for 0.2 s", "ip link set vb down", 200ms,
               "ip link set vb up; " + kRoutesOfVb),
          away("the server's link down for 3 s", "ip link set va down", 3s,
               "ip link set va up; " + kRoutesOfVa),
          away("the client's link down for 3 s", "ip link set vb down", 3s,
               "ip link set vb up; " + kRoutesOfVb),
          away("all packets lost for 3 s",
               "tc qdisc add dev va root netem loss 100%; tc qdisc add dev vb root netem loss 100%",
               3s, "tc qdisc del dev va root; tc qdisc del dev vb root"),
      });
}

TEST_CASE("rdma resume: connections go on when their device is made anew",
          "[.rdma-resume-veth][removes-device]") {
  if (!testing::on_veth()) return;
  go_on_after(
      veth(),
      {
          away("the client's device removed", "rdma link delete rxb", 300ms,
               "rdma link add rxb type rxe netdev vb", true),
          away("the server's device removed", "rdma link delete rxa", 300ms,
               "rdma link add rxa type rxe netdev va", true),
          away("both devices removed", "rdma link delete rxa; rdma link delete rxb", 300ms,
               "rdma link add rxa type rxe netdev va; rdma link add rxb type rxe netdev vb", true),
      });
  CHECK(conn::rdma::registered_bytes() == 0);
}

TEST_CASE("rdma resume: connections go on when their address is back", "[.rdma-resume-veth]") {
  if (!testing::on_veth()) return;
  go_on_after(veth(),
              {
                  away("the server's address away for 0.3 s", "ip addr del 10.9.0.1/24 dev va",
                       300ms, "ip addr add 10.9.0.1/24 dev va; " + kRoutesOfVa),
                  away("the client's address away for 0.3 s", "ip addr del 10.9.0.2/24 dev vb",
                       300ms, "ip addr add 10.9.0.2/24 dev vb; " + kRoutesOfVb),
                  away("the server's address away for 3 s", "ip addr del 10.9.0.1/24 dev va", 3s,
                       "ip addr add 10.9.0.1/24 dev va; " + kRoutesOfVa),
              });
}

// Without link or address no route is left on this device: then soft-RoCE takes no connections any
// more (rping's neither) until it is made anew. So only the loss of the device is tested here.
TEST_CASE("rdma resume: connections go on when the device of both ends is made anew",
          "[rdma-device][resume][removes-device]") {
  if (!testing::on_dummy()) return;
  go_on_after(dummy(), {away("the only device removed", "rdma link delete rxe0", 300ms,
                             "rdma link add rxe0 type rxe netdev dummy0", true)});
  CHECK(conn::rdma::registered_bytes() == 0);
}

namespace {

// The second pair of devices, rxc on vc (10.10.0.1) and rxd on vd (10.10.0.2).
const std::string kSecondRail = "tests/softroce/second_rail";

bool has_second_rail() {
  const bool there = access("/sys/class/infiniband/rxc", F_OK) == 0;
  if (!there) WARN("skipped: this needs " << kSecondRail);
  return there;
}

Network two_rails() {
  Network all = veth();
  all.hosts = "10.9.0.1,10.10.0.1";
  all.source.clear();
  all.rping_server.clear();  // the path that is lost does not return
  all.mend =
      "tc qdisc del dev va root; tc qdisc del dev vb root; rdma link delete rxc; "
      "rdma link delete rxd; " +
      all.mend + "; " + kSecondRail;
  return all;
}

Loss dies(std::string name, const std::string& down, std::string up, bool takes_bytes = false) {
  return {.name = std::move(name),
          .happens = [=](Bed& bed, unsigned) { bed.run(down); },
          .takes_bytes = takes_bytes,
          .restore = std::move(up)};
}

// Moves the addresses of both ends from one pair of devices to the other.
std::string move_addresses(const std::string& from, const std::string& to) {
  const auto end = [](const std::string& pair, std::size_t i) { return "v" + pair.substr(i, 1); };
  std::string all;
  for (const std::size_t i : {0u, 1u}) {
    const std::string address = i == 0 ? "10.9.0.1" : "10.9.0.2",
                      peer = i == 0 ? "10.9.0.2" : "10.9.0.1";
    all += "ip addr del " + address + "/24 dev " + end(from, i) + "; ip addr add " + address +
           "/24 dev " + end(to, i) + "; ip route replace " + peer + "/32 dev " + end(to, i) +
           " src " + address + " table " + (i == 0 ? "101" : "102") + "; ip neigh replace " + peer +
           " lladdr $(cat /sys/class/net/" + end(to, 1 - i) + "/address) dev " + end(to, i) +
           " nud permanent; ";
  }
  return all + "true";
}

}  // namespace

TEST_CASE("rdma resume: connections go on over the second rail when the first one dies",
          "[.rdma-resume-veth][removes-device]") {
  if (!testing::on_veth() || !has_second_rail()) return;
  go_on_after(
      two_rails(),
      {
          dies("the first rail's link down", "ip link set va down",
               "ip link set va up; " + kRoutesOfVa),
          dies("the first rail loses all packets",
               "tc qdisc add dev va root netem loss 100%; tc qdisc add dev vb root netem loss 100%",
               "tc qdisc del dev va root; tc qdisc del dev vb root"),
          dies("the client's device of the first rail removed", "rdma link delete rxb",
               "rdma link add rxb type rxe netdev vb", true),
          dies("the server's device of the first rail removed", "rdma link delete rxa",
               "rdma link add rxa type rxe netdev va", true),
      });
}

TEST_CASE("rdma resume: connections go on when their addresses move to other devices",
          "[.rdma-resume-veth]") {
  if (!testing::on_veth() || !has_second_rail()) return;
  Network network = veth();
  network.mend =
      "for i in vc vd; do ip addr del 10.9.0.1/24 dev $i; ip addr del 10.9.0.2/24 dev $i; done; " +
      two_rails().mend;
  const Loss moves{.name = "both addresses moved to other devices",
                   .happens = [](Bed& bed, unsigned) { bed.run(move_addresses("ab", "cd")); },
                   .restore = move_addresses("cd", "ab")};
  go_on_after(network, {moves});
}

TEST_CASE("rdma resume: a server that is killed is noticed in 2.5 s, and nobody dials on",
          "[.rdma-resume-veth]") {
  if (!testing::on_veth()) return;
  Baseline baseline;
  // EINTR: the server was killed while it registered memory.
  baseline.allow("Unable to pin memory region err = -4");
  for (const bool busy : {true, false}) {
    std::vector<ae::Duration> times;
    std::vector<std::string> errors;
    for (unsigned round = 0; round < rounds(); ++round) {
      CAPTURE(busy, round);
      testing::Site site(testing::rdma_transport());
      site.loop.add_time_event(2ms, [] { return ae::Duration(2ms); });
      testing::Subject server;
      const std::string answer = server.ask(site.loop, "listen rdma://10.9.0.1:0?" + kResume);
      REQUIRE(answer.substr(0, 3) == "ok ");
      const conn::Endpoint at = conn::Endpoint::parse(answer.substr(3));
      ConnectionPtr client = site.connect(conn::Endpoint::parse(
          "rdma://10.9.0.1:" + std::to_string(at.port) + "?source=10.9.0.2&" + kResume));
      RUN_UNTIL(site.loop, client->state() != State::kConnecting);
      REQUIRE(client->state() == State::kConnected);
      Talker talker(std::move(client), round, round);  // the server echoes
      talker.write_until(busy ? ~std::uint64_t{0} : 1000);
      RUN_UNTIL(site.loop, talker.received() >= (busy ? 100'000u : 1000u));
      testing::count_faults();
      server.signal(SIGKILL);
      const ae::TimePoint begin = testing::now();
      RUN_UNTIL(site.loop, !talker.ending().empty());
      times.push_back(testing::now() - begin);
      errors.push_back(talker.ending());
      CHECK(talker.ending() != "end of stream");
      CHECK(talker.ending().find("wrong bytes") == std::string::npos);
      CHECK(times.back() < 2500ms * testing::slower());
      talker.close();
      RUN_UNTIL(site.loop, site.type.counters(site.loop).open == 0);
      CHECK(testing::counter(site.type, site.loop, "paths_lost") == 0);
    }
    std::sort(times.begin(), times.end());
    if (times.empty()) continue;
    std::printf(
        "resume: the server killed, %s: an error after %ld ms (median), %ld ms at most: %s\n",
        busy ? "busy" : "idle", milliseconds(times[times.size() / 2]), milliseconds(times.back()),
        errors.back().c_str());
  }
}

#endif
