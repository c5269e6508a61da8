// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// For tests of a port that several loops serve: an echo server on a LoopGroup, its clients, and
// waiting for other threads.

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "ae/loop_group.h"
#include "conn/listener_group.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

namespace testing {

/// How many connections each loop of the group has.
inline std::vector<std::uint64_t> open_of(const conn::ListenerGroup& listener) {
  std::vector<std::uint64_t> all;
  for (const auto& share : listener.shares()) all.push_back(share.open);
  return all;
}

/// Echoes on several loops; knows which loop serves which connection.
class GroupServer {
 public:
  GroupServer(const conn::Registry& registry, const conn::Endpoint& at, std::size_t loops,
              conn::Spread spread = conn::Spread::fewest())
      : group({.loops = loops}), served_(loops) {
    listener = conn::listen(
        registry, group, at,
        [this](ae::EventLoop& loop, std::size_t index) { return accept(loop, index); },
        std::move(spread));
  }
  ~GroupServer() {
    listener.reset();
    close_all();
  }
  GroupServer(const GroupServer&) = delete;
  GroupServer& operator=(const GroupServer&) = delete;

  conn::Endpoint address() const { return listener->endpoints().front(); }
  std::vector<std::uint64_t> open() const {
    return open_of(*listener);
  }
  std::vector<std::uint64_t> assigned() const {
    std::vector<std::uint64_t> all;
    for (const auto& share : listener->shares()) all.push_back(share.assigned);
    return all;
  }
  std::uint64_t accepted() const { return accepted_; }
  bool wrong_thread() const { return wrong_thread_; }
  void close_all() {
    try {
      group.on_each([this](ae::EventLoop&, std::size_t i) { served_[i].clear(); });
    } catch (const ae::LoopError&) {  // a loop has ended
    }
  }

  ae::LoopGroup group;
  conn::ListenerGroupPtr listener;

 private:
  conn::AcceptHandler accept(ae::EventLoop& loop, std::size_t index) {
    return [this, &loop, index, thread = std::this_thread::get_id()](conn::ConnectionPtr next) {
      if (std::this_thread::get_id() != thread || next->loop() != &loop) wrong_thread_ = true;
      conn::Connection& raw = *next;
      served_[index].emplace(&raw, std::move(next));
      raw.set_read_handler([this, index](conn::Connection& c) {
        char bytes[256];
        const ssize_t n = c.read(bytes, sizeof bytes);
        if (n > 0) (void)c.write(bytes, static_cast<std::size_t>(n));
        if (n == 0 || (n < 0 && errno != EAGAIN)) served_[index].erase(&c);
      });
      ++accepted_;
    };
  }
  std::vector<std::map<conn::Connection*, conn::ConnectionPtr>> served_;  // by loop, on its thread
  std::atomic<std::uint64_t> accepted_{0};
  std::atomic<bool> wrong_thread_{false};
};

/// The transports that connect threads with each other, and whose ports serve groups.
inline std::vector<Transport> across_threads() {
  std::vector<Transport> all = transports();
  std::erase_if(
      all, [](const auto& each) { return !each.threads || !each.reaches_far || !each.groups; });
  return all;
}

inline void echo(ae::EventLoop& loop, conn::Connection& client) {
  send(loop, client, "hello");
  CHECK(receive(loop, client, 5) == "hello");
}

/// Other threads' actions do not wake this loop, so the condition is polled.
inline void watch_until(ae::EventLoop& loop, const std::function<bool()>& condition,
                        const char* what) {
  const ae::TimerId tick = loop.add_time_event(1ms, [] { return 1ms; });
  struct Undo {
    ae::EventLoop& loop;
    ae::TimerId timer;
    ~Undo() { loop.remove_time_event(timer); }
  } undo{loop, tick};
  run_until(loop, condition, what);
}
#define WATCH_UNTIL(loop, ...) \
  ::testing::watch_until(      \
      loop, [&] { return (__VA_ARGS__); }, #__VA_ARGS__)

}  // namespace testing
