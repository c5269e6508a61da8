// SPDX-License-Identifier: BSD-3-Clause
// The lanes: what a client connection does in each mode.

#include <fmt/format.h>

#include <algorithm>

#include "fields.h"
#include "lane.h"

namespace perf {
namespace {

/// Returns what is wrong with a received data message; "" if nothing is.
std::string compare(const Message& message, Kind kind, std::uint64_t sequence, std::size_t size) {
  if (message.kind != kind)
    return fmt::format("{} instead of {}", to_string(message.kind), to_string(kind));
  if (message.sequence != sequence)
    return fmt::format("{} {} instead of {}", to_string(kind), message.sequence, sequence);
  if (message.size != size)
    return fmt::format("{} {} has {} bytes, not {}", to_string(kind), sequence, message.size, size);
  return {};
}

/// Keeps `depth` requests in flight.
class RequestLane : public Lane {
 public:
  RequestLane(Load& load, std::size_t number)
      : Lane(load, number),
        since_(load.plan().depth),
        next_(first()),
        stamped_(next_),
        counted_(next_) {}

  void start() override {
    if (!refill()) return;
    pump();
  }

 protected:
  std::string take(const Message& message) override {
    const Plan& plan = load_.plan();
    if (next_ == stamped_) return fmt::format("unexpected {}", to_string(message.kind));
    std::string wrong = compare(message, plan.echo ? Kind::kRequest : Kind::kReply, next_,
                                plan.echo ? plan.size : plan.reply_size);
    next_ += wrong.empty() ? 1 : 0;
    return wrong;
  }

  void taken() override {
    if (counted_ == next_) return;
    const std::uint64_t now = clock_ns();
    const Plan& plan = load_.plan();
    for (; counted_ != next_; ++counted_)
      load_.answered(since_[counted_ % since_.size()], now, plan.size + plan.reply_size);
    pump();
  }

  bool refill() override {
    const std::uint64_t under_way = outbox_.end() - next_;
    const std::uint64_t more = load_.begin(since_.size() - under_way);
    outbox_.add_data(more);
    set_busy(under_way + more != 0);
    return !outbox_.empty();
  }

  void handed_over(std::uint64_t now) override {
    for (; stamped_ != outbox_.begun(); ++stamped_) since_[stamped_ % since_.size()] = now;
  }

 private:
  void set_busy(bool busy) {
    if (busy == busy_) return;
    busy_ = busy;
    busy ? load_.lane_busy() : load_.lane_idle();
  }

  std::vector<std::uint64_t> since_;  // when each request in flight was passed to the transport
  std::uint64_t next_;                // the reply expected next
  std::uint64_t stamped_;             // requests before this one have their time in since_
  std::uint64_t counted_;             // requests before this one are included in the figures
  bool busy_ = false;
};

/// Sends without waiting and marks the end of the stream; the answer reports what was received.
class StreamLane final : public Lane {
 public:
  StreamLane(Load& load, std::size_t number) : Lane(load, number), due_(first()) {}

  void start() override {
    running_ = true;
    ended_ = false;
    load_.lane_busy();
    pump();
  }

 protected:
  std::string take(const Message& message) override {
    if (message.kind == Kind::kAck) return take_ack(message);
    std::string wrong = compare(message, Kind::kData, due_, load_.plan().reply_size);
    if (!wrong.empty()) return wrong;
    if (!load_.plan().both_ways || !running_) return "unexpected data";
    ++due_;
    ++got_;
    return {};
  }

  void taken() override {}

  bool refill() override {
    if (!running_) return !outbox_.empty();
    const Plan& plan = load_.plan();
    if (load_.cut_short()) outbox_.end_data();
    const std::uint64_t some = std::max<std::uint64_t>(Batch::kMost / plan.size, 1);
    const std::uint64_t queued = outbox_.end() - outbox_.sent();
    if (!ended_ && queued < some) outbox_.add_data(load_.begin(some - queued));
    if (!ended_ && load_.ending() && outbox_.sent() == outbox_.end()) {
      ended_ = true;
      outbox_.add_text(Kind::kEnd, 0, load_.cut_short() ? "" : "as-many=yes\n");
    }
    return !outbox_.empty();
  }

  void handed_over(std::uint64_t) override {}

 private:
  std::string take_ack(const Message& message) {
    const Plan& plan = load_.plan();
    const Fields ack = Fields::parse(message.text);
    const std::uint64_t sent = outbox_.sent() - sent_before_;
    if (!running_ || !ended_) return "unexpected acknowledgement";
    if (ack.number("messages") != sent || ack.number("bytes") != sent * plan.size) {
      return fmt::format(
          "{} messages of {} bytes were sent, the server received {} with {} bytes in total", sent,
          plan.size, ack.text("messages"), ack.text("bytes"));
    }
    if (ack.number("sent") != got_)
      return fmt::format("the server sent {} messages, {} were received", ack.text("sent"), got_);
    load_.delivered(sent + got_, sent * plan.size + got_ * plan.reply_size);
    sent_before_ = outbox_.sent();
    got_ = 0;
    running_ = false;
    load_.lane_idle();
    return {};
  }

  bool running_ = false, ended_ = false;
  std::uint64_t sent_before_ = first();  // where this run began
  std::uint64_t due_, got_ = 0;          // position in the server's stream
};

/// Repeatedly connects, sends one request and closes.
class ConnectLane final : public Lane {
 public:
  using Lane::Lane;

  void start() override {
    load_.lane_busy();
    again();
  }

 protected:
  bool hello_waits() const override { return false; }
  void ready() override {
    outbox_.add_data(1);
    pump();
  }
  std::string take(const Message& message) override {
    const Plan& plan = load_.plan();
    if (answered_) return fmt::format("unexpected {}", to_string(message.kind));
    std::string wrong = compare(message, plan.echo ? Kind::kRequest : Kind::kReply, first_,
                                plan.echo ? plan.size : plan.reply_size);
    answered_ = wrong.empty();
    return wrong;
  }
  void taken() override {
    if (!answered_) return;
    load_.answered(since_, clock_ns(), load_.plan().size + load_.plan().reply_size);
    again();
  }
  bool refill() override { return !outbox_.empty(); }
  void handed_over(std::uint64_t) override {}

 private:
  void again() {
    first_ = (first_ + 1) & kSequenceMask;
    answered_ = false;
    reset();
    if (load_.begin(1) == 0) return load_.lane_idle();
    since_ = clock_ns();
    open();
  }

  std::uint64_t since_ = 0;
  bool answered_ = false;
};

/// A connection that only stays open.
class IdleLane final : public Lane {
 public:
  using Lane::Lane;
  void start() override {}

 protected:
  std::string take(const Message& message) override {
    return fmt::format("unexpected {}", to_string(message.kind));
  }
  void taken() override {}
  bool refill() override { return !outbox_.empty(); }
  void handed_over(std::uint64_t) override {}
};

}  // namespace

std::unique_ptr<Lane> Lane::create(Load& load, std::size_t number) {
  switch (load.plan().mode) {
    case Mode::kRequestResponse:
      return std::make_unique<RequestLane>(load, number);
    case Mode::kStream:
      return std::make_unique<StreamLane>(load, number);
    case Mode::kConnect:
      return std::make_unique<ConnectLane>(load, number);
    case Mode::kIdle:
      return std::make_unique<IdleLane>(load, number);
  }
  return nullptr;
}

}  // namespace perf
