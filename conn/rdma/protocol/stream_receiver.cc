// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/protocol/stream_receiver.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "conn/rdma/protocol/flow_control.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// A window that filled within this time was too small.
constexpr ae::Duration kFastFill = std::chrono::milliseconds(5);
// A window for which there was no memory is asked for again after this time.
constexpr ae::Duration kTryAgain = std::chrono::seconds(1);

}  // namespace

Inbound::Inbound(const Config& config, const Peer& peer, ae::TimePoint now) noexcept
    : config_(config),
      peer_(peer),
      desired_(config.window),
      last_full_at_(now),
      last_data_at_(now) {
  assert(config.window != 0);
}

// More window memory is outstanding than needed, the windows are empty, and the peer marks where it
// leaves them.
bool Inbound::may_recall() const noexcept {
  return has_long_window() && !line_.leaving() && !line_.to_announce() && !has_unread() &&
         peer_.may_change && peer_.marks;
}

// Without the window that is being read.
std::uint32_t Inbound::most_wanted() const noexcept {
  if (!peer_.takes_ahead) return 1;
  // All unread bytes must be countable in 32 bits (leave_windows()).
  const std::uint32_t counted = 0xffffffffu / config_.max_window;
  return std::max(std::min(config_.max_windows, counted), 2u) - 1;
}

// --- memory comes and goes -----------------------------------------------------------------------

std::uint32_t Inbound::wanted_window() const noexcept {
  if (ended_ || window_failed_ || released_) return 0;
  if (recall_ && may_recall()) return line_.has_spare() ? 0 : desired_;
  // A spare window of another length, if there is one, is kept in case there is no memory.
  return wants_another() && line_.held() <= wanted_ ? desired_ : 0;
}

void Inbound::provide_window(const WindowBuffer& buffer) {
  assert(buffer.length == wanted_window());
  if (std::exchange(recall_, false) && may_recall()) line_.leave();
  line_.add(buffer);
}

bool Inbound::no_window(ae::TimePoint now) {
  window_failed_ = true;
  window_failed_until_ = now + kTryAgain;
  recall_ = false;
  if (line_.held() == 0) return false;
  offer_spares();
  return true;
}

WindowBuffer Inbound::take_discarded() noexcept {
  if (!line_.has_spare() || released_) {
    drop_spare_ = false;
    return {};
  }
  // Without an offer, the last window that could be offered is kept until there is a better one.
  const bool too_many = line_.held() > wanted_ + 1;
  const bool room = line_.held() <= wanted_;
  if (line_.outstanding() == 0 && (room || window_failed_)) return {};
  return line_.take_spare_but(drop_spare_ || too_many ? 0 : desired_);
}

void Inbound::leave_windows(std::byte* into) noexcept {
  const std::uint64_t unread = into != nullptr ? unread_bytes() : 0;
  if (unread != 0) line_.copy_unread(into);
  released_ = true;
  line_.become({into, static_cast<std::size_t>(unread)});
}

void Inbound::offer_spares() noexcept {
  if (ended_ || released_) return;
  while (wants_another() && line_.add_spare(desired_)) {
  }
  // A spare window of another length waits, because wanted_window() asks for its successor; it is
  // offered if there was no memory for that.
  if (window_failed_ && line_.outstanding() == 0 && !line_.leaving()) (void)line_.add_spare(0);
}

// --- the peer writes -----------------------------------------------------------------------------

const char* Inbound::on_data(std::uint32_t length, bool waited, ae::TimePoint now,
                             std::uint64_t& announced_by) {
  const WindowLine::Window* const current = line_.current();
  if (current == nullptr) return "the peer wrote into a window that was not offered";
  if (length > current->end - current->filled) return "the peer wrote past the end of the window";
  // A window announced before their number grew does not show whether that number is enough.
  if (waited && current->filled == 0 && current->announced_at >= more_since_ &&
      was_idle(length, now))
    on_peer_waited(now);
  last_data_at_ = now;
  announced_by = current->announced_by;
  if (!line_.fill(length, now)) return nullptr;
  ++window_turns_;
  last_length_ = current->buffer.length;
  last_rest_ = last_length_ - current->first;
  last_rest_took_ = now - current->first_at;
  if (!line_.leaving() && now - current->announced_at < kFastFill) grow();
  last_full_at_ = now;
  drop_spare_ = recall_ = false;
  reader_late_ = line_.outstanding() == 0 && !wants_another();
  offer_spares();
  return nullptr;
}

