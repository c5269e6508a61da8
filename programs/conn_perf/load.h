// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A set of connections under one load, and the phases it goes through: open, run (first for the
// warm-up, then for the figures), close.

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

/// What the client's connections share, over all measurements.
struct ClientShared {
  ae::EventLoop& loop;
  const conn::Registry& registry;
  Payload payload;
  Batch batch;
  FromPlace from_place;
  std::vector<char> room = std::vector<char>(256 << 10);  ///< for what one read() gives

  ClientShared(ae::EventLoop& on, const conn::Registry& transports)
      : loop(on), registry(transports) {}
};

/// Nanoseconds of the monotonic clock.
inline std::uint64_t clock_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

/// A load as who measures sees it, on one loop or several: it waits for the end of each phase.
class Phases {
 public:
  Phases() = default;
  Phases(const Phases&) = delete;
  Phases& operator=(const Phases&) = delete;
  virtual ~Phases() = default;

  // Each throws Failed.
  /// Opens the plan's connections, some at a time. Not for Mode::kConnect, which opens its own.
  virtual void open() = 0;
  /// Sends `requests`, or for `time` if that is 0, and waits for what is still under way.
  virtual void run(std::uint64_t requests, ae::Duration time) = 0;
  /// Lets time pass, or until `over`: the connections have to stand all the while.
  virtual void pass(ae::Duration time, const bool& over) = 0;

  virtual const Plan& plan() const noexcept = 0;
  /// Requests, bytes, time, latency and each loop's share, of the last run().
  virtual void store(Result& result) const = 0;
  /// `use` gets a connection to ask for its facts, on its thread; nothing happens before open().
  virtual void with_sample(const std::function<void(const conn::Connection&)>& use) = 0;

  struct Standing {
    std::size_t opened = 0;   ///< connections
    std::uint64_t begun = 0;  ///< requests
  };
  /// How far it is, for people: other loops' part is a little old.
  virtual Standing standing() = 0;
};

/// The connections of one loop: all that the plan has, or the part of them that is this loop's.
class Load final : public Phases {
 public:
  struct Part {
    std::size_t first = 0;  ///< the number of its first connection; the plan says how many
    std::size_t of = 1;     ///< how many parts there are
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

  /// The same phases where the loop is run by somebody else: each ends with a call of `over`, from
  /// a handler or at once. A phase begins when the one before has ended.
  using Over = std::function<void()>;
  void begin_open(Over over);
  /// `requests`, which may be none; without a number for `time`.
  void begin_run(std::optional<std::uint64_t> requests, ae::Duration time, Over over);
  void begin_pass(Over over);  ///< until end_phase(), or a failure
  /// Ends the phase that is under way, if there is one.
  void end_phase();
  /// Why the last phase failed; empty if it did not.
  const std::string& failure() const noexcept { return failure_; }
  /// Ends the measurement; of several reasons the first counts.
  void give_up(const std::string& reason);

  /// Of the last run().
  std::uint64_t requests() const noexcept { return requests_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  ae::Duration elapsed() const noexcept { return ae::Duration(ended_at_ - began_at_); }
  std::uint64_t began_at() const noexcept { return began_at_; }  ///< as clock_ns()
  std::uint64_t ended_at() const noexcept { return ended_at_; }
  Histogram& latency() noexcept { return latency_; }
  LoopShare share() const noexcept;

  // For the lanes.
  const Plan& plan() const noexcept override { return plan_; }
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
  /// give_up(), and says which connection it was.
  void fail(std::size_t lane, const std::string& reason);

 private:
  void open_more();
  bool begin_phase(const char* waiting, Over over);
  /// Runs the loop until the phase is over.
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
  Over over_;                                 // of the phase that is under way
  ae::TimerId time_over_ = 0, patience_ = 0;  // of that phase
  std::string failure_;
};

}  // namespace perf
