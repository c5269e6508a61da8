// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/neighbour.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "tests/support/testing.h"

namespace testing {

namespace {
constexpr ae::Duration kPause = std::chrono::milliseconds(2);
}

Neighbour::Neighbour(ae::EventLoop& loop, conn::Connection& connection)
    : loop_(loop), connection_(connection) {
  connection_.set_read_handler([this](conn::Connection&) { on_readable(); });
  ask();
}

Neighbour::~Neighbour() {
  connection_.set_read_handler(nullptr);
  if (pause_ != 0) loop_.remove_time_event(pause_);
}

void Neighbour::ask() {
  constexpr std::size_t kSize = 100;
  question_.clear();
  for (const Pattern pattern(round_trips); question_.size() < kSize;)
    question_ += pattern.at(question_.size());
  question_.resize(kSize);
  answer_.clear();
  asked_at_ = std::chrono::steady_clock::now();
  if (connection_.write(question_.data(), kSize) != static_cast<ssize_t>(kSize))
    trouble = "its request was not taken: " + connection_.last_error();
}

void Neighbour::on_readable() {
  char buffer[4096];
  const ssize_t n = connection_.read(buffer, sizeof buffer);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) {
    trouble = n == 0 ? "its connection ended" : connection_.last_error();
    connection_.set_read_handler(nullptr);
    return;
  }
  answer_.append(buffer, static_cast<std::size_t>(n));
  if (answer_.size() < question_.size()) return;
  if (answer_ != question_) {
    trouble = "it got other bytes than it sent";
    return;
  }
  times.push_back(std::chrono::steady_clock::now() - asked_at_);
  ++round_trips;
  pause_ = loop_.add_time_event(kPause, [this] {
    pause_ = 0;
    ask();
    return ae::kNoMore;
  });
}

std::string Neighbour::take_figures() {
  std::vector<ae::Duration> sorted;
  sorted.swap(times);
  if (sorted.empty()) return "no round trips";
  std::sort(sorted.begin(), sorted.end());
  const auto at = [&](std::size_t percent) {
    const std::size_t index = std::min(sorted.size() * percent / 100, sorted.size() - 1);
    return std::chrono::duration<double, std::milli>(sorted[index]).count();
  };
  return fmt::format("p50 {:.2f} ms, p99 {:.2f} ms, most {:.2f} ms of {}", at(50), at(99), at(100),
                     sorted.size());
}

}  // namespace testing
