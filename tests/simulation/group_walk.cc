// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/group_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "conn/listener_group.h"
#include "conn/rdma/device/memory.h"
#include "conn/rdma/device/verbs.h"
#include "conn/tcp/passed_descriptors.h"
#include "conn/tls/type.h"
#include "conn/transports/transports.h"
#include "tests/simulation/objects.h"
#include "tests/simulation/stepped_loops.h"
#include "tests/simulation/walk.h"
#include "tests/support/certificates.h"
#include "tests/support/memory_transport.h"
#include "tests/support/testing.h"

namespace simulation {
namespace {

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;

// Deadline for a client that is not refused to be served, when no faults are injected.
constexpr Nanoseconds kHandshake = 4s;
// How long the listener takes to move from a loop that ends to another.
constexpr Nanoseconds kGateMoves = 1ms;

class GroupWalk {
 public:
  GroupWalk(std::uint64_t seed, std::string transport);
  GroupWalkReport run();

 private:
  enum class Verdict { kNone, kServed, kFailed, kLeft };
  struct Client {
    std::uint64_t number = 0;
    std::size_t loop = 0;
    ConnectionPtr connection;
    std::string to_send, got;
    std::uint64_t wanted = 0;
    bool leaves_early = false, stays = false;
    Verdict verdict = Verdict::kNone;
    Nanoseconds begun{};
    bool connected = false;
  };
  struct Served {
    std::size_t loop = 0;
    std::uint64_t listener = 0;
    ConnectionPtr connection;
    std::string backlog;
  };

  void choose();
  void listen();
  void accept(std::size_t index, ConnectionPtr next);
  void serve(Served& served);
  void forget(const Connection& connection) { served_.erase(&connection); }
  void connect_one();
  void on_connected(Client& client);
  void on_readable(Client& client);
  void go_on(Client& client);
  void conclude(Client& client, Verdict verdict);
  void disturb();
  void end_loop();
  void check_spread();
  void check_given_back(std::size_t loop, std::uint64_t lost);
  std::uint64_t accept_errors(std::size_t loop) const {
    return type_->counters(*loops_->loop(loop)).accept_errors;
  }
  void check_here(std::size_t loop, const char* what);
  void step(Nanoseconds limit);
  template <class Condition>
  void run_until(Condition condition, Nanoseconds span);
  void check_end();
  bool pending() const {
    return std::any_of(clients_.begin(), clients_.end(),
                       [](const auto& each) { return each->verdict == Verdict::kNone; });
  }
  bool is_served() const {
    bool any = false;
    for (std::size_t i = 0; i < count_; ++i) any = any || loops_->alive(i);
    return any && listener_;
  }
  void complain(std::string what) {
    if (report_.complaint.empty()) report_.complaint = std::move(what);
  }
  bool chance(double p) { return std::uniform_real_distribution<>()(random_) < p; }
  std::uint64_t pick(std::uint64_t least, std::uint64_t most) {
    return std::uniform_int_distribution<std::uint64_t>(least, most)(random_);
  }

