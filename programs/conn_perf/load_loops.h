// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One load on several loops, each on a thread of its own: the same phases, begun on all and waited
// for on the thread that measures, whose own loop serves nothing but that. While a phase lasts the
// loops share nothing; what they counted is added up between the phases.

#include <memory>
#include <string>
#include <vector>

#include "ae/loop_group.h"
#include "ae/loop_names.h"
#include "load.h"

namespace perf {

/// The loops of a client, and what the connections of each share, over all measurements.
class ClientLoops {
 public:
  /// `home` is the loop of the thread that measures. It and `registry` outlive this. Throws as
  /// ae::LoopGroup.
  ClientLoops(ae::EventLoop& home, const conn::Registry& registry, std::size_t count,
              const ae::Spin& spin = {}, const ae::LoopMaker& make = {});

  ae::LoopGroup& group() noexcept { return group_; }
  std::size_t size() const noexcept { return shared_.size(); }
  ae::EventLoop& home() noexcept { return home_; }
  ClientShared& shared(std::size_t index) noexcept { return *shared_[index]; }
  /// Throws what a handler threw that nobody took: then all loops have ended.
  void check();
  /// check() would throw: home's stop() was called for it.
  bool ended() const noexcept { return *ended_; }

 private:
  ae::EventLoop& home_;
  const std::shared_ptr<bool> ended_;
  ae::LoopGroup group_;
  std::vector<std::unique_ptr<ClientShared>> shared_;
};

class LoadOnLoops final : public Phases {
 public:
  /// Divides the connections evenly. Borrows `loops`, which outlive it.
  LoadOnLoops(ClientLoops& loops, const Plan& plan);
  ~LoadOnLoops() override;

  void open() override;
  /// Of `requests` each loop gets its connections' part.
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
  std::vector<std::unique_ptr<Load>> loads_;  // each its loop's thread's, while that runs
  std::size_t running_ = 0;                   // loops whose phase is not over
  std::string failure_;
  const std::shared_ptr<std::vector<Standing>> standing_;
};

}  // namespace perf
