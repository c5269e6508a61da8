// SPDX-License-Identifier: BSD-3-Clause
#include "programs/doctor/dial.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "ae/libev_loop.h"
#include "conn/setup_trace.h"

namespace doctor {
namespace {

using Clock = std::chrono::steady_clock;

// Enough rounds for a median; if rounds are slow, only as many as show that.
constexpr std::size_t kMostRounds = 100, kLeastRounds = 10;
constexpr auto kRoundsTime = std::chrono::milliseconds(200);
constexpr std::size_t kLarge = 64 * 1024;
// An echo returns this and a RESP server answers it; neither then waits for more input.
constexpr std::string_view kAsk = "PING\r\n";

double microseconds(ae::Duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

class Caller {
 public:
  Caller(Dialled& dialled, conn::Connection& connection, ae::Duration time_limit)
      : dialled_(dialled), connection_(connection), time_limit_(time_limit) {}

  /// Runs and times one step; `work` returns whether it succeeded. Records the failure if not.
  bool step(const char* name, auto work) {
    const Clock::time_point began = Clock::now();
    const bool done = work();
    dialled_.steps.push_back({name, microseconds(Clock::now() - began), done});
    if (!done) {
      const int err = errno;
      const std::string who = connection_.peer_address();
      if (connection_.state() != conn::State::kConnected)
        dialled_.failure = {connection_.error_code(), connection_.last_error()};
      else if (err == ETIMEDOUT)
        dialled_.failure = {
            std::make_error_code(std::errc::timed_out),
            std::string(name) + ": the connection is established, but " + who + " does not answer"};
      else if (err != 0 && err != ECONNRESET)
        dialled_.failure = conn::errno_failure(err, name);
      if (!dialled_.failure)
        dialled_.failure = {
            std::make_error_code(std::errc::connection_reset),
            std::string(name) + ": the connection was established, but " + who + " closed it"};
    }
    return done;
  }

  bool first_round() {
    return step("first round trip", [this] {
      if (!send(kAsk)) return false;
      std::array<char, 256> line{};
      if (connection_.sync_readline(line.data(), line.size(), time_limit_) < 0) return false;
      answer_ = line.data();
      return true;
    });
  }

  bool rounds() {
    std::vector<double> times;
    const bool done = step("round trips", [&] {
      const Clock::time_point first = Clock::now();
      for (std::size_t i = 0; i < kMostRounds; ++i) {
        const Clock::time_point began = Clock::now();
        if (i >= kLeastRounds && began - first > kRoundsTime) break;
        std::array<char, 256> line{};
        if (!send(kAsk) || connection_.sync_readline(line.data(), line.size(), time_limit_) < 0)
          return false;
        times.push_back(microseconds(Clock::now() - began));
      }
      return true;
    });
    if (!done) return false;
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    dialled_.median = *middle;
    dialled_.rounds = times.size();
    dialled_.steps.back().microseconds = *dialled_.median;
    return true;
  }

  /// Only for an echo. Messages larger than one packet can fail for other reasons than small ones.
  bool large() {
    return step("64 KiB there and back", [this] {
      const std::string much(kLarge, 'x');
      std::string back(kLarge, '\0');
      if (!send(much)) return false;
      const ssize_t size = connection_.sync_read(back.data(), back.size(), time_limit_);
      if (size != static_cast<ssize_t>(kLarge)) return false;
      if (back == much) return true;
      errno = EBADMSG;
      return false;
    });
  }

  const std::string& answer() const noexcept { return answer_; }

 private:
  bool send(std::string_view bytes) {
    errno = 0;
    return connection_.sync_write(bytes.data(), bytes.size(), time_limit_) ==
           static_cast<ssize_t>(bytes.size());
  }

  Dialled& dialled_;
  conn::Connection& connection_;
  ae::Duration time_limit_;
  std::string answer_;
};

std::string peer_of(const std::string& answer) {
  if (answer == "PING") return "an echo";
  if (!answer.empty() && (answer[0] == '+' || answer[0] == '-')) return "a server of RESP";
  return "something else";
}

conn::Endpoint by(const conn::Registry& registry, const conn::Endpoint& to,
                  const std::string& scheme) {
  conn::Endpoint other = to;
  other.scheme = scheme;
  other.options = {};
  const conn::ConnectionType* const type = registry.find(scheme);
  for (const auto& [key, value] : to.options.values())
    if (type != nullptr && type->find_option(key) != nullptr) other.options.set(key, value);
  return other;
}

void take_facts(const conn::Connection& connection, Dialled& dialled) {
  dialled.path = connection.path();
  dialled.features.clear();
  dialled.confirmed = connection.state() == conn::State::kConnected;
  for (const auto& [name, value] : connection.info()) {
    if (name == "unsent" || name == "unconfirmed") dialled.confirmed &= value == "0";
    if (name == "certificate-ends") dialled.certificate_ends = value;
    if (name == "peer-certificate-ends") dialled.peer_certificate_ends = value;
    if (name == "mtu") std::from_chars(value.data(), value.data() + value.size(), dialled.mtu);
    if (name == "isolation" || name == "inline" || name == "receives")
      dialled.features += (dialled.features.empty() ? "" : ", ") + name + " " + value;
  }
}

}  // namespace

Dialled dial(const conn::Registry& registry, const conn::Endpoint& to, ae::Duration time_limit) {
  Dialled dialled;
  dialled.scheme = to.scheme;
  ae::LibevLoop loop;
  if (!to.hosts.empty()) {
    const Clock::time_point began = Clock::now();
    conn::Resolved found = conn::resolve_until(to.hosts.front().name, to.port, began + time_limit);
    dialled.steps.push_back({"resolve name", microseconds(Clock::now() - began), !found.failure});
    if (found.failure) {
      dialled.failure = std::move(found.failure);
      return dialled;
    }
  }
  conn::ConnectionPtr connection;
  try {
    connection = registry.create(loop, to);
  } catch (const conn::Error& error) {  // e.g. rdma without devices or libraries
    dialled.failure = conn::Failure(error);
    dialled.steps.push_back({"connect", 0, false});
    return dialled;
  }
  {
    conn::SetupTrace trace;
    if (!connection->connect_blocking(to, time_limit))
      dialled.failure = {connection->error_code(), connection->last_error()};
    if (dialled.failure) conn::SetupTrace::failed();
    for (const conn::SetupTrace::Step& each : trace.steps())
      dialled.steps.push_back({std::string(each.name), microseconds(each.took), each.done});
    if (dialled.failure && dialled.failed_step() == nullptr)
      dialled.steps.push_back({"connect", 0, false});
  }
  if (dialled.failure) return dialled;
  // An established connection has done all steps. If only the peer's first receive window is
  // missing, the first round trip fails instead.
  for (Dialled::Step& each : dialled.steps) each.done = true;
  Caller caller(dialled, *connection, time_limit);
  const bool answered = caller.first_round();
  take_facts(*connection, dialled);
  if (!answered) return dialled;
  dialled.peer = peer_of(caller.answer());
  if (caller.rounds() && dialled.peer == "an echo") (void)caller.large();
  take_facts(*connection, dialled);
  return dialled;
}

std::optional<conn::Endpoint> over_tcp(const conn::Registry& registry, const conn::Endpoint& to) {
  std::string other;
  if (to.scheme == "rdma") {
    other = "tcp";
  } else if (to.scheme == "tls+rdma") {
    other = "tls";
  } else {
    return std::nullopt;
  }
  if (registry.find(other) == nullptr) return std::nullopt;
  return by(registry, to, other);
}

std::vector<conn::Endpoint> ways_of(const conn::Registry& registry, const conn::Endpoint& to) {
  if (!to.is_list()) return {to};
  std::vector<conn::Endpoint> all;
  for (const std::string& scheme : to.schemes()) all.push_back(by(registry, to, scheme));
  return all;
}

Route route_to(const conn::Endpoint& to, ae::Duration time_limit) {
  Route route;
  const conn::Resolved found =
      conn::resolve_until(to.hosts.empty() ? "" : to.hosts.front().name, to.port,
                          std::chrono::steady_clock::now() + time_limit);
  if (found.failure || found.addresses.empty()) {
    route.failure = found.failure;
    return route;
  }
  route.target = found.addresses.front();
  if (const std::string source = to.options.text("source", ""); !source.empty()) {
    if (!conn::numeric_address(source, 0, route.source))
      route.failure = conn::errno_failure(EINVAL, "source=" + source);
    return route;
  }
  // Connecting a UDP socket selects a source address without sending anything.
  const int socket = ::socket(route.target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  socklen_t size = sizeof route.source.storage;
  if (socket < 0 || ::connect(socket, route.target.get(), route.target.size) != 0 ||
      ::getsockname(socket, route.source.get(), &size) != 0)
    route.failure = conn::errno_failure(errno, "route to " + route.target.host());
  route.source.size = size;
  if (socket >= 0) ::close(socket);
  return route;
}

}  // namespace doctor