  Choices random_, schedule_;
  World world_;
  GroupWalkReport report_;
  std::string transport_;
  bool is_rdma_ = false;
  // calm_: clients only, no other events. whole_: loops, the listener and clients come and go, but
  // no faults are injected.
  bool calm_ = false, whole_ = false;
  std::size_t count_ = 0;
  testing::TempFolder folder_;
  std::unique_ptr<conn::Registry> registry_;
  conn::ConnectionType* type_ = nullptr;
  Device *near_ = nullptr, *far_ = nullptr;
  std::unique_ptr<SteppedLoops> loops_;
  std::string url_, options_;
  conn::ListenerGroupPtr listener_;
  conn::Endpoint address_;
  std::map<const Connection*, Served> served_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::uint64_t to_connect_ = 0, accepted_ = 0, most_ = ~std::uint64_t{0};
  std::vector<std::uint64_t> accepted_by_, errors_before_;  // of the current listener, by loop
  // When a loop or the listener was last destroyed, or no place was free.
  Nanoseconds upset_{};
  bool paused_ = false, nothing_closed_ = true;
};

// --- choices of the seed -------------------------------------------------------------------------

GroupWalk::GroupWalk(std::uint64_t seed, std::string transport)
    : random_(seed),
      schedule_(seed * 3 + 1),
      world_({.seed = seed * 2 + 1}),
      transport_(std::move(transport)) {
  if (transport_.empty()) {
    // Handshakes make walks slow: bare transports are chosen more often.
    const auto& all = walk_transports();
    transport_ = chance(0.55)  ? "rdma"
                 : chance(0.7) ? (chance(0.5)   ? "memory"
                                  : chance(0.5) ? "tcp"
                                  : chance(0.5) ? "unix"
                                                : "shm")
                               : all[pick(0, all.size() - 1)];
  }
  is_rdma_ = transport_.ends_with("rdma");
  calm_ = chance(0.2);
  whole_ = calm_ || chance(0.5);
  choose();
}

void GroupWalk::choose() {
  count_ = pick(2, 4);
  to_connect_ = pick(1, 10);
  Weather& weather = world_.config.weather;
  weather.most_delay = 1us * pick(2, chance(0.2) ? 2000 : 50);
  weather.most_cm_delay = 1us * pick(50, 3000);
  if (!whole_) {
    if (chance(0.5)) world_.config.failing_calls = chance(0.3) ? 0.01 : 0.001;
    if (chance(0.2)) weather.stale_requests = 0.05;
    if (chance(0.2)) weather.slow_message = 0.02;
  }
  std::vector<const Profile*> profiles = serving_profiles_of_all_ages();
  const Profile* near = profiles[pick(0, profiles.size() - 1)];
  std::erase_if(profiles, [&](const Profile* each) { return each->iwarp != near->iwarp; });
  near_ = &world_.add_device("sim0", "10.77.0.1", *near);
  far_ = &world_.add_device("sim1", "10.77.0.2", *profiles[pick(0, profiles.size() - 1)]);
  if (is_rdma_)
    url_ = transport_ + "://10.77.0.1:0";
  else if (transport_.ends_with("unix") || transport_.ends_with("shm"))
    url_ = transport_ + "://" + folder_.path() + "/socket";
  else
    url_ = transport_ + (transport_.ends_with("memory") ? "://walk" : "://127.0.0.1:0");
  if (is_rdma_ && chance(0.3)) options_ = "?shared-receive-queue=512";
  if (!calm_ && chance(0.2) && !transport_.ends_with("memory")) {
    most_ = pick(1, 4);
    options_ += fmt::format("{}max-connections={}", options_.empty() ? '?' : '&', most_);
  }
  url_ += options_;
  report_.story =
      fmt::format("{}{} {} loops, {} clients{}", transport_,
                  is_rdma_ ? fmt::format(" {}-{}", near_->profile.name, far_->profile.name) : "",
                  count_, to_connect_,
                  calm_    ? ", calm"
                  : whole_ ? ", nothing fails"
                           : "");
}

void GroupWalk::listen() {
  const conn::Spread spread =
      chance(0.7)   ? conn::Spread::fewest()
      : chance(0.5) ? conn::Spread::round_robin()
                    : conn::Spread::by([this](const conn::Arriving&) { return pick(0, count_); });
  nothing_closed_ = spread.how() != conn::Spread::By::kPick && calm_;
  try {
    listener_ = conn::listen(
        *registry_, *loops_, url_,
        [this](ae::EventLoop&, std::size_t index) {
          return [this, index](ConnectionPtr next) { accept(index, std::move(next)); };
        },
        spread);
  } catch (const std::exception& error) {
    if (whole_ && report_.loops_ended == 0) complain(std::string("listen: ") + error.what());
    return;
  }
  ++report_.listeners;
  paused_ = false;
  accepted_by_.assign(count_, 0);
  errors_before_.clear();
  for (std::size_t i = 0; i < count_; ++i) errors_before_.push_back(accept_errors(i));
  address_ = listener_->endpoints().front();
  url_ = address_.to_string() + options_;  // again at the same address
  if (is_rdma_)
    address_.options = address_.options.merged_with(conn::Options::parse("source=10.77.0.2"));
}

// --- the server's ends ---------------------------------------------------------------------------

void GroupWalk::check_here(std::size_t loop, const char* what) {
  if (loops_->stepping() != loop) complain(fmt::format("{} of loop {} ran on another", what, loop));
}

void GroupWalk::accept(std::size_t index, ConnectionPtr next) {
  check_here(index, "an accept handler");
  if (paused_) complain("accepted while paused");
  ++accepted_;
  ++accepted_by_[index];
  Connection& here = *next;
  if (here.loop() != loops_->loop(index)) complain("a connection is on another loop");
  served_[&here] = {index, report_.listeners, std::move(next), {}};
  const auto of_this = std::count_if(served_.begin(), served_.end(), [this](const auto& each) {
    return each.second.listener == report_.listeners;
  });
  if (static_cast<std::uint64_t>(of_this) > most_) complain("more than max-connections");
  check_spread();
  here.set_read_handler([this, &here](Connection&) { serve(served_.at(&here)); });
}

void GroupWalk::serve(Served& served) {
  check_here(served.loop, "a handler");
  std::array<char, 4096> bytes;
  Connection& here = *served.connection;
  const ssize_t n = here.read(bytes.data(), bytes.size());
  if (n == 0 || (n < 0 && errno != EAGAIN)) {
    nothing_closed_ = false;
    return forget(here);
  }
  if (n > 0) served.backlog.append(bytes.data(), static_cast<std::size_t>(n));
  if (!calm_ && chance(0.01)) return forget(here);
  while (!served.backlog.empty()) {
    const ssize_t wrote = here.write(served.backlog.data(), served.backlog.size());
    if (wrote < 0 && errno != EAGAIN) return forget(here);
    if (wrote <= 0) {
      here.set_write_handler([this, &here](Connection&) { serve(served_.at(&here)); });
      return;
    }
    served.backlog.erase(0, static_cast<std::size_t>(wrote));
  }
  here.set_write_handler(nullptr);
}

// Before the first close, the loops' numbers of connections differ by at most one.
void GroupWalk::check_spread() {
  if (!nothing_closed_ || !listener_) return;
  std::uint64_t least = ~std::uint64_t{0}, most = 0;
  for (const auto& share : listener_->shares()) {
    least = std::min(least, share.open);
    most = std::max(most, share.open);
  }
  if (most - least > 1) complain(fmt::format("loops have from {} to {} connections", least, most));
}

// --- clients -------------------------------------------------------------------------------------

void GroupWalk::connect_one() {
  --to_connect_;
  if (address_.scheme.empty()) return;
  auto owner = std::make_unique<Client>();
  Client& client = *owner;
  client.number = clients_.size() + 1;
  // Clients are usually outside the group; a client selects its loop by calling connect there. The
  // end of a loop waits for iWARP's connects, whose server is on this thread.
  const bool waits = is_rdma_ && far_->profile.iwarp;
  client.loop = waits || chance(0.7) ? count_ : pick(0, count_ - 1);
  if (!loops_->alive(client.loop)) client.loop = count_;
  client.to_send =
      testing::Pattern(client.number).at(0).substr(0, pick(1, chance(0.8) ? 300 : 20000));
  client.wanted = client.to_send.size();
  client.leaves_early = !calm_ && chance(0.15);
  client.stays = calm_;
  client.begun = world_.now();
  try {
    client.connection = type_->create(*loops_->loop(client.loop));
  } catch (const conn::Error&) {
    return;
  }
  ++report_.connections;
  clients_.push_back(std::move(owner));
  client.connection->connect(address_, [this, &client](Connection&) { on_connected(client); });
}

void GroupWalk::conclude(Client& client, Verdict verdict) {
  client.verdict = verdict;
  if (verdict == Verdict::kServed) ++report_.served;
  if (verdict == Verdict::kFailed && whole_) {
    const std::string& why = client.connection->last_error();
    if (is_served() && !client.connected && client.begun > upset_ + kGateMoves)
      complain("a client failed although the port is served: " + why);
    if (calm_) complain("calm, and a client failed: " + why);
    // A loop may end between its answer and the client's: then the client gets no answer.
    if (client.connection->error_code() == std::errc::timed_out && !client.connected &&
        why.find("any more") == why.npos)
      complain("a client waited in vain: " + why);
    if (why.empty() && !client.connected) complain("a connect failed without a word");
  }
  if (!client.stays) client.connection.reset();
}

void GroupWalk::on_connected(Client& client) {
  check_here(client.loop, "a connect handler");
  if (client.connection->state() != State::kConnected) return conclude(client, Verdict::kFailed);
  client.connected = true;
  if (client.leaves_early && chance(0.5)) return conclude(client, Verdict::kLeft);
  client.connection->set_read_handler([this, &client](Connection&) { on_readable(client); });
  client.connection->set_write_handler([this, &client](Connection&) { go_on(client); });
}

void GroupWalk::go_on(Client& client) {
  check_here(client.loop, "a client's handler");
  const ssize_t n = client.connection->write(client.to_send.data(), client.to_send.size());
  if (n < 0 && errno != EAGAIN) return conclude(client, Verdict::kFailed);
  if (n > 0) client.to_send.erase(0, static_cast<std::size_t>(n));
  if (client.to_send.empty()) client.connection->set_write_handler(nullptr);
  if (client.leaves_early && chance(0.2)) conclude(client, Verdict::kLeft);
}

void GroupWalk::on_readable(Client& client) {
  check_here(client.loop, "a client's handler");
  std::array<char, 4096> bytes;
  const ssize_t n = client.connection->read(bytes.data(), bytes.size());
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) {
    // The server's loop, or the server, was destroyed.
    if (client.verdict == Verdict::kNone) return conclude(client, Verdict::kFailed);
    return client.connection->set_read_handler(nullptr);
  }
  const std::string_view now(bytes.data(), static_cast<std::size_t>(n));
  if (!testing::Pattern(client.number).matches(client.got.size(), now))
    complain(fmt::format("client {} got what is not its own", client.number));
  client.got += now;
  if (client.got.size() > client.wanted) complain("more came back than was sent");
  if (client.got.size() == client.wanted) conclude(client, Verdict::kServed);
}

// --- disturbances --------------------------------------------------------------------------------

void GroupWalk::end_loop() {
  const std::size_t index = pick(0, count_ - 1);
  if (!loops_->alive(index)) return;
  ++report_.loops_ended;
  upset_ = world_.now();
  report_.story += fmt::format(" end{}", index);
  for (const auto& client : clients_) {
    if (client->loop != index || client->verdict != Verdict::kNone) continue;
    client->verdict = Verdict::kLeft;
    client->connection.reset();
  }
  const auto mine = [&](const auto& each) { return each.second.loop == index; };
  if (chance(0.5)) std::erase_if(served_, mine);  // connections go before their loop, or after
  const std::uint64_t lost = listener_ ? accept_errors(index) - errors_before_[index] : 0;
  loops_->end(index);
  std::erase_if(served_, mine);
  if (listener_) check_given_back(index, lost);
}

// Connections that the loop was assigned and did not begin must have gone to another loop, even
// while all are paused. With sockets and in memory, a begun connection is accepted at once.
void GroupWalk::check_given_back(std::size_t loop, std::uint64_t lost) {
  if (!whole_ || is_rdma_ || transport_.starts_with("tls")) return;
  const std::uint64_t kept = listener_->shares()[loop].assigned - accepted_by_[loop] - lost;
  if (kept != 0) complain(fmt::format("{} arrivals went with loop {}", kept, loop));
}

void GroupWalk::disturb() {
  switch (pick(0, whole_ ? 4 : 7)) {
    case 0:
    case 1:
      return end_loop();
    case 2:
      if (!listener_) return;
      paused_ = !paused_;
      report_.story += paused_ ? " pause" : " resume";
      if (!paused_) return listener_->resume();
      listener_->pause();
      if (chance(0.5)) return;
      // Pending requests reach paused acceptors, and then one of the loops ends.
      for (std::uint64_t steps = pick(1, 12); steps > 0; --steps) step(world_.now() + 1ms);
      return end_loop();
    case 3:
    case 4:
      report_.story += listener_ ? " gone" : " again";
      upset_ = world_.now();
      if (listener_) return listener_.reset();
      for (std::size_t i = 0; i < count_; ++i)
        if (!loops_->alive(i)) return;  // listening needs all loops
      return listen();
    case 5:
      report_.story += " link";
      world_.set_link(*near_, false);
      return world_.after(1ms * pick(1, 500), [this] { world_.set_link(*near_, true); });
    case 6: {
      Device& device = chance(0.5) ? *near_ : *far_;
      report_.story += " removal";
      if (!device.removed) world_.remove_device(device);
      return;
    }
    default:
      report_.story += " path";
      world_.set_path(*near_, *far_, false);
      return world_.after(1ms * pick(1, 3000), [this] { world_.set_path(*near_, *far_, true); });
  }
}

// --- running -------------------------------------------------------------------------------------

void GroupWalk::step(Nanoseconds limit) {
  // The thread that closes what is unread in sockets of unix and shm is not of this world's time.
  while (conn::tcp::closing_aside() != 0) std::this_thread::yield();
  loops_->step(limit);
  if (most_ == ~std::uint64_t{0} || !listener_) return;
  std::uint64_t open = 0;
  for (const auto& share : listener_->shares()) open += share.open;
  if (open >= most_) upset_ = world_.now();
}

template <class Condition>
void GroupWalk::run_until(Condition condition, Nanoseconds span) {
  const Nanoseconds limit = world_.now() + span;
  loops_->wake();
  while (!condition() && world_.now() < limit && report_.complaint.empty()) step(limit);
}

GroupWalkReport GroupWalk::run() {
  registry_ = std::make_unique<conn::Registry>(conn::all_transports());
  registry_->add(std::make_unique<conn::memory::MemoryType>(conn::memory::Config{}));
  registry_->add(std::make_unique<conn::tls::TlsType>(registry_->require("memory")));
  type_ = &registry_->require(transport_);
  if (transport_.starts_with("tls"))
    type_->configure(
        testing::test_tls_options(transport_ == "tls+memory" || is_rdma_ ? "localhost" : ""));
  loops_ = std::make_unique<SteppedLoops>(world_, count_, 1, schedule_);
  listen();
  while (to_connect_ > 0 && report_.complaint.empty()) {
    connect_one();
    loops_->wake();
    for (std::uint64_t steps = pick(0, 30); steps > 0; --steps) step(world_.now() + 1ms);
    if (!calm_ && chance(0.25)) disturb();
  }
  world_.config.failing_calls = 0;
  world_.config.weather.slow_message = 0;
  if (listener_ && std::exchange(paused_, false)) listener_->resume();
  // With injected faults it takes as long as noticing them takes.
  run_until([this] { return !pending(); }, whole_ ? kHandshake : 60s);
  for (const auto& client : clients_)
    if (client->verdict == Verdict::kNone)
      complain(fmt::format("client {} waits: {}, {}", client->number,
                           conn::to_string(client->connection->state()),
                           client->connection->last_error()));
  check_spread();
  nothing_closed_ = false;
  check_end();
  return report_;
}

void GroupWalk::check_end() {
  if (accepted_ > report_.connections) complain("more was accepted than came");
  clients_.clear();
  run_until([this] { return served_.empty(); }, 40s);
  if (!served_.empty()) complain("a server's end does not hear of its client's");
  served_.clear();
  if (listener_) {
    std::uint64_t open = 0;
    const auto count = [&] {
      open = 0;
      for (const auto& share : listener_->shares()) open += share.open;
      return open == 0;
    };
    run_until(count, 20s);
    if (open != 0) complain(fmt::format("{} places are taken by nobody", open));
  }
  listener_.reset();
  const auto gone = [this] {
    for (std::size_t i = 0; i <= count_; ++i)
      if (loops_->alive(i) && type_->counters(*loops_->loop(i)).open != 0) return false;
    return true;
  };
  run_until(gone, 20s);
  if (!gone()) complain("closed connections do not go");
  loops_.reset();
  // Lets disconnect messages that are still under way arrive.
  (void)world_.advance(world_.now() + 1s);
  world_.let_orphans_go();
  for (const auto& [kind, number] : world_.objects())
    complain(fmt::format("left behind: {} {}", number, kind));
  for (const std::string& each : world_.violations()) complain(each);
  if (conn::rdma::registered_bytes() != 0) complain("registered bytes are counted wrong");
  if (conn::rdma::teardown_failures() != 0) complain("something could not be destroyed");
}

}  // namespace

GroupWalkReport group_walk(std::uint64_t seed, const std::string& transport) {
  prepare_walks();
  return GroupWalk(seed, transport).run();
}

}  // namespace simulation
