// SPDX-License-Identifier: BSD-3-Clause
// Traffic over several transports at once for a long time, while the network is disturbed from
// outside. Clients send messages of random sizes, compare the echo, pause, and sometimes close or
// are cut off. Connections may fail, but bytes must not differ, nothing may hang, and in the end
// nothing may be left.
//
//   soak --seconds 3600 --disturbed 'tcp://127.0.0.1:0' 'tls://127.0.0.1:0?cert=c.pem&key=k.pem'
//
// Options for the clients of a URL follow it after a space: 'rdma://10.9.0.1:0 source=10.9.0.2'.

#include <fmt/format.h>
#include <sys/socket.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ae/libev_loop.h"
#include "conn/transports/transports.h"
#include "tests/programs/footprint.h"

namespace {

using conn::Connection;
using conn::ConnectionPtr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Plan {
  std::vector<std::string> lines;
  double seconds = 60;
  std::size_t clients = 8;  ///< for each URL
  std::size_t largest = 64 << 10;
  unsigned think_ms = 500;  ///< longest pause between two messages
  unsigned cut_every = 200;
  bool disturbed = false;  ///< failures are allowed
  std::uint64_t seed = 1;
  std::size_t allowance = 1 << 20;
  /// How long a client may go without a reply, a failure or a pause of its own.
  std::chrono::seconds bound = 120s;
};

/// Echoes, and stops reading while it cannot write.
class Echo {
 public:
  conn::AcceptHandler handler() {
    return [this](ConnectionPtr peer) {
      Connection& c = *peer;
      peers_[&c].connection = std::move(peer);
      c.set_read_handler([this](Connection& each) { serve(each); });
    };
  }

 private:
  struct Peer {
    ConnectionPtr connection;
    std::string unsent;
  };

  void serve(Connection& c) {
    std::string& unsent = peers_.at(&c).unsent;
    ssize_t n = 1;
    if (unsent.empty()) {
      char buffer[32 << 10];
      n = c.read(buffer, sizeof buffer);
      if (n > 0) unsent.assign(buffer, static_cast<std::size_t>(n));
    }
    if (!unsent.empty()) {
      n = c.write(unsent.data(), unsent.size());
      if (n > 0) unsent.erase(0, static_cast<std::size_t>(n));
    }
    if (n == 0 || (n < 0 && errno != EAGAIN)) return void(peers_.erase(&c));
    const bool busy = !unsent.empty();
    if (busy == c.has_write_handler()) return;
    const Connection::Handler again = [this](Connection& each) { serve(each); };
    c.set_read_handler(busy ? nullptr : again);
    c.set_write_handler(busy ? again : nullptr);
  }

  std::unordered_map<Connection*, Peer> peers_;
};

struct Tally {
  std::uint64_t messages = 0, bytes = 0, connections = 0, cut = 0, failures = 0;
  std::map<std::string, std::uint64_t> reasons;
};

class Client {
 public:
  Client(const Plan& plan, const conn::Registry& registry, ae::EventLoop& loop, conn::Endpoint to,
         Tally& tally, std::uint64_t seed)
      : plan_(plan),
        registry_(registry),
        loop_(loop),
        to_(std::move(to)),
        tally_(tally),
        random_(seed) {
    pause();
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { loop_.remove_time_event(timer_); }

  Clock::time_point last_sign() const { return last_sign_; }
  bool idle() const { return !connection_; }
  void wind_up() { winding_up_ = true; }

 private:
  unsigned below(std::size_t limit) { return static_cast<unsigned>(random_() % limit); }

  void pause() {
    last_sign_ = Clock::now();
    loop_.remove_time_event(timer_);
    timer_ = loop_.add_time_event(std::chrono::milliseconds(below(plan_.think_ms + 1)), [this] {
      go_on();
      return ae::kNoMore;
    });
  }

  void go_on() {
    last_sign_ = Clock::now();
    if (winding_up_) return connection_.reset();
    if (!connection_) {
      connection_ = registry_.create(loop_, to_);
      connection_->connect(to_, [this](Connection& c) {
        if (c.state() != conn::State::kConnected) return failed("connect: ");
        ++tally_.connections;
        send_message();
      });
    } else if (below(20) == 0) {
      connection_.reset();
      pause();
    } else {
      send_message();
    }
  }

  void send_message() {
    // Mostly small ones, and some that fill all windows and buffers.
    const std::size_t size = 1 + below(below(10) == 0 ? plan_.largest : 512);
    message_.resize(size);
    for (char& c : message_) c = static_cast<char>(random_());
    sent_ = got_ = 0;
    connection_->set_read_handler([this](Connection&) { read(); });
    connection_->set_write_handler([this](Connection&) { write(); });
    if (plan_.cut_every != 0 && connection_->fd() >= 0 && below(plan_.cut_every) == 0) {
      ::shutdown(connection_->fd(), SHUT_RDWR);  // as if the network had cut it
      ++tally_.cut;
      cut_ = true;
    }
  }

  void write() {
    const ssize_t n = connection_->write(message_.data() + sent_, message_.size() - sent_);
    if (n > 0) sent_ += static_cast<std::size_t>(n);
    if (n < 0 && errno != EAGAIN) return failed("write: ");
    if (sent_ == message_.size()) connection_->set_write_handler(nullptr);
  }

  void read() {
    char buffer[32 << 10];
    const ssize_t n = connection_->read(buffer, sizeof buffer);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return failed(n == 0 ? "the server closed: " : "read: ");
    const auto size = static_cast<std::size_t>(n);
    if (size > sent_ - got_ || message_.compare(got_, size, buffer, size) != 0)
      throw conn::Error(to_.to_string() + ": other bytes came back than were sent");
    got_ += size;
    last_sign_ = Clock::now();
    if (got_ != message_.size()) return;
    ++tally_.messages;
    tally_.bytes += size;
    connection_->set_read_handler(nullptr);
    pause();
  }

  void failed(const char* where) {
    const std::string reason = where + connection_->error_code().message();
    if (!plan_.disturbed && !cut_)
      throw conn::Error(to_.to_string() + ": " + where + connection_->last_error());
    if (!cut_) {
      ++tally_.failures;
      ++tally_.reasons[reason];
    }
    cut_ = false;
    connection_.reset();
    pause();
  }

  const Plan& plan_;
  const conn::Registry& registry_;
  ae::EventLoop& loop_;
  const conn::Endpoint to_;
  Tally& tally_;
  std::mt19937_64 random_;
  ConnectionPtr connection_;
  std::string message_;
  std::size_t sent_ = 0, got_ = 0;
  ae::TimerId timer_ = 0;
  bool cut_ = false, winding_up_ = false;
  Clock::time_point last_sign_;
};

class Soak {
 public:
  explicit Soak(const Plan& plan) : plan_(plan) {
    for (const std::string& line : plan.lines) {
      const std::size_t end = std::min(line.find(' '), line.size());
      listeners_.push_back(
          registry_.listen(loop_, std::string_view(line).substr(0, end), echo_.handler()));
      conn::Endpoint to = listeners_.back()->endpoints().front();
      to.options = conn::Options::parse(line.substr(std::min(end + 1, line.size())));
      targets_.push_back(std::move(to));
    }
    tallies_.resize(targets_.size());
  }

