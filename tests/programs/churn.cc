// SPDX-License-Identifier: BSD-3-Clause
// Connections that exchange a message and are closed by one end, by the other, or by both at once
// with bytes under way. Afterwards nothing may be left and memory may not have grown.
//
//   churn 'tcp://127.0.0.1:0' --connections 100000 --both-ends 5000
//   churn 'tcp://127.0.0.1:0' --seconds 20 --both-ends 1000     as many as fit into the time
//   churn 'tls://127.0.0.1:0?cert=c.pem&key=k.pem' --client-options ca=c.pem --connections 20000

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iostream>
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

struct Plan {
  std::string url;
  std::string client_options;
  std::uint64_t connections = 1000;
  std::uint64_t both_ends = 0;        ///< of these connections
  std::chrono::seconds seconds = 0s;  ///< for the whole run; 0: no limit
  std::size_t at_once = 50;
  std::size_t allowance = 1 << 20;
  std::chrono::seconds patience = 60s;  ///< time limit without the end of a connection
};

class Churn {
 public:
  explicit Churn(const Plan& plan)
      : plan_(plan), endpoint_(conn::Endpoint::parse(plan.url)), slots_(plan.at_once) {
    listener_ =
        registry_.listen(loop_, endpoint_, [this](ConnectionPtr peer) { accept(std::move(peer)); });
    for (const conn::Endpoint& at : listener_->endpoints()) {
      targets_.push_back(at);
      targets_.back().options = conn::Options::parse(plan.client_options);
    }
  }

  /// Makes `count` connections, `both_ends` of them closed from both ends at once. If `bound` is
  /// not 0, within about that time: then there may be fewer, a fifth of them closed from both ends.
  void run(std::uint64_t count, std::uint64_t both_ends, std::chrono::seconds bound = 0s) {
    first_ = next_;
    last_ = next_ + count;
    both_from_ = last_ - both_ends;
    for (std::size_t i = 0; i < slots_.size(); ++i) open_next(i);
    const auto watch = std::chrono::duration_cast<ae::Duration>(plan_.patience);
    std::uint64_t seen = done_;
    const ae::TimerId alarm = loop_.add_time_event(watch, [&] {
      if (done_ == seen) loop_.stop();
      seen = done_;
      return watch;
    });
    ae::TimerId end = 0;
    if (bound != 0s) {
      end = loop_.add_time_event(bound * 4 / 5, [this, both_ends] {
        if (next_ < both_from_) {
          both_from_ = next_;
          last_ = next_ + std::min(both_ends, (next_ - first_) / 4);
        }
        return ae::kNoMore;
      });
    }
    loop_.run();
    loop_.remove_time_event(end);
    loop_.remove_time_event(alarm);
    if (done_ != last_) {
      throw conn::Error(fmt::format("{} of {} connections ended; the others hang; open: {}",
                                    done_ - first_, count, open()));
    }
    const auto deadline = std::chrono::steady_clock::now() + plan_.patience;
    const ae::TimerId tick = loop_.add_time_event(0s, [] { return 10ms; });
    while (open() != 0 && std::chrono::steady_clock::now() < deadline) {
      loop_.process_events(ae::kFullIteration);
    }
    loop_.remove_time_event(tick);
    if (open() != 0) throw conn::Error(fmt::format("{} connections are left", open()));
  }

  /// After freeing what transports keep for later connections.
  programs::Footprint footprint() {
    for (const auto& type : registry_.types()) type->cleanup(loop_);
    return programs::footprint();
  }

  std::uint64_t done() const { return done_; }
  std::uint64_t both_closed() const { return both_closed_; }

 private:
  // Both ends of one connection.
  struct Slot {
    std::uint64_t number = 0;
    ConnectionPtr client, server;
    std::string got;
  };
  struct Arrival {
    ConnectionPtr connection;
    std::string got;
  };

  std::uint64_t open() {
    std::uint64_t all = 0;
    for (const auto& type : registry_.types()) all += type->counters(loop_).open;
    return all;
  }

  void open_next(std::size_t at) {
    if (next_ == last_) {
      if (done_ == last_) loop_.stop();
      return;
    }
    Slot& slot = slots_[at];
    slot.number = next_++;
    slot.got.clear();
    const conn::Endpoint& target = targets_[slot.number % targets_.size()];
    slot.client = registry_.create(loop_, target);
    slot.client->connect(target, [this, at](Connection& c) { connected(at, c); });
  }

  void connected(std::size_t at, Connection& client) {
    if (client.state() != conn::State::kConnected) give_up("connect", client);
    const std::uint64_t word[2] = {at, slots_[at].number};
    if (client.write(word, sizeof word) != sizeof word) give_up("write", client);
    client.set_read_handler([this, at](Connection&) { client_reads(at); });
  }

  void accept(ConnectionPtr peer) {
    Connection& server = *peer;
    arrivals_[&server].connection = std::move(peer);
    server.set_read_handler([this](Connection& c) { first_words(c); });
  }

