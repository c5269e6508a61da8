// SPDX-License-Identifier: BSD-3-Clause
// Counts what a message over rdma costs in user space, above tests/simulation's devices: both ends
// of an echo on one loop. bench/messages/simulation runs it under callgrind and reads the dumps.

#include "tests/support/catch.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#error "callgrind counts the instructions: install valgrind (tools/packages bench)"
#endif

#include "tests/simulation/room.h"

namespace {

using simulation::Config;
using simulation::Room;

struct Shape {
  std::size_t connections, under_way, size, echoes;
};

/// One end of a connection: what a write did not accept is kept and written later.
class End {
 public:
  void write(conn::Connection& to, std::string_view bytes) {
    if (!unsent_.empty()) return (void)unsent_.append(bytes);
    const ssize_t n = to.write(bytes.data(), bytes.size());
    const std::size_t done = n < 0 ? 0 : static_cast<std::size_t>(n);
    if (done == bytes.size()) return;
    unsent_.assign(bytes.substr(done));
    to.set_write_handler([this](conn::Connection& here) {
      here.set_write_handler(nullptr);
      write(here, std::exchange(unsent_, {}));
    });
  }

 private:
  std::string unsent_;
};

/// Connections that send messages of one size, and whose peers send them back.
class Echoes {
 public:
  Echoes(Room& room, const Shape& shape) : room_(room), shape_(shape), message_(shape.size, 'e') {
    for (std::size_t i = 0; i < shape.connections; ++i) {
      clients_.push_back(room.connected(kQuiet));
      End& end = ends_.emplace_back();
      clients_.back()->set_read_handler([this, &end](conn::Connection& here) {
        const ssize_t n = here.read(bytes_.data(), bytes_.size());
        if (n > 0) on_echo(here, end, {bytes_.data(), static_cast<std::size_t>(n)});
      });
    }
    for (const conn::ConnectionPtr& each : room.log.clients) {
      End& end = ends_.emplace_back();
      each->set_read_handler([this, &end](conn::Connection& here) {
        const ssize_t n = here.read(bytes_.data(), bytes_.size());
        if (n > 0) end.write(here, {bytes_.data(), static_cast<std::size_t>(n)});
      });
    }
  }

  // Keepalives are off, so that only messages are counted.
  static constexpr const char* kQuiet = "keepalive=0ms";

  /// Runs the loop until `echoes` messages have come back, and all that are under way then.
  void run(std::size_t echoes) {
    left_ = echoes * shape_.size;
    under_way_ = shape_.connections * shape_.under_way * shape_.size;
    for (std::size_t i = 0; i < clients_.size(); ++i)
      for (std::size_t k = 0; k < shape_.under_way; ++k) ends_[i].write(*clients_[i], message_);
    room_.loop.run();
    while (under_way_ != 0) (void)room_.loop.process_events(ae::kFullIteration);
  }

 private:
  void on_echo(conn::Connection& here, End& end, std::string_view bytes) {
    if (left_ > bytes.size()) {
      left_ -= bytes.size();
      return end.write(here, bytes);
    }
    if (left_ != 0) room_.loop.stop();
    left_ = 0;
    under_way_ -= bytes.size();
  }

  Room& room_;
  const Shape shape_;
  const std::string message_;
  std::vector<conn::ConnectionPtr> clients_;
  std::deque<End> ends_;
  std::array<char, 64 * 1024> bytes_{};
  std::size_t left_ = 0, under_way_ = 0;
};

}  // namespace

TEST_CASE("messages") {
  constexpr std::size_t kLong = 16 * 1024;
  for (const std::size_t size : {std::size_t{64}, std::size_t{1024}, kLong})
    for (const Shape& shape :
         {Shape{1, 1, size, 1000}, Shape{16, 1, size, 3200}, Shape{64, 1, size, 6400},
          Shape{16, 16, size, size == kLong ? std::size_t{5120} : std::size_t{12800}}}) {
      Room room(Config{}, fmt::format("?{}", Echoes::kQuiet));
      Echoes echoes(room, shape);
      echoes.run(shape.echoes / 4);  // reaches the periodic state
      CALLGRIND_ZERO_STATS;
      CALLGRIND_TOGGLE_COLLECT;
      echoes.run(shape.echoes);
      CALLGRIND_TOGGLE_COLLECT;
      const std::string title =
          fmt::format("{}x{} {} {}", shape.connections, shape.under_way, size, shape.echoes);
      CALLGRIND_DUMP_STATS_AT(title.c_str());
    }
}