  /// Clients work for that long and close; returns when no connection is left.
  void run(double seconds) {
    std::vector<std::unique_ptr<Client>> clients;
    for (std::size_t i = 0; i < plan_.clients * targets_.size(); ++i) {
      const std::size_t at = i % targets_.size();
      clients.push_back(std::make_unique<Client>(plan_, registry_, loop_, targets_[at],
                                                 tallies_[at], plan_.seed * 1000 + ++number_));
    }
    const auto begin = Clock::now();
    const auto length = std::chrono::duration<double>(seconds);
    bool winding_up = false;
    const ae::TimerId watch = loop_.add_time_event(100ms, [&] {
      const auto now = Clock::now();
      if (!winding_up && now - begin > length) {
        winding_up = true;
        for (const auto& client : clients) client->wind_up();
      }
      const auto hangs = [&](const auto& client) {
        return !client->idle() && now - client->last_sign() > plan_.bound;
      };
      if (std::any_of(clients.begin(), clients.end(), hangs)) throw conn::Error("a client hangs");
      const auto idle = [](const auto& client) { return client->idle(); };
      if (winding_up && open() == 0 && std::all_of(clients.begin(), clients.end(), idle))
        loop_.stop();
      if (winding_up && now - begin > length + 2 * plan_.bound)
        throw conn::Error(fmt::format("{} connections are left", open()));
      return ae::Duration(100ms);
    });
    loop_.run();
    loop_.remove_time_event(watch);
  }

  /// After freeing what transports keep for later connections.
  programs::Footprint footprint() {
    for (const auto& type : registry_.types()) type->cleanup(loop_);
    return programs::footprint();
  }

  void report() const {
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      const Tally& t = tallies_[i];
      fmt::print("soak {}: {} messages, {} MiB, {} connections, {} cut off, {} failed\n",
                 targets_[i].scheme, t.messages, t.bytes >> 20, t.connections, t.cut, t.failures);
      for (const auto& [reason, count] : t.reasons) fmt::print("  {} x {}\n", count, reason);
      if (t.messages == 0) throw conn::Error(targets_[i].scheme + ": not one message came back");
    }
  }

 private:
  std::uint64_t open() {
    std::uint64_t all = 0;
    for (const auto& type : registry_.types()) all += type->counters(loop_).open;
    return all;
  }

  const Plan& plan_;
  const conn::Registry registry_ = conn::all_transports();
  ae::LibevLoop loop_;
  Echo echo_;
  std::vector<conn::ListenerPtr> listeners_;
  std::vector<conn::Endpoint> targets_;
  std::vector<Tally> tallies_;
  std::uint64_t number_ = 0;
};

void run(const Plan& plan) {
  Soak soak(plan);
  // Memory that is allocated once and kept (caches, pools) does not count as growth.
  soak.run(std::min(30.0, plan.seconds / 4));
  const programs::Footprint before = soak.footprint();
  std::cout << "soak: begins" << std::endl;  // the start signal for the disturbing script
  soak.run(plan.seconds);
  const programs::Footprint after = soak.footprint();
  soak.report();
  fmt::print("soak: {:.0f} s; {}\n", plan.seconds, programs::comparison(before, after));
  const std::string left = programs::left_over(before, after, plan.allowance);
  if (!left.empty()) throw conn::Error("left over: " + left);
}

}  // namespace

int main(int argc, char** argv) {
  Plan plan;
  try {
    CLI::App app("Traffic for a long time.", "soak");
    app.add_option("url", plan.lines, "Where to listen")->required();
    app.add_option("--seconds", plan.seconds)->check(CLI::PositiveNumber);
    app.add_option("--clients", plan.clients, "For each URL")->check(CLI::PositiveNumber);
    app.add_option("--think-ms", plan.think_ms, "Longest pause between two messages");
    app.add_option("--largest", plan.largest, "Longest message")->check(CLI::PositiveNumber);
    app.add_option("--cut-every", plan.cut_every, "Messages to a cut below; 0: none");
    app.add_option("--seed", plan.seed);
    app.add_flag("--disturbed", plan.disturbed, "Connections may fail");
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? 0 : 1;
    }
    run(plan);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "soak: " << error.what() << '\n';
    return 1;
  }
}