  void first_words(Connection& server) {
    Arrival& arrival = arrivals_.at(&server);
    std::uint64_t word[2];
    if (!read_words(server, arrival.got)) give_up("read the first message", server);
    if (arrival.got.size() < sizeof word) return;
    std::memcpy(word, arrival.got.data(), sizeof word);
    if (word[0] >= slots_.size() || slots_[word[0]].number != word[1])
      throw conn::Error("other bytes arrived than were sent");
    slots_[word[0]].server = std::move(arrival.connection);
    server.set_read_handler([this, at = std::size_t{word[0]}](Connection&) { server_reads(at); });
    if (server.write(arrival.got.data(), sizeof word) != sizeof word) give_up("reply", server);
    arrivals_.erase(&server);
  }

  void client_reads(std::size_t at) {
    Slot& slot = slots_[at];
    const bool more = read_words(*slot.client, slot.got);
    const std::uint64_t word[2] = {at, slot.number};
    if (slot.got.size() == sizeof word && more) {
      if (std::memcmp(slot.got.data(), word, sizeof word) != 0)
        throw conn::Error("other bytes came back than were sent");
      return finish(at);
    }
    if (!more) {
      slot.client.reset();
      ended(at);
    }
  }

  void server_reads(std::size_t at) {
    Slot& slot = slots_[at];
    std::string rest;
    if (read_words(*slot.server, rest)) return;
    slot.server.reset();
    ended(at);
  }

  // The echo has arrived; the connection's number determines how it ends.
  void finish(std::size_t at) {
    Slot& slot = slots_[at];
    if (slot.number >= both_from_) {
      // With bytes under way in both directions.
      const std::string more(100, 'x');
      (void)slot.client->write(more.data(), more.size());
      (void)slot.server->write(more.data(), more.size());
      slot.client.reset();
      slot.server.reset();
      ++both_closed_;
    } else if (slot.number % 2 == 0) {
      slot.client.reset();
    } else {
      slot.server.reset();
    }
    ended(at);
  }

  void ended(std::size_t at) {
    if (slots_[at].client || slots_[at].server) return;
    ++done_;
    open_next(at);
  }

  /// False at the end of stream, or if the peer closed with unread bytes.
  static bool read_words(Connection& from, std::string& to) {
    char buffer[256];
    const ssize_t n = from.read(buffer, sizeof buffer);
    if (n > 0) to.append(buffer, static_cast<std::size_t>(n));
    return n > 0 || (n < 0 && errno == EAGAIN);
  }

  [[noreturn]] static void give_up(const char* what, const Connection& connection) {
    throw conn::Error(fmt::format("{}: {}", what, connection.last_error()));
  }

  const Plan& plan_;
  const conn::Endpoint endpoint_;
  const conn::Registry registry_ = conn::all_transports();
  ae::LibevLoop loop_;
  conn::ListenerPtr listener_;
  std::vector<conn::Endpoint> targets_;
  std::vector<Slot> slots_;
  std::unordered_map<Connection*, Arrival> arrivals_;
  std::uint64_t next_ = 0, first_ = 0, last_ = 0, both_from_ = 0, done_ = 0, both_closed_ = 0;
};

void run(const Plan& plan) {
  Churn churn(plan);
  // Memory that is allocated once and kept (caches, pools) does not count as growth.
  churn.run(std::min<std::uint64_t>(plan.connections, 20 * plan.at_once), plan.at_once);
  const programs::Footprint before = churn.footprint();
  const std::uint64_t done_before = churn.done(), both_before = churn.both_closed();
  const auto begin = std::chrono::steady_clock::now();
  churn.run(plan.connections, plan.both_ends, plan.seconds);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const programs::Footprint after = churn.footprint();
  fmt::print("churn {}: {} connections in {:.1f} s, {} of them closed from both ends at once; {}\n",
             plan.url.substr(0, plan.url.find(':')), churn.done() - done_before, took.count(),
             churn.both_closed() - both_before, programs::comparison(before, after));
  const std::string left = programs::left_over(before, after, plan.allowance);
  if (!left.empty()) throw conn::Error("left over: " + left);
}

}  // namespace

int main(int argc, char** argv) {
  Plan plan;
  try {
    CLI::App app("Connections that come and go.", "churn");
    app.add_option("url", plan.url, "Where to listen, such as tcp://127.0.0.1:0")->required();
    app.add_option("--client-options", plan.client_options, "For connecting, such as ca=ca.pem");
    app.add_option("--connections", plan.connections)->check(CLI::PositiveNumber);
    app.add_option("--both-ends", plan.both_ends, "How many of them close from both ends at once");
    std::uint64_t seconds = 0;
    app.add_option("--seconds", seconds, "Fewer connections, if that takes longer");
    app.add_option("--at-once", plan.at_once)->check(CLI::PositiveNumber);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? 0 : 1;
    }
    plan.seconds = std::chrono::seconds(seconds);
    plan.both_ends = std::min(plan.both_ends, plan.connections);
    run(plan);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "churn: " << plan.url << ": " << error.what() << '\n';
    return 1;
  }
}
