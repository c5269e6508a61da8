// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/protocol/stream_receiver.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {
// Time after which memory for a receive window is requested again, if there was none.
constexpr ae::Duration kTryAgain = std::chrono::seconds(1);

}  // namespace

StreamReceiver::StreamReceiver(const Config& config, const Peer& peer, ae::TimePoint now) noexcept
    : size_(config, peer, now) {}

// Returns true if the receive windows that the peer has could be replaced by a single short one:
// they are several, or longer than the initial length, all of them are empty, and the peer sends a
// mark when it changes to a new window before the old one is full.
bool StreamReceiver::may_recall() const noexcept {
  return has_long_window() && !line_.leaving() && line_.unannounced() == 0 && !has_unread() &&
         size_.peer().may_change && size_.peer().marks;
}

// --- adding and removing window memory -----------------------------------------------------------

std::uint32_t StreamReceiver::wanted_window() const noexcept {
  if (ended_ || window_failed_ || released_) return 0;
  if (recall_ && may_recall()) return line_.has_spare() ? 0 : size_.length();
  // Asks for a receive window of the current length even if there is a spare (unused) one of
  // another length. The spare one is kept in case there is no memory for the new one.
  return wants_another() && line_.held() <= size_.count() ? size_.length() : 0;
}

void StreamReceiver::provide_window(const WindowBuffer& buffer) {
  assert(buffer.length == wanted_window());
  const bool leaves = recall_ && may_recall();
  line_.add(buffer);
  recall_ = false;
  if (leaves) line_.leave_others();
}

bool StreamReceiver::no_window(ae::TimePoint now) {
  window_failed_ = true;
  window_failed_until_ = now + kTryAgain;
  recall_ = false;
  if (line_.held() == 0) return false;
  offer_spares();
  return true;
}

WindowBuffer StreamReceiver::take_discarded() noexcept {
  if (!line_.has_spare() || released_) {
    drop_spare_ = false;
    return {};
  }
  // While the peer has no receive window to write into, spare (unused) windows are kept unless
  // there are too many: one of them is offered if there is no memory for a window of the right
  // length.
  const bool too_many = line_.held() > size_.count() + 1;
  const bool room = line_.held() <= size_.count();
  if (line_.outstanding() == 0 && (room || window_failed_)) return {};
  return line_.take_spare_but(drop_spare_ || too_many ? 0 : size_.length());
}

void StreamReceiver::leave_windows(std::byte* into) noexcept {
  const std::uint64_t unread = into != nullptr ? unread_bytes() : 0;
  assert(unread <= size_.most_bytes());
  if (unread != 0) line_.windows().copy_unread(into);
  released_ = true;
  line_.become({into, static_cast<std::size_t>(unread)});
}

void StreamReceiver::drop_windows() noexcept {
  released_ = true;
  line_.keep_left_over();
}

void StreamReceiver::begin_again(const Peer& peer) noexcept {
  released_ = ended_ = recall_ = window_failed_ = drop_spare_ = false;
  size_.set_peer(peer);
  reader_late_ = !wants_another();
  ++window_changes_;
}

void StreamReceiver::offer_spares() noexcept {
  if (ended_ || released_) return;
  while (wants_another() && line_.add_spare(size_.length())) {
  }
  // Spare (unused) windows of another length are offered to the peer only if there was no memory
  // for one of the right length; otherwise wanted_window() asks for such memory.
  if (window_failed_ && line_.outstanding() == 0 && !line_.leaving()) (void)line_.add_spare(0);
}

// --- data that the peer writes -------------------------------------------------------------------

void StreamReceiver::on_peer_waited(const ReceiveWindowQueue::Window& window, std::uint32_t length,
                                    ae::TimePoint now) {
  if (reader_late_ || window_failed_ || !size_.on_peer_waited(length, window.announced_at, now))
    return;
  offer_spares();
  ++window_changes_;
}

void StreamReceiver::on_full(const ReceiveWindowQueue::Window& window, ae::TimePoint now) {
  ++window_changes_;
  size_.on_full(window, line_.leaving(), now);
  drop_spare_ = recall_ = false;
  reader_late_ = line_.outstanding() == 0 && !wants_another();
  offer_spares();
}

const char* StreamReceiver::on_mark() noexcept {
  if (line_.unannounced() != 0)
    return "the peer says that it left a window, and was given no other";
  line_.left();
  ++window_changes_;
  offer_spares();
  return nullptr;
}

// --- reading by the user -------------------------------------------------------------------------

std::size_t StreamReceiver::read(std::byte* into, std::size_t size) {
  std::size_t done = 0;
  while (done < size && has_unread()) {
    const std::span<std::byte> unread = line_.windows().unread();
    const std::size_t chunk = std::min(size - done, unread.size());
    if (into != nullptr) std::memcpy(into + done, unread.data(), chunk);
    done += chunk;
    const bool wanted = wants_another();
    if (!line_.consume(chunk) && wants_another() == wanted) continue;
    ++window_changes_;
    offer_spares();
  }
  return done;
}

// --- periodic checks -----------------------------------------------------------------------------

void StreamReceiver::tick(ae::TimePoint now) noexcept {
  // Lets wanted_window() ask again for a receive window for which there was no memory.
  if (window_failed_ && now >= window_failed_until_) window_failed_ = false;
  if (size_.tick(now)) {
    drop_spare_ = line_.has_spare() && line_.outstanding() != 0;
    // size_.tick() has reset the wanted length of windows, so a spare (unused) window may now have
    // the right length.
    if (line_.outstanding() == 0) offer_spares();
  }
  if (now >= size_.recall_at(line_.outstanding() > 1)) recall_ = may_recall();
}

ae::TimePoint StreamReceiver::next_tick() const noexcept {
  ae::TimePoint next = ae::TimePoint::max();
  if (window_failed_) next = window_failed_until_;
  if (size_.has_grown() || (line_.has_spare() && line_.outstanding() != 0))
    next = std::min(next, size_.quiet_at());
  if (may_recall() && !recall_ && !window_failed_)
    next = std::min(next, size_.recall_at(line_.outstanding() > 1));
  return next;
}

void StreamReceiver::check() const {
#ifndef NDEBUG
  line_.check();
  size_.check();
  assert(line_.held() <= size_.most_held() || released_);
  assert(unread_bytes() <= size_.most_bytes());
  // If the peer has no window to write into, every spare (unused) window that may be offered must
  // have been offered: otherwise the stream would stall for ever.
  if (!ended_ && !released_ && line_.outstanding() == 0 && line_.has_spare() && wants_another())
    assert(!line_.has_spare_of(size_.length()) && !window_failed_);
#endif
}

}}}  // namespace conn::rdma
