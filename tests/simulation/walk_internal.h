// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The walk itself (walk.h): walk_choices.cc has the seed's choices, walk.cc the actions.

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "ae/epoll_loop.h"
#include "conn/transports/transports.h"
#include "tests/simulation/objects.h"
#include "tests/simulation/walk.h"
#include "tests/simulation/world.h"
#include "tests/support/testing.h"

namespace simulation {

// An end sends the pattern of its stream's number. A client first sends its number, so that the
// accepted end knows which two streams the connection carries.
inline std::uint64_t stream_of(std::uint64_t number, bool client) {
  return 2 * number + (client ? 1 : 0);
}

/// One direction of a connection, known to both ends.
struct Stream {
  std::uint64_t accepted = 0;  ///< bytes that write() accepted
  std::uint64_t received = 0;
  bool writer_failed = false;  ///< the writing end has been told of an error
  bool reader_failed = false;
  bool reader_gone = false;  ///< closed before the end of the stream
  bool writer_gone = false;  ///< the writing end was closed, aborted, or failed
};

class Walk {
 public:
  Walk(std::uint64_t seed, std::span<const std::uint8_t> choices, const WalkPlan& plan);
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;
  ~Walk();
  WalkReport run();

 private:
  struct End {
    Walk& walk;
    std::uint64_t number;
    bool client;
    conn::ConnectionPtr connection;
    std::string header;  // the number's bytes: still to be sent, or received so far
    bool finished = false, shut = false;
    ae::TimerId timer = 0;
    Stream* out = nullptr;
    Stream* in = nullptr;
    conn::View looked = {};  // a view peeked at and not consumed, which must not change
    std::string seen = {};
  };
  /// Bytes that are sent in place, until they are released.
  struct Parcel {
    Walk& walk;
    std::string bytes;
    std::unique_ptr<conn::Memory> memory;  // registered memory around `bytes`
    static void released(void* context, std::error_code) noexcept;
  };
  enum class Over { kNo, kYes };

  void choose_devices(std::vector<const Profile*> profiles);
  void choose_network();
  void choose_options();
  void choose_disturbances();
  // For WalkPlan::resume (walk_resume.cc):
  void choose_resume_options();
  void choose_path_faults();
  void fail_something();
  void watch_path(End& end);
  void bring_back(Device*& device);
  void path_away(Nanoseconds span);
  void settle();
  void explain(const End& end);
  void listen();
  void connect_one();
  void adopt(conn::ConnectionPtr connection, std::uint64_t number, bool client);
  void know(End& end, std::uint64_t number);
  void act(std::uint64_t id);
  void nest();
  void set_handlers(End& end);
  void on_readable(std::uint64_t id);
  void on_writable(std::uint64_t id);
  Over read_some(End& end);
  Over write_some(End& end);
  ssize_t write_bytes(End& end, std::size_t size);
  ssize_t commit_bytes(End& end, std::size_t size);
  ssize_t send_bytes(End& end, std::size_t size);
  ssize_t read_bytes(End& end, std::size_t size);
  ssize_t peek_bytes(End& end, std::size_t size);
  void look_again(End& end);
  void take(End& end, const char* bytes, std::size_t size);
  void end_of_stream(End& end);
  void drop(End& end);
  void abort(End& end);
  std::unique_ptr<End> take_out(End& end);
  void finish(End& end);
  void stop_faults();
  void make_loop();
  void turn();
  void run_loop(Nanoseconds span);
  template <class Condition>
  void run_until(Condition condition, Nanoseconds span);
  void complain(std::string what) {
    if (report_.complaint.empty()) report_.complaint = std::move(what);
  }
  void check_what_is_left();

  bool chance(double p) { return std::uniform_real_distribution<>()(random_) < p; }
  std::uint64_t pick(std::uint64_t least, std::uint64_t most) {
    return std::uniform_int_distribution<std::uint64_t>(least, most)(random_);
  }
  std::size_t some_size() {  // usually small, sometimes large
    return chance(0.7) ? pick(1, 300) : chance(0.8) ? pick(300, 20000) : pick(20000, 400000);
  }

  Choices random_;
  World world_;
  std::string transport_;
  std::uint64_t crowd_;  // number of simultaneous connections if that was requested
  const bool resumes_;   // WalkPlan::resume
  bool is_rdma_, is_socket_, calm_;
  WalkReport report_;
  Device* near_ = nullptr;
  Device* far_ = nullptr;
  std::string options_, client_options_;
  std::optional<testing::TempFolder> folder_;  // of a Unix socket
  std::unique_ptr<conn::Registry> registry_;
  conn::ConnectionType* type_ = nullptr;
  LoopPlan loop_plan_;
  std::unique_ptr<ae::EventLoop> loop_;
  // With a host: it polls `host_` and acts outside of the loop's handlers.
  ae::EpollLoop* hosted_ = nullptr;
  int host_ = -1;
  bool host_prepares_ = false, nested_ = false;
  std::vector<std::uint64_t> to_act_;
  conn::ListenerPtr listener_;
  conn::Endpoint address_;
  // By Connection::id(), so that a handler that runs after its connection's end is detected.
  std::map<std::uint64_t, std::unique_ptr<End>> ends_;
  std::map<std::uint64_t, std::array<Stream, 2>> streams_;
  std::map<void*, std::unique_ptr<Parcel>> parcels_;
  std::uint64_t numbers_ = 0, to_connect_ = 0;
  bool finishing_ = false;
  // WalkPlan::resume: what has happened to paths, and whether everything is as it was.
  Nanoseconds span_{}, resume_time_{}, away_since_{}, away_until_{}, longest_away_{};
  std::uint64_t removals_ = 0, stops_ = 0;
  bool settled_ = false, closes_lost_ = false;
  std::array<char, 1 << 16> buffer_{};
};

}  // namespace simulation
