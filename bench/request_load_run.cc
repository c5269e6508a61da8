// SPDX-License-Identifier: BSD-3-Clause
#include "request_load_run.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace load {
namespace {

constexpr std::size_t kConnectingAtOnce = 64;
constexpr double kSecond = 1e9;
constexpr ae::Duration kPatience = std::chrono::seconds(60);

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

ae::Duration duration_of(double seconds) {
  return std::chrono::duration_cast<ae::Duration>(std::chrono::duration<double>(seconds));
}

std::string why(const conn::Connection& connection, int error) {
  const std::string& text = connection.last_error();
  return text.empty() ? conn::errno_text(error) : text;
}

/// Replaces unprintable characters, and truncates.
std::string shown(std::string_view bytes) {
  std::string text;
  for (const char c : bytes.substr(0, 60)) text += c >= ' ' && c <= '~' ? c : '.';
  return text;
}

}  // namespace

std::vector<std::string> call(ae::EventLoop& loop, const conn::Registry& registry,
                              const conn::Endpoint& endpoint, const Protocol& protocol,
                              const std::vector<std::string>& requests) {
  constexpr auto kPatience = std::chrono::seconds(10);
  std::vector<std::string> replies;
  const conn::ConnectionPtr connection = registry.create(loop, endpoint);
  if (!connection->connect_blocking(endpoint, kPatience)) {
    throw conn::Error(connection->last_error());
  }
  std::string input;
  bool ended = false;
  std::vector<char> buffer(Script::kPiece);
  for (const std::string& request : requests) {
    if (connection->sync_write(request.data(), request.size(), kPatience) < 0) {
      throw conn::Error(why(*connection, errno));
    }
    connection->set_read_handler([&](conn::Connection& from) {
      const ssize_t size = from.read(buffer.data(), buffer.size());
      if (size > 0) {
        input.append(buffer.data(), static_cast<std::size_t>(size));
      } else if (size == 0 || errno != EAGAIN) {
        ended = true;
      }
    });
    std::size_t size = 0;
    while ((size = protocol.reply_size(input, request)) == 0) {
      if (ended) throw conn::Error("the server closed the connection instead of answering");
      loop.process_events(ae::kFullIteration);
    }
    connection->set_read_handler(nullptr);
    replies.push_back(input.substr(0, size));
    input.erase(0, size);
  }
  return replies;
}

// One connection, or with new_connections a sequence of them.
class Client {
 public:
  explicit Client(Run& run) : run_(run), sent_at_(run.plan_.depth) {}

  void connect() {
    begun_ = now_ns();
    request_at_ = reply_at_ = unsent_ = 0;
    next_request_ = next_reply_ = 0;
    connection_ = run_.registry_.create(run_.loop_, run_.plan_.endpoint);
    connection_->connect(run_.plan_.endpoint, [this](conn::Connection& c) { connected(c); });
  }

  void issue(std::size_t count, std::uint64_t now) {
    for (; count > 0; --count) {
      sent_at_[(first_ + under_way_++) % sent_at_.size()] = now;
      unsent_ += run_.script_.request_size(next_request_);
      if (++next_request_ == run_.script_.commands()) next_request_ = 0;
    }
    send();
  }

 private:
  void connected(conn::Connection& connection) {
    if (connection.state() != conn::State::kConnected) return run_.fail(connection.last_error());
    connection.set_read_handler([this](conn::Connection&) { read(); });
    if (run_.plan_.new_connections) {
      issue(1, begun_);
    } else {
      run_.connected();
    }
  }

  void send() {
    const std::string_view requests = run_.script_.requests();
    while (unsent_ > 0) {
      const std::size_t piece = std::min(unsent_, requests.size() - request_at_);
      const ssize_t size = connection_->write(requests.data() + request_at_, piece);
      if (size < 0) {
        if (errno != EAGAIN) return run_.fail(why(*connection_, errno));
        if (!connection_->has_write_handler()) {
          connection_->set_write_handler([this](conn::Connection&) { send(); });
        }
        return;
      }
      unsent_ -= static_cast<std::size_t>(size);
      request_at_ = (request_at_ + static_cast<std::size_t>(size)) % run_.script_.request_cycle();
    }
    if (connection_->has_write_handler()) connection_->set_write_handler(nullptr);
  }

  void read() {
    const ssize_t size = connection_->read(run_.buffer_.data(), run_.buffer_.size());
    if (size <= 0) {
      if (size < 0 && errno == EAGAIN) return;
      return run_.fail(size == 0 ? "the server closed the connection" : why(*connection_, errno));
    }
    const auto count = static_cast<std::size_t>(size);
    const char* const expected = run_.script_.replies().data() + reply_at_;
    if (std::memcmp(run_.buffer_.data(), expected, count) != 0) return differs(count);
    reply_at_ += count;
    take_replies();
  }

