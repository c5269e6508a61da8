// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One load on several loops, each on its own thread. All loops begin a phase together; the
// measuring thread waits for them on a loop of its own that has no other use. During a phase the
// loops share nothing; their counts are summed between phases.

#include <memory>
#include <string>
#include <vector>

#include "ae/loop_group.h"
#include "ae/loop_names.h"
#include "load.h"

namespace perf {

/// The loops of a client, and the state shared by the connections of each, across all measurements.
class ClientLoops {
 public:
  /// `home` is the loop of the measuring thread. It and `registry` must outlive this. Throws like
  /// ae::LoopGroup.
  ClientLoops(ae::EventLoop& home, const conn::Registry& registry, std::size_t count,
              const ae::Spin& spin = {}, const ae::LoopMaker& make = {});

  ae::LoopGroup& group() noexcept { return group_; }
  std::size_t size() const noexcept { return shared_.size(); }
  ae::EventLoop& home() noexcept { return home_; }
  ClientShared& shared(std::size_t index) noexcept { return *shared_[index]; }
  /// Rethrows an exception that escaped a handler on one of the loops, if any; all loops have then
  /// ended.
  void check();
  /// Whether check() would throw; if so, home's stop() was called for that reason.
  bool ended() const noexcept { return *ended_; }

 private:
  ae::EventLoop& home_;
  const std::shared_ptr<bool> ended_;
  ae::LoopGroup group_;
  std::vector<std::unique_ptr<ClientShared>> shared_;
};

class LoadOnLoops final : public Phases {
 public:
  /// Distributes the connections evenly. `loops` is borrowed and must outlive this.
  LoadOnLoops(ClientLoops& loops, const Plan& plan);
  ~LoadOnLoops() override;

  void open() override;
  /// `requests` are divided in proportion to the connections of each loop.
  void run(std::uint64_t requests, ae::Duration time) override;
  void pass(ae::Duration time, const bool& over) override;
  const Plan& plan() const noexcept override { return plan_; }
  void store(Result& result) const override;
  void with_sample(const std::function<void(const conn::Connection&)>& use) override;
  Standing standing() override;

 private:
  using Begin = std::function<void(Load&, const Load::Part&, Load::Over)>;
  void phase(const Begin& begin);
  void begin_on_all(const Begin& begin);
  void on_all(const std::function<void(Load&)>& fn);
  std::function<void(const Load&)> when_over();
  void ended(const std::string& failure);
  void wait();

  ClientLoops& loops_;
  const Plan plan_;
  std::vector<Load::Part> parts_;
  // each is used only on its loop's thread while that runs
  std::vector<std::unique_ptr<Load>> loads_;
  std::size_t running_ = 0;  // number of loops whose phase has not ended
  std::string failure_;
  const std::shared_ptr<std::vector<Standing>> standing_;
};

}  // namespace perf
