// SPDX-License-Identifier: BSD-3-Clause
#include "load.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lane.h"

namespace perf {
namespace {

// More simultaneous handshakes only wait for each other and fill the server's backlog.
constexpr std::size_t kOpeningAtOnce = 64;

}  // namespace

Load::Load(ClientShared& shared, const Plan& plan, Part part)
    : shared_(shared), plan_(plan), part_(part) {
  shared_.payload.reserve(plan.size);
  lanes_.reserve(plan.connections);
  for (std::size_t i = 0; i < plan.connections; ++i)
    lanes_.push_back(Lane::create(*this, part.first + i));
}

Load::~Load() = default;

void Load::open() {
  begin_open([this] { shared_.loop.stop(); });
  wait();
}

void Load::run(std::uint64_t requests, ae::Duration time) {
  const auto count = requests != 0 ? std::optional(requests) : std::nullopt;
  begin_run(count, time, [this] { shared_.loop.stop(); });
  wait();
}

void Load::pass(ae::Duration time, const bool& over) {
  begin_pass([this] { shared_.loop.stop(); });
  time_over_ = shared_.loop.add_time_event(time, [this] {
    end_phase();
    return ae::kNoMore;
  });
  while (over_ && !over) shared_.loop.run();
  over_ = nullptr;
  end_phase();
  if (!failure_.empty()) throw Failed(failure_);
}

void Load::wait() {
  while (over_) shared_.loop.run();
  if (!failure_.empty()) throw Failed(failure_);
}

void Load::with_sample(const std::function<void(const conn::Connection&)>& use) {
  if (!lanes_.empty() && lanes_.front()->connection() != nullptr)
    use(*lanes_.front()->connection());
}

void Load::store(Result& result) const {
  result.requests = requests_;
  result.bytes = bytes_;
  result.elapsed = elapsed();
  result.latency = latency_;
  result.client_loops = {share()};
}

LoopShare Load::share() const noexcept {
  return {plan_.mode == Mode::kConnect ? requests_ : opened_, requests_};
}

void Load::begin_open(Over over) {
  if (!begin_phase("no connection was established", std::move(over))) return;
  if (lanes_.empty()) return end_phase();
  open_more();
}

void Load::open_more() {
  const std::size_t at_once = std::max<std::size_t>(kOpeningAtOnce / part_.of, 1);
  while (opening_ < lanes_.size() && opening_ - opened_ < at_once) lanes_[opening_++]->open();
}

void Load::lane_opened() {
  ++opened_;
  moved();
  if (opened_ == lanes_.size()) return end_phase();
  open_more();
}

void Load::begin_run(std::optional<std::uint64_t> requests, ae::Duration time, Over over) {
  requests_ = bytes_ = begun_ = 0;
  cut_short_ = false;
  latency_.clear();
  left_ = requests.value_or(UINT64_MAX);
  ended_at_ = began_at_ = clock_ns();
  if (!begin_phase("nothing arrived", std::move(over))) return;
  if (left_ == 0 || lanes_.empty()) return end_phase();
  if (!requests) {
    time_over_ = shared_.loop.add_time_event(time, [this] {
      left_ = 0;
      cut_short_ = true;
      if (busy_ == 0) end_phase();
      return ae::kNoMore;
    });
  }
  for (const auto& lane : lanes_) lane->start();
}

void Load::begin_pass(Over over) { begin_phase(nullptr, std::move(over)); }

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
  end_phase();
}

void Load::fail(std::size_t lane, const std::string& reason) {
  give_up(fmt::format("connection {}: {}", lane, reason));
}

void Load::give_up(const std::string& reason) {
  if (failure_.empty()) failure_ = reason;
  end_phase();
}

/// Returns false if the phase ended at once because an earlier one has failed.
bool Load::begin_phase(const char* waiting, Over over) {
  over_ = std::move(over);
  if (!failure_.empty()) return end_phase(), false;
  if (waiting == nullptr) return true;
  const ae::Duration interval = std::min<ae::Duration>(std::chrono::seconds(1), plan_.patience);
  patience_ = shared_.loop.add_time_event(
      interval,
      [this, waiting, interval, seen = progress_,
       since = shared_.loop.now()]() mutable -> ae::Duration {
        if (progress_ != seen) {
          seen = progress_;
          since = shared_.loop.now();
        } else if (shared_.loop.now() - since >= plan_.patience) {
          give_up(
              fmt::format("{} for {:g} s; {} of {} connections are open, {} requests were answered",
                          waiting, std::chrono::duration<double>(plan_.patience).count(), opened_,
                          lanes_.size(), requests_));
        }
        return interval;
      });
  return true;
}

void Load::end_phase() {
  for (ae::TimerId* const timer : {&time_over_, &patience_}) {
    if (*timer != 0) shared_.loop.remove_time_event(std::exchange(*timer, 0));
  }
  if (over_) std::exchange(over_, nullptr)();
}

}  // namespace perf