  void take_replies() {
    const std::uint64_t now = now_ns();
    std::size_t completed = 0;
    while (reply_at_ >= run_.script_.reply_end(next_reply_)) {
      if (under_way_ == 0) return run_.fail("there are more replies than requests");
      run_.completed(now - sent_at_[first_]);
      if (++first_ == sent_at_.size()) first_ = 0;
      --under_way_;
      ++completed;
      if (++next_reply_ == run_.script_.commands()) {
        next_reply_ = 0;
        reply_at_ -= run_.script_.reply_cycle();
      }
    }
    if (completed == 0 || run_.over_) return;
    const std::size_t granted = run_.grant(completed);
    if (!run_.plan_.new_connections) {
      issue(granted, now);
    } else if (granted > 0) {
      connect();  // closes the old one
    } else {
      connection_.reset();
    }
  }

  void differs(std::size_t count) {
    const std::string_view got(run_.buffer_.data(), count);
    const std::string_view expected = run_.script_.replies().substr(reply_at_, count);
    const auto at = static_cast<std::size_t>(
        std::mismatch(got.begin(), got.end(), expected.begin()).first - got.begin());
    run_.fail("a reply differs from the first one: \"" + shown(got.substr(at)) +
              "\" instead of \"" + shown(expected.substr(at)) + "\"");
  }

  Run& run_;
  conn::ConnectionPtr connection_;
  std::size_t request_at_ = 0, unsent_ = 0;  // offset in the cycle of requests, bytes from there on
  std::size_t reply_at_ = 0;                 // offset in the cycle of replies
  std::size_t next_request_ = 0, next_reply_ = 0;  // command indices
  std::vector<std::uint64_t> sent_at_;  // ring: `under_way_` requests starting at `first_`
  std::size_t first_ = 0, under_way_ = 0;
  std::uint64_t begun_ = 0;
};

Run::Run(ae::EventLoop& loop, const conn::Registry& registry, const Plan& plan,
         const Script& script)
    : loop_(loop), registry_(registry), plan_(plan), script_(script), buffer_(Script::kPiece) {
  for (std::size_t i = 0; i < plan.connections; ++i) {
    clients_.push_back(std::make_unique<Client>(*this));
  }
}

Run::~Run() = default;

Result Run::run() {
  if (plan_.new_connections) {
    begin();
  } else {
    connect_more();
  }
  loop_.run();
  if (!failure_.empty()) throw conn::Error(failure_);
  return std::move(result_);
}

void Run::connect_more() {
  while (started_ < clients_.size() && started_ - connected_ < kConnectingAtOnce) {
    clients_[started_++]->connect();
  }
}

void Run::connected() {
  ++connected_;
  connect_more();
  if (connected_ == clients_.size()) begin();
}

void Run::begin() {
  const auto once = [this](double seconds, void (Run::*what)()) {
    loop_.add_time_event(duration_of(seconds), [this, what] {
      (this->*what)();
      return ae::kNoMore;
    });
  };
  if (plan_.warm_up > 0) {
    once(plan_.warm_up, &Run::measure);
  } else {
    measure();
  }
  if (plan_.requests == 0) once(plan_.warm_up + plan_.seconds, &Run::finish);
  loop_.add_time_event(kPatience, [this]() -> ae::Duration {
    if (std::exchange(replies_seen_, replies_) == replies_)
      fail("the server has not answered for a minute");
    return kPatience;
  });
  const std::uint64_t now = now_ns();
  for (const auto& client : clients_) {
    const std::size_t granted = grant(plan_.new_connections ? 1 : plan_.depth);
    if (granted == 0 || over_) return;
    if (plan_.new_connections) {
      client->connect();
    } else {
      client->issue(granted, now);
    }
  }
}

void Run::measure() {
  measuring_ = true;
  // Requests already in flight count.
  if (plan_.requests > 0) budget_ = plan_.requests - std::min(under_way_, plan_.requests);
  begun_ = now_ns();
  cpu_begun_ = cpu_seconds();
}

void Run::finish() {
  if (over_) return;
  over_ = true;
  result_.elapsed_s = static_cast<double>(now_ns() - begun_) / kSecond;
  result_.cpu_s = cpu_seconds() - cpu_begun_;
  loop_.stop();
}

void Run::fail(std::string reason) {
  if (over_) return;
  over_ = true;
  failure_ = std::move(reason);
  loop_.stop();
}

std::size_t Run::grant(std::size_t wanted) noexcept {
  const std::size_t granted = std::min<std::uint64_t>(wanted, budget_);
  if (plan_.requests > 0 && measuring_) budget_ -= granted;
  under_way_ += granted;
  return granted;
}

void Run::completed(std::uint64_t ns) noexcept {
  --under_way_;
  ++replies_;
  if (!measuring_ || over_) return;
  result_.latency.record(ns);
  if (++result_.requests == plan_.requests) finish();
}

}  // namespace load
