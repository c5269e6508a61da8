// SPDX-License-Identifier: BSD-3-Clause
// What a connection loses as a descriptor (adapters/descriptor.h): an echo server with the library
// itself, and one that serves descriptors by epoll(7), recv(2) and send(2), to the same clients.
//
//   descriptor [--rounds N] [--milliseconds N] [URL...]
//
//   native   the server's connections are served on their loop
//   fd       as descriptors, on the thread of the loop, which lies below the server's epoll
//   thread   as descriptors, on another thread than that of the loop
//   pumped   as fd, with a function for their ends, so that the loop moves the bytes of sockets,
//   too
//
// Without URLs: tcp and unix. A URL has port 0 or a path; its options are those of the server. Each
// rate is the median of the rounds, in which the servers take turns.

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "adapters/descriptor.h"
#include "ae/epoll_loop.h"
#include "conn/transports/transports.h"

namespace {

using Clock = std::chrono::steady_clock;
using conn::Connection;
using conn::ConnectionPtr;

struct Load {
  std::string_view name;
  std::size_t connections, size, depth;  // requests of `size` bytes, `depth` at once
  int work = 0;                          // microseconds that the server computes for each
};
constexpr std::array kLoads{
    Load{"64 B", 1, 64, 1},
    Load{"50 x 64 B", 50, 64, 1},
    Load{"50 x 16 x 64 B", 50, 64, 16},
    Load{"50 x 64 B, 20 us of work", 50, 64, 1, 20},
    Load{"50 x 16 x 64 B, 5 us of work", 50, 64, 16, 5},
    Load{"4 x 64 KiB", 4, 64 << 10, 1},
};
std::atomic<const Load*> current = nullptr;
int rounds = 7;
std::chrono::milliseconds span{300};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "bench/descriptor: %s\n", what.c_str());
  std::exit(1);
}

/// Computes as long as the requests in `size` bytes demand.
void work(ssize_t size) {
  const Load& load = *current;
  const auto end =
      Clock::now() + std::chrono::microseconds(load.work) * size / static_cast<ssize_t>(load.size);
  while (load.work != 0 && Clock::now() < end) {
  }
}

/// Serves descriptors until the end of their streams, and calls `below` when `loop` is readable.
class Descriptors {
 public:
  explicit Descriptors(int loop = -1, std::function<void()> below = {})
      : loop_(loop), below_(std::move(below)) {
    if (loop_ >= 0) add(loop_);
  }
  ~Descriptors() { ::close(epoll_); }
  void add(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) fail("epoll_ctl");
  }
  void turn() {
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(epoll_, events.data(), events.size(), 10);
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == loop_) {
        below_();
        continue;
      }
      const ssize_t n = ::recv(fd, room_.data(), room_.size(), MSG_DONTWAIT);
      if (n <= 0) {
        ::close(fd);
        continue;
      }
      work(n);
      // Clients wait for the answer before they ask again, so it fits; at the end of a round they
      // close without having read it.
      const ssize_t sent =
          ::send(fd, room_.data(), static_cast<std::size_t>(n), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent != n && (sent >= 0 || (errno != EPIPE && errno != ECONNRESET))) fail("send");
    }
  }

 private:
  const int epoll_ = ::epoll_create1(EPOLL_CLOEXEC), loop_;
  const std::function<void()> below_;
  std::vector<char> room_ = std::vector<char>(128 << 10);
};

/// An echo server of the library: what a connection does not accept is kept.
class Native {
 public:
  void add(ConnectionPtr connection) {
    Connection& its = *connection;
    all_[&its] = std::move(connection);
    its.set_read_handler([this](Connection& from) {
      const ssize_t n = from.read(room_.data(), room_.size());
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) return static_cast<void>(all_.erase(&from));
      work(n);
      const ssize_t written = from.write(room_.data(), static_cast<std::size_t>(n));
      if (written == n) return;
      rest(from, std::string(room_.data() + std::max<ssize_t>(written, 0), room_.data() + n));
    });
  }

 private:
  static void rest(Connection& to, std::string bytes) {
    to.set_write_handler([bytes = std::move(bytes), at = std::size_t{0}](Connection& its) mutable {
      const ssize_t n = its.write(bytes.data() + at, bytes.size() - at);
      if (n > 0) at += static_cast<std::size_t>(n);
      if (at == bytes.size()) its.set_write_handler(nullptr);
    });
  }
  std::map<Connection*, ConnectionPtr> all_;
  std::vector<char> room_ = std::vector<char>(128 << 10);
};

/// A server on threads of its own.
class Server {
 public:
  Server(std::string_view kind, const conn::Endpoint& at) : kind_(kind) {
    std::promise<conn::Endpoint> address;
    thread_ = std::thread([this, at, &address] { run(at, address); });
    address_ = address.get_future().get();
  }
  ~Server() {
    stop_ = true;
    thread_.join();
  }
  const conn::Endpoint& address() const { return address_; }

 private:
  void run(const conn::Endpoint& at, std::promise<conn::Endpoint>& address) try {
    conn::Registry registry(conn::all_transports());
    ae::EpollLoop loop;
    Native native;
    const bool beside = kind_ == "fd" || kind_ == "pumped";
    Descriptors descriptors(beside ? loop.descriptor() : -1, [&] { loop.dispatch(); });
    const conn::ListenerPtr listener = registry.listen(loop, at, [&](ConnectionPtr connection) {
      if (kind_ == "native") return native.add(std::move(connection));
      adapters::DescriptorEnded ended;
      if (kind_ == "pumped") ended = [](const conn::Failure&) {};
      descriptors.add(adapters::to_descriptor(std::move(connection), std::move(ended)));
    });
    address.set_value(listener->endpoints().front());
    std::thread other;
    if (kind_ == "thread") {
      other = std::thread([&] {
        while (!stop_) descriptors.turn();
      });
    }
    loop.add_time_event(std::chrono::milliseconds(10), [&]() -> ae::Duration {
      if (stop_) loop.stop();
      return std::chrono::milliseconds(10);
    });
    if (beside) {
      while (!stop_) descriptors.turn();
    } else {
      loop.run();
    }
    if (other.joinable()) other.join();
  } catch (const std::exception& error) {
    fail(error.what());
  }