// The window that became full was too short.
void Inbound::grow() noexcept {
  if (!peer_.may_change) return;
  // At least twice as long; longer if the last burst filled longer ones.
  const std::uint64_t next = std::max<std::uint64_t>(2 * std::uint64_t{last_length_}, useful_);
  desired_ = std::max(
      desired_, static_cast<std::uint32_t>(std::min<std::uint64_t>(next, config_.max_window)));
  useful_ = std::max(useful_, last_length_);
}

const char* Inbound::on_mark() noexcept {
  if (line_.to_announce()) return "the peer says that it left a window, and was given no other";
  line_.left();
  ++window_turns_;
  offer_spares();
  return nullptr;
}

// Whether nothing was in flight, for more than a small part of the time that a window takes, before
// the first `length` bytes of a window came. A peer that posts far ahead of its device also waits
// for windows, but loses no time by it.
bool Inbound::was_idle(std::uint32_t length, ae::TimePoint now) const noexcept {
  if (last_rest_ == 0) return true;
  const double each = std::chrono::duration<double>(last_rest_took_).count() / last_rest_;
  const std::chrono::duration<double> since = now - last_full_at_;
  return since.count() > each * (length + last_length_ / 32.0);
}

// The peer had bytes and no window for them. Unless our reader was slow, longer windows would have
// been of use, or more of them where they have the maximum length.
void Inbound::on_peer_waited(ae::TimePoint now) noexcept {
  if (reader_late_ || window_failed_) return;
  if (last_length_ < config_.max_window) return grow();
  const std::uint32_t before = wanted_;
  wanted_ = std::min(wanted_ == 1 ? wanted_next_ : wanted_ + 1, most_wanted());
  if (wanted_ == before) return;
  more_since_ = now;
  offer_spares();
  ++window_turns_;
}

// --- reading -------------------------------------------------------------------------------------

std::size_t Inbound::read(std::byte* into, std::size_t size) {
  std::size_t done = 0;
  while (done < size && has_unread()) {
    const std::span<std::byte> unread = line_.unread();
    const std::size_t chunk = std::min(size - done, unread.size());
    if (into != nullptr) std::memcpy(into + done, unread.data(), chunk);
    done += chunk;
    if (!line_.consume(chunk)) continue;
    ++window_turns_;
    offer_spares();
  }
  return done;
}

// --- time ----------------------------------------------------------------------------------------

void Inbound::tick(ae::TimePoint now) noexcept {
  if (window_failed_ && now >= window_failed_until_) window_failed_ = false;  // try again
  // Quiet again: one window of the first length is enough.
  if (now - last_full_at_ >= flow::kWindowsQuiet) {
    if (peer_.may_change) desired_ = config_.window;
    // The next burst must show that it can use as many.
    if (wanted_ > 1) wanted_next_ = std::max(std::exchange(wanted_, 1u) - 1, 2u);
    drop_spare_ = line_.has_spare() && line_.outstanding() != 0;
    // A spare window that waited for a successor may have the right length now.
    if (line_.outstanding() == 0) offer_spares();
  }
  if (now >= std::max(last_full_at_, last_data_at_) + long_quiet()) recall_ = may_recall();
}

// Several unused windows are replaced sooner than one long window.
ae::Duration Inbound::long_quiet() const noexcept {
  return line_.outstanding() > 1 ? flow::kWindowsQuiet : flow::kLongWindowQuiet;
}

ae::TimePoint Inbound::next_tick() const noexcept {
  ae::TimePoint next = ae::TimePoint::max();
  if (window_failed_) next = window_failed_until_;
  if (desired_ != config_.window || wanted_ > 1 || (line_.has_spare() && line_.outstanding() != 0))
    next = std::min(next, last_full_at_ + flow::kWindowsQuiet);
  if (may_recall() && !recall_ && !window_failed_)
    next = std::min(next, std::max(last_full_at_, last_data_at_) + long_quiet());
  return next;
}

void Inbound::check() const {
#ifndef NDEBUG
  line_.check();
  assert(wanted_ >= 1 && (wanted_ == 1 || wanted_ <= most_wanted()));
  assert(line_.held() <= std::max(config_.max_windows, 2u) || released_);
  // Windows that could be offered must be offered, or the stream would stall for ever.
  if (!ended_ && !released_ && line_.outstanding() == 0 && line_.has_spare() && wants_another())
    assert(!line_.has_spare_of(desired_) && !window_failed_);
#endif
}

}}}  // namespace conn::rdma
