// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "verbs_client.h"

namespace limits {
namespace {

constexpr std::size_t kDialingAtOnce = 32;

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}
double us(std::uint64_t ns) { return static_cast<double>(ns) / 1e3; }
double seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }

/// Whether `size` bytes continue a stream of repeated `text` at offset `at`.
bool continues(std::string_view text, std::uint64_t at, const std::byte* bytes, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    if (bytes[i] != static_cast<std::byte>(text[(at + i) % text.size()])) return false;
  }
  return true;
}

}  // namespace

// --- closed loop ---------------------------------------------------------------------------------

void LoopClient::measure() {
  dial_more();
  if (settings_.connect_rate) begun_ = now_ns();
  run();
  if (elapsed_ == 0) throw std::runtime_error("ended by a signal");
  std::printf(
      "{\"connections\": %zu, \"depth\": %zu, \"size\": %u, \"%s\": %llu, \"elapsed_s\": %.6f, "
      "\"%s_per_s\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, "
      "\"errors\": %llu}\n",
      settings_.connections, settings_.depth, settings_.size,
      settings_.connect_rate ? "connected" : "requests", static_cast<unsigned long long>(answered_),
      seconds(elapsed_), settings_.connect_rate ? "connections" : "requests",
      static_cast<double>(answered_) / seconds(elapsed_), us(latency_.percentile(50)),
      us(latency_.percentile(99)), us(latency_.max()), static_cast<unsigned long long>(errors_));
  if (errors_ > 0) throw std::runtime_error("echoed bytes differ");
}

void LoopClient::dial_more() {
  while (dialed_ < slots_.size() && dialed_ - opened_ < kDialingAtOnce) {
    Slot& slot = slots_[dialed_++];
    start(slot);
  }
}

void LoopClient::start(Slot& slot) {
  ++started_;
  slot.begun = now_ns();
  dial(slot);
}

void LoopClient::opened(Slot& slot) {
  if (!source_) {
    const std::size_t size = settings_.size;
    const std::size_t repeated = std::max<std::size_t>(size * settings_.depth, 64 * 1024);
    source_ = std::make_unique<Memory>(device(slot.link->id()->verbs).pd(),
                                       size + std::min<std::size_t>(repeated, 1 << 20), 0);
    for (std::size_t i = 0; i < source_->size(); ++i) {
      source_->data()[i] = static_cast<std::byte>(i % size * 31 + i % size / 256);
    }
  }
  ++opened_;
  dial_more();
  if (settings_.connect_rate) {
    issue(slot, 1);
  } else if (opened_ == slots_.size()) {
    begun_ = now_ns();
    for (Slot& each : slots_) {
      issue(each, settings_.depth);
      if (&each != &slot) send(each);
    }
  }
}

void LoopClient::issue(Slot& slot, std::size_t count) {
  if (settings_.requests - issued_ < count) count = settings_.requests - issued_;
  issued_ += count;
  const std::uint64_t now = settings_.connect_rate ? slot.begun : now_ns();
  for (std::size_t i = 0; i < count; ++i) {
    slot.sent_at[slot.issued++ % settings_.depth] = now;
  }
  slot.to_send += count * settings_.size;
}

void LoopClient::fill(Slot& slot) {
  while (slot.sent < slot.to_send) {
    const std::uint64_t at = slot.sent % settings_.size;
    std::uint64_t size = std::min(
        {slot.to_send - slot.sent, source_->size() - at, std::uint64_t{slot.link->room()}});
    if (settings_.separate) size = std::min(size, settings_.size - at);
    if (size == 0) return;
    slot.link->add_write(source_->data() + at, static_cast<std::uint32_t>(size), source_->lkey());
    slot.sent += size;
  }
}

void LoopClient::arrived(Slot& slot, const std::byte* bytes, std::uint32_t size) {
  bool right = source_ && slot.received + size <= slot.to_send;
  for (std::uint32_t done = 0; right && done < size;) {
    const std::uint64_t at = (slot.received + done) % settings_.size;
    const std::uint64_t piece = std::min<std::uint64_t>(size - done, source_->size() - at);
    right = std::memcmp(bytes + done, source_->data() + at, piece) == 0;
    done += static_cast<std::uint32_t>(piece);
  }
  if (!right) ++errors_;
  slot.received += size;
  const std::uint64_t now = now_ns();
  std::size_t count = 0;
  for (; slot.answered < std::min(slot.received / settings_.size, slot.issued); ++count) {
    latency_.record(now - slot.sent_at[slot.answered++ % settings_.depth]);
  }
  answered_ += count;
  if (settings_.connect_rate) {
    if (count > 0) slot.link->disconnect();
  } else if (answered_ == settings_.requests) {
    finish();
  } else {
    issue(slot, count);
  }
}

void LoopClient::closed(Slot& slot) {
  if (!settings_.connect_rate) throw std::runtime_error("the server closed a connection");
  if (++ended_ == settings_.requests) return finish();
  slot = Slot{};
  slot.sent_at.resize(settings_.depth);
  if (started_ < settings_.requests) start(slot);
}

void LoopClient::finish() {
  elapsed_ = now_ns() - begun_;
  stop();
}

// --- burst ---------------------------------------------------------------------------------------

BurstClient::BurstClient(const ClientSettings& settings)
    : Client(settings),
      expected_(settings.burst / settings.text.size() * settings.reply.size() +
                (settings.text == settings.reply ? settings.burst % settings.text.size() : 0)) {}

void BurstClient::measure() {
  dial(slots_[0]);
  run();
  if (elapsed_ == 0) throw std::runtime_error("ended by a signal");
  std::printf(
      "{\"messages\": %llu, \"reply_bytes\": %llu, \"elapsed_s\": %.6f, \"worst_gap_us\": %.1f, "
      "\"worst_silence_us\": %.1f, \"errors\": %llu}\n",
      static_cast<unsigned long long>(settings_.burst), static_cast<unsigned long long>(expected_),
      seconds(elapsed_), us(worst_gap_), us(worst_silence_),
      static_cast<unsigned long long>(errors_));
  if (errors_ > 0) throw std::runtime_error("replies are not as expected");
}

void BurstClient::opened(Slot& slot) {
  begun_ = last_reply_ = last_progress_ = now_ns();
  slot.to_send = settings_.burst;
}

void BurstClient::fill(Slot& slot) {
  if (begun_ == 0) return;
  const std::uint64_t now = now_ns();
  worst_silence_ = std::max(worst_silence_, now - last_progress_);
  last_progress_ = now;
  while (slot.sent < slot.to_send && slot.link->room() > 0) {
    const char& byte = settings_.text[slot.sent++ % settings_.text.size()];
    slot.link->add_write(reinterpret_cast<const std::byte*>(&byte), 1, 0);
  }
}

void BurstClient::arrived(Slot& slot, const std::byte* bytes, std::uint32_t size) {
  const std::uint64_t now = now_ns();
  worst_gap_ = std::max(worst_gap_, now - last_reply_);
  last_reply_ = now;
  if (!continues(settings_.reply, slot.received, bytes, size)) ++errors_;
  slot.received += size;
  if (slot.received > expected_) ++errors_;
  if (slot.received < expected_ || slot.sent < slot.to_send) return;
  elapsed_ = now - begun_;
  stop();
}

void BurstClient::closed(Slot&) { throw std::runtime_error("the server closed the connection"); }

}  // namespace limits