  const std::string_view kind_;
  std::atomic<bool> stop_ = false;
  conn::Endpoint address_;
  std::thread thread_;
};

/// Requests per second that clients on this thread get answered.
double rate(const conn::Endpoint& to, const Load& load) {
  conn::Registry registry(conn::all_transports());
  ae::EpollLoop loop;
  const std::string request(load.size * load.depth, 'r');
  struct Client {
    ConnectionPtr connection;
    std::size_t sent = 0, got = 0;
  };
  std::vector<Client> clients(load.connections);
  std::vector<char> room(128 << 10);
  std::uint64_t answered = 0;
  const auto send = [&](Client& client) {
    while (client.sent < request.size()) {
      const ssize_t n =
          client.connection->write(request.data() + client.sent, request.size() - client.sent);
      if (n < 0 && errno == EAGAIN) {
        client.connection->set_write_handler([&](Connection& its) {
          its.set_write_handler(nullptr);
          for (Client& each : clients) {
            if (each.connection.get() != &its) continue;
            while (each.sent < request.size()) {
              const ssize_t more =
                  its.write(request.data() + each.sent, request.size() - each.sent);
              if (more < 0) break;
              each.sent += static_cast<std::size_t>(more);
            }
          }
        });
        return;
      }
      if (n < 0) fail(client.connection->last_error());
      client.sent += static_cast<std::size_t>(n);
    }
  };
  for (Client& client : clients) {
    client.connection = registry.create(loop, to);
    if (!client.connection->connect_blocking(to, std::chrono::seconds(5)))
      fail(client.connection->last_error());
    client.connection->set_read_handler([&](Connection& its) {
      const ssize_t n = its.read(room.data(), room.size());
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) fail("a connection has ended");
      client.got += static_cast<std::size_t>(n);
      if (client.got < request.size()) return;
      answered += load.depth;
      client.sent = client.got = 0;
      send(client);
    });
  }
  for (Client& client : clients) send(client);
  std::uint64_t before = 0;
  Clock::time_point began;
  loop.add_time_event(span / 5, [&]() -> ae::Duration {
    before = answered;
    began = Clock::now();
    return ae::kNoMore;
  });
  loop.add_time_event(span + span / 5, [&]() -> ae::Duration {
    loop.stop();
    return ae::kNoMore;
  });
  loop.run();
  const std::chrono::duration<double> took = Clock::now() - began;
  return static_cast<double>(answered - before) / took.count();
}

double median(std::vector<double> all) {
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2),
                   all.end());
  return all[all.size() / 2];
}

void compare(const std::string& url) {
  constexpr std::array<std::string_view, 4> kKinds{"native", "fd", "thread", "pumped"};
  std::vector<std::unique_ptr<Server>> servers;
  for (const std::string_view kind : kKinds) {
    conn::Endpoint at = conn::Endpoint::parse(url);
    if (conn::carries_path(at.scheme)) at.path += "." + std::string(kind);
    servers.push_back(std::make_unique<Server>(kind, at));
  }
  for (const Load& load : kLoads) {
    current = &load;
    std::array<std::vector<double>, kKinds.size()> rates;
    for (int round = 0; round < rounds; ++round)
      for (std::size_t i = 0; i < kKinds.size(); ++i)
        rates[i].push_back(rate(servers[i]->address(), load));
    const double native = median(rates[0]);
    fmt::print("| {} | {} | {:.0f} |", conn::Endpoint::parse(url).scheme, load.name, native);
    for (std::size_t i = 1; i < kKinds.size(); ++i)
      fmt::print(" {:.0f} | {:.2f} |", median(rates[i]), median(rates[i]) / native);
    fmt::print("\n");
    std::fflush(stdout);
  }
}

}  // namespace

int main(int count, char** arguments) try {
  std::vector<std::string> urls;
  for (int i = 1; i < count; ++i) {
    const std::string_view each = arguments[i];
    if ((each == "--rounds" || each == "--milliseconds") && i + 1 < count) {
      const int value = std::atoi(arguments[++i]);
      if (value <= 0) fail(std::string(each) + ": a number above 0");
      if (each == "--rounds")
        rounds = value;
      else
        span = std::chrono::milliseconds(value);
    } else if (each.starts_with("-")) {
      fail("descriptor [--rounds N] [--milliseconds N] [URL...]");
    } else {
      urls.emplace_back(each);
    }
  }
  std::string folder = (std::filesystem::temp_directory_path() / "descriptor-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) fail("mkdtemp");
  if (urls.empty()) urls = {"tcp://127.0.0.1:0", "unix://" + folder + "/s"};
  fmt::print(
      "| | requests | native /s | fd /s | ratio | thread /s | ratio | pumped /s | ratio |\n"
      "|---|---|---|---|---|---|---|---|---|\n");
  for (const std::string& url : urls) compare(url);
  std::filesystem::remove_all(folder);
  return 0;
} catch (const std::exception& error) {
  fail(error.what());
}
