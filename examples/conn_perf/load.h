#pragma once
// A set of connections under one load, and the phases it goes through: open, run (first for the
// warm-up, then for the figures), close.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "conn/registry.h"
#include "outbox.h"
#include "plan.h"

namespace perf {

class Lane;

/// What the client's connections share, over all measurements.
struct ClientShared {
  ae::EventLoop& loop;
  const conn::Registry& registry;
  Payload payload;
  Batch batch;
  std::vector<char> room = std::vector<char>(256 << 10);  ///< for what one read() gives

  ClientShared(ae::EventLoop& on, const conn::Registry& transports)
      : loop(on), registry(transports) {}
};

/// Nanoseconds of the monotonic clock.
inline std::uint64_t clock_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

class Load {
 public:
  Load(ClientShared& shared, const Plan& plan);
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;
  ~Load();

  // Each throws Failed.
  /// Opens the plan's connections, some at a time. Not for Mode::kConnect, which opens its own.
  void open();
  /// Sends `requests`, or for `time` if that is 0, and waits for what is still under way.
  void run(std::uint64_t requests, ae::Duration time);
  /// Lets the loop run for `time`, or until `over`: the connections have to stand all the while.
  void pass(ae::Duration time, const bool& over);

  /// Of the last run().
  std::uint64_t requests() const noexcept { return requests_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  std::uint64_t begun() const noexcept { return begun_; }
  ae::Duration elapsed() const noexcept { return elapsed_; }
  Histogram& latency() noexcept { return latency_; }
  std::size_t opened() const noexcept { return opened_; }
  /// A connection to ask for its facts; null before open().
  const conn::Connection* sample() const noexcept;

  // For the lanes.
  const Plan& plan() const noexcept { return plan_; }
  ClientShared& shared() noexcept { return shared_; }
  /// How many of `most` more requests may begin; they then are under way.
  std::uint64_t begin(std::uint64_t most) noexcept;
  bool ending() const noexcept { return left_ == 0; }
  /// The time is over: what has not begun is not sent any more.
  bool cut_short() const noexcept { return cut_short_; }
  /// A request, sent at `since`, is answered.
  void answered(std::uint64_t since, std::uint64_t now, std::uint64_t bytes) noexcept;
  /// Messages of a stream arrived.
  void delivered(std::uint64_t messages, std::uint64_t bytes) noexcept;
  /// A lane began, or has nothing under way any more.
  void lane_busy() noexcept { ++busy_; }
  void lane_idle();
  void lane_opened();
  /// Something arrived or left.
  void moved() noexcept { ++progress_; }
  /// Ends the measurement; of several reasons the first counts.
  void fail(std::size_t lane, const std::string& reason);

 private:
  void open_more();
  void wait_for(const std::function<bool()>& done, const char* what);

  ClientShared& shared_;
  Plan plan_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::size_t opening_ = 0, opened_ = 0, busy_ = 0;
  std::uint64_t left_ = 0, begun_ = 0, requests_ = 0, bytes_ = 0;
  std::uint64_t progress_ = 0;
  std::uint64_t ended_at_ = 0;
  bool cut_short_ = false;
  ae::Duration elapsed_{};
  Histogram latency_;
  std::string failure_;
};

}  // namespace perf
