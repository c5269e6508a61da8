#include "load.h"

#include <fmt/format.h>

#include <algorithm>

#include "lane.h"

namespace perf {
namespace {

// More handshakes at once only wait for each other, and fill the server's backlog.
constexpr std::size_t kOpeningAtOnce = 64;

}  // namespace

Load::Load(ClientShared& shared, const Plan& plan) : shared_(shared), plan_(plan) {
  shared_.payload.reserve(plan.size);
  lanes_.reserve(plan.connections);
  for (std::size_t i = 0; i < plan.connections; ++i) lanes_.push_back(Lane::create(*this, i));
}

Load::~Load() = default;

const conn::Connection* Load::sample() const noexcept { return lanes_.front()->connection(); }

void Load::open() {
  open_more();
  wait_for([this] { return opened_ == lanes_.size(); }, "no connection came about");
}

void Load::open_more() {
  while (opening_ < lanes_.size() && opening_ - opened_ < kOpeningAtOnce)
    lanes_[opening_++]->open();
}

void Load::lane_opened() {
  ++opened_;
  moved();
  if (opened_ == lanes_.size()) return shared_.loop.stop();
  open_more();
}

void Load::run(std::uint64_t requests, ae::Duration time) {
  requests_ = bytes_ = begun_ = 0;
  cut_short_ = false;
  latency_.clear();
  left_ = requests != 0 ? requests : UINT64_MAX;
  const std::uint64_t began = clock_ns();
  ended_at_ = began;
  ae::TimerId timer = 0;
  if (requests == 0) {
    timer = shared_.loop.add_time_event(time, [this] {
      left_ = 0;
      cut_short_ = true;
      if (busy_ == 0) shared_.loop.stop();
      return ae::kNoMore;
    });
  }
  for (const auto& lane : lanes_) lane->start();
  wait_for([this] { return left_ == 0 && busy_ == 0; }, "nothing arrived");
  if (timer != 0) shared_.loop.remove_time_event(timer);
  elapsed_ = ae::Duration(ended_at_ - began);
}

void Load::pass(ae::Duration time, const bool& over) {
  bool passed = false;
  const ae::TimerId timer = shared_.loop.add_time_event(time, [&] {
    passed = true;
    shared_.loop.stop();
    return ae::kNoMore;
  });
  while (!passed && !over && failure_.empty()) shared_.loop.run();
  shared_.loop.remove_time_event(timer);
  if (!failure_.empty()) throw Failed(failure_);
}

std::uint64_t Load::begin(std::uint64_t most) noexcept {
  const std::uint64_t count = std::min(most, left_);
  left_ -= count;
  begun_ += count;
  return count;
}

void Load::answered(std::uint64_t since, std::uint64_t now, std::uint64_t bytes) noexcept {
  latency_.record(now - since);
  ++requests_;
  bytes_ += bytes;
}

void Load::delivered(std::uint64_t messages, std::uint64_t bytes) noexcept {
  requests_ += messages;
  bytes_ += bytes;
}

void Load::lane_idle() {
  --busy_;
  if (busy_ != 0 || left_ != 0) return;
  ended_at_ = clock_ns();
  shared_.loop.stop();
}

void Load::fail(std::size_t lane, const std::string& reason) {
  if (failure_.empty()) failure_ = fmt::format("connection {}: {}", lane, reason);
  shared_.loop.stop();
}

void Load::wait_for(const std::function<bool()>& done, const char* what) {
  std::uint64_t seen = progress_;
  ae::TimePoint since = shared_.loop.now();
  const ae::TimerId timer =
      shared_.loop.add_time_event(std::chrono::seconds(1), [&]() -> ae::Duration {
        if (progress_ != seen) {
          seen = progress_;
          since = shared_.loop.now();
        } else if (shared_.loop.now() - since >= plan_.patience && failure_.empty()) {
          failure_ = fmt::format(
              "{} for {} s; {} of {} connections stand, {} requests were answered", what,
              std::chrono::duration_cast<std::chrono::seconds>(plan_.patience).count(), opened_,
              lanes_.size(), requests_);
          shared_.loop.stop();
        }
        return std::chrono::seconds(1);
      });
  while (!done() && failure_.empty()) shared_.loop.run();
  shared_.loop.remove_time_event(timer);
  if (!failure_.empty()) throw Failed(failure_);
}

}  // namespace perf
