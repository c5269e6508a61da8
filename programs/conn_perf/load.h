// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A set of connections under one load, and its phases: open, run (first as warm-up, then measured),
// close.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conn/registry.h"
#include "from_place.h"
#include "outbox.h"
#include "plan.h"

namespace perf {

class Lane;

/// State shared by the client's connections, across all measurements.
struct ClientShared {
  ae::EventLoop& loop;
  const conn::Registry& registry;
  Payload payload;
  Batch batch;
  FromPlace from_place;
  std::vector<char> room = std::vector<char>(256 << 10);  ///< buffer for one read()

  ClientShared(ae::EventLoop& on, const conn::Registry& transports)
      : loop(on), registry(transports) {}
};

/// Monotonic clock in nanoseconds.
inline std::uint64_t clock_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

/// A load as the measuring thread uses it, on one loop or several: each call waits for the end of
/// its phase.
class Phases {
 public:
  Phases() = default;
  Phases(const Phases&) = delete;
  Phases& operator=(const Phases&) = delete;
  virtual ~Phases() = default;

  // Each of these throws Failed.
  /// Opens the plan's connections, a limited number at a time. Not for Mode::kConnect, which opens
  /// its own.
  virtual void open() = 0;
  /// Sends `requests`, or for `time` if `requests` is 0, then waits for requests in flight.
  virtual void run(std::uint64_t requests, ae::Duration time) = 0;
  /// Waits for `time`, or until `over`; fails if a connection breaks meanwhile.
  virtual void pass(ae::Duration time, const bool& over) = 0;

  virtual const Plan& plan() const noexcept = 0;
  /// Stores requests, bytes, time, latency and each loop's share of the last run().
  virtual void store(Result& result) const = 0;
  /// Calls `use` with one connection, on the connection's thread; does nothing before open().
  virtual void with_sample(const std::function<void(const conn::Connection&)>& use) = 0;

  struct Standing {
    std::size_t opened = 0;   ///< connections opened so far
    std::uint64_t begun = 0;  ///< requests begun so far
  };
  /// Progress for display; the numbers of other loops may be slightly outdated.
  virtual Standing standing() = 0;
};

/// The connections of one loop: all connections of the plan, or this loop's part of them.
class Load final : public Phases {
 public:
  struct Part {
    std::size_t first = 0;  ///< number of its first connection; the plan says how many
    std::size_t of = 1;     ///< number of parts
  };
  Load(ClientShared& shared, const Plan& plan) : Load(shared, plan, Part()) {}
  Load(ClientShared& shared, const Plan& plan, Part part);
  ~Load() override;

  void open() override;
  void run(std::uint64_t requests, ae::Duration time) override;
  void pass(ae::Duration time, const bool& over) override;
  void store(Result& result) const override;
  void with_sample(const std::function<void(const conn::Connection&)>& use) override;
  Standing standing() override { return {opened_, begun_}; }

  /// The same phases for a loop that the caller runs: each ends with a call of `over`, from a
  /// handler or immediately. A phase may begin once the previous one has ended.
  using Over = std::function<void()>;
  void begin_open(Over over);
  /// Runs `requests` (may be 0); if absent, runs for `time`.
  void begin_run(std::optional<std::uint64_t> requests, ae::Duration time, Over over);
  void begin_pass(Over over);  ///< lasts until end_phase() or a failure
  /// Ends the current phase, if any.
  void end_phase();
  /// Why the last phase failed; empty if it did not.
  const std::string& failure() const noexcept { return failure_; }
  /// Ends the measurement; the first reason is kept.
  void give_up(const std::string& reason);

  /// Results of the last run().
  std::uint64_t requests() const noexcept { return requests_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  ae::Duration elapsed() const noexcept { return ae::Duration(ended_at_ - began_at_); }
  std::uint64_t began_at() const noexcept { return began_at_; }  ///< by clock_ns()
  std::uint64_t ended_at() const noexcept { return ended_at_; }
  Histogram& latency() noexcept { return latency_; }
  LoopShare share() const noexcept;

  // Interface for the lanes.
  const Plan& plan() const noexcept override { return plan_; }
  ClientShared& shared() noexcept { return shared_; }
  /// Returns how many of up to `most` further requests may begin and counts them as in flight.
  std::uint64_t begin(std::uint64_t most) noexcept;
  bool ending() const noexcept { return left_ == 0; }
  /// Whether the time has elapsed, so that requests not yet begun are not sent.
  bool cut_short() const noexcept { return cut_short_; }
  /// Called when a request that was sent at the time `since` is answered.
  void answered(std::uint64_t since, std::uint64_t now, std::uint64_t bytes) noexcept;
  /// Called when messages of a stream were received.
  void delivered(std::uint64_t messages, std::uint64_t bytes) noexcept;
  /// Called when a lane has become busy, or has nothing in flight any more.
  void lane_busy() noexcept { ++busy_; }
  void lane_idle();
  void lane_opened();
  /// Called when bytes were sent or received: there is progress.
  void moved() noexcept { ++progress_; }
  /// Ends the measurement as give_up() does; the reason names the connection.
  void fail(std::size_t lane, const std::string& reason);

 private:
  void open_more();
  bool begin_phase(const char* waiting, Over over);
  /// Runs the loop until the phase ends.
  void wait();

  ClientShared& shared_;
  Plan plan_;
  const Part part_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::size_t opening_ = 0, opened_ = 0, busy_ = 0;
  std::uint64_t left_ = 0, begun_ = 0, requests_ = 0, bytes_ = 0;
  std::uint64_t progress_ = 0;
  std::uint64_t began_at_ = 0, ended_at_ = 0;
  bool cut_short_ = false;
  Histogram latency_;
  Over over_;                                 // called when the current phase ends
  ae::TimerId time_over_ = 0, patience_ = 0;  // timers of the current phase; 0: not set
  std::string failure_;
};

}  // namespace perf
