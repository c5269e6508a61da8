// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What tests of resume=yes share: a pair of connections, and an end that checks its peer's bytes.

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conn/rdma/protocol/resume_message.h"
#include "tests/simulation/rejecter.h"
#include "tests/simulation/room.h"

namespace simulation {

/// One end: writes a stream of known bytes, and checks those of the peer.
class Talker {
 public:
  Talker(conn::Connection& connection, std::uint64_t seed, std::uint64_t peers_seed,
         std::uint64_t most)
      : connection_(connection), mine_(seed), theirs_(peers_seed), most_(most) {
    set_reads(true);
    connection.set_write_handler([this](conn::Connection&) { write(); });
  }
  std::uint64_t written() const noexcept { return written_; }
  std::uint64_t received() const noexcept { return received_; }
  /// "": all bytes so far were right, and the peer's stream goes on.
  const std::string& ending() const noexcept { return ending_; }
  bool wrote_all() const noexcept { return written_ == most_; }
  /// Whether it reads; true at first.
  void set_reads(bool reads) {
    if (reads)
      connection_.set_read_handler([this](conn::Connection&) { read(); });
    else
      connection_.set_read_handler(nullptr);
  }
  void more(std::uint64_t bytes) {
    most_ += bytes;
    connection_.set_write_handler([this](conn::Connection&) { write(); });
  }

 private:
  void read() {
    char bytes[8192];
    const ssize_t n = connection_.read(bytes, sizeof bytes);
    if (n > 0) {
      for (std::string_view left(bytes, static_cast<std::size_t>(n)); !left.empty();) {
        const std::string_view known = theirs_.at(received_).substr(0, left.size());
        if (left.substr(0, known.size()) != known)
          ending_ = "wrong bytes at " + std::to_string(received_);
        received_ += known.size();
        left.remove_prefix(known.size());
      }
      return;
    }
    if (n < 0 && errno == EAGAIN) return;
    if (ending_.empty()) ending_ = n == 0 ? "end of stream" : connection_.last_error();
    connection_.set_read_handler(nullptr);
  }
  void write() {
    while (written_ != most_) {
      const std::string_view next =
          mine_.at(written_).substr(0, std::min<std::uint64_t>(most_ - written_, 6000));
      const ssize_t n = connection_.write(next.data(), next.size());
      if (n < 0) break;
      written_ += static_cast<std::uint64_t>(n);
    }
    if (written_ == most_) connection_.set_write_handler(nullptr);
  }
  conn::Connection& connection_;
  const testing::Pattern mine_, theirs_;
  std::uint64_t most_, written_ = 0, received_ = 0;
  std::string ending_;
};

inline const std::string kResume = "resume=yes&resume-time=10s&keepalive=100ms";

/// A room whose server holds its connections, and a client.
struct Pair {
  explicit Pair(const Profile& profile = chosen_profile(), Config config = {},
                const std::string& server_options = kResume,
                const std::string& client_options = kResume)
      : room(config, "?" + server_options, profile, profile) {
    room.listener =
        room.type.listen(room.loop, conn::Endpoint::parse("rdma://10.77.0.1:0?" + server_options),
                         [this](conn::ConnectionPtr next) { server = std::move(next); });
    room.address = room.listener->endpoints().front();
    room.address.options =
        room.address.options.merged_with(conn::Options::parse("source=10.77.0.2"));
    client = room.dial(client_options);
    RUN_UNTIL(room.loop, server != nullptr && client->state() != conn::State::kConnecting);
    INFO(client->last_error());
    REQUIRE(client->state() == conn::State::kConnected);
  }
  std::uint64_t counted(const std::string& name) {
    for (const auto& [key, value] : room.type.statistics(room.loop))
      if (key == name) return value;
    return ~std::uint64_t{0};
  }
  ~Pair() {
    client.reset();
    server.reset();
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  Room room;
  conn::ConnectionPtr server, client;
};

/// A connection whose URL names the server, at 10.77.0.1, and after it `others` addresses of other
/// machines: 10.77.0.3 and so on.
struct Several : Pair {
  /// `rejects`: the others know no session. Otherwise nobody listens there.
  Several(int others, bool rejects, const std::string& options = kResume)
      : Pair(chosen_profile(), {}, options, options) {
    RUN_UNTIL(room.loop, (client.reset(), server.reset(), room.type.counters(room.loop).open == 0));
    room.address.hosts = {{"10.77.0.1"}};
    for (int i = 0; i < others; ++i) {
      const std::string host = "10.77.0." + std::to_string(3 + i);
      room.world.add_device("sim" + std::to_string(2 + i), host, chosen_profile());
      room.address.hosts.push_back({host});
      conn::SocketAddress address;
      REQUIRE(conn::numeric_address(host, room.address.port, address));
      if (rejects)
        rejecters.push_back(std::make_unique<Rejecter>(
            room.loop, address, std::string(text_of(conn::rdma::Refused::kUnknown))));
    }
    client = room.dial(options);
    RUN_UNTIL(room.loop, server && client->state() != conn::State::kConnecting);
    REQUIRE(client->last_error() == "");
  }
  ~Several() { rejecters.clear(); }
  Several(const Several&) = delete;
  Several& operator=(const Several&) = delete;
  std::size_t rejected() const {
    std::size_t sum = 0;
    for (const auto& each : rejecters) sum += each->requests.size();
    return sum;
  }
  std::vector<std::unique_ptr<Rejecter>> rejecters;
};

constexpr std::uint64_t kBytes = 3'000'000;

/// Takes the client's link down for `span`.
inline void flap(Room& room, Nanoseconds span) {
  room.world.set_link(*room.far, false);
  room.run_for(span);
  room.world.set_link(*room.far, true);
}

}  // namespace simulation
