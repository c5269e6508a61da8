// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/protocol/stream_sender.h"

#include <algorithm>
#include <cassert>

#include "conn/kit/probes.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

void StreamSender::begin_path(std::uint64_t written, const Proof& proof) noexcept {
  // The end of our stream must be announced again, after the bytes that are sent again: the peer
  // might not have received the message on the old network path.
  end_.begin_path();
  proof_ = proof;
  peer_windows_ = PeerWindows(written);
  earned_ = 0;
  stopped_ = mark_due_ = waited_ = false;
}

// --- how much data may be sent -------------------------------------------------------------------

std::uint32_t StreamSender::sendable(std::size_t staged, ae::TimePoint now,
                                     std::uint32_t planned) const noexcept {
  if (stopped_ || end_.aborted() || staged == 0) return 0;
  const std::uint32_t left = peer_windows_.left();
  if (left == 0) return 0;
  if (proof_.lacks_receives(now, planned)) {
    AECONN_PROBE(rnr, connection_, proof_.unproven() + planned, 0);
    return 0;
  }
  return static_cast<std::uint32_t>(std::min<std::size_t>(staged, left));
}

std::optional<ae::TimePoint> StreamSender::retry_at(std::size_t staged) const noexcept {
  if (stopped_ || end_.aborted() || staged == 0 || peer_windows_.left() == 0) return std::nullopt;
  return proof_.retry_at();
}

void StreamSender::on_write_posted(std::uint32_t length, ae::TimePoint now) noexcept {
  proof_.on_posted(now);
  waited_ = false;
  if (!peer_windows_.use(length) || length == 0) return;
  proof_.on_full();
  earned_ = static_cast<std::uint8_t>(std::min(earned_ + std::size_t{1}, kMostAnnounced));
  AECONN_PROBE(window_full, connection_, peer_windows_.left());
}

void StreamSender::on_staged_left() noexcept {
  if (peer_windows_.any() && peer_windows_.left() == 0 && peer_.said(Hello::kTakesAhead))
    waited_ = true;
}

Stall StreamSender::waits_for(ae::TimePoint now) const noexcept {
  if (stopped_ || end_.aborted() || !peer_windows_.any()) return Stall::kNone;
  if (peer_windows_.left() == 0) return Stall::kWindow;
  return proof_.lacks_receives(now, 0) ? Stall::kReceives : Stall::kNone;
}

// --- ending our stream ---------------------------------------------------------------------------

bool StreamSender::finish(bool leaves) noexcept {
  assert(peer_.tells_end());
  return !stopped_ && end_.finish(leaves, resumes_);
}

bool StreamSender::abort() noexcept {
  const bool tells = peer_.said(Hello::kHearsAborts);
  end_.abort(tells);
  return tells;
}

// --- control messages and offers of windows ------------------------------------------------------

void StreamSender::on_notice_posted(std::uint16_t select) noexcept {
  if (select == kWindowMark)
    mark_due_ = false;
  else
    end_.on_posted();
}

bool StreamSender::take_earned(Offer offer) noexcept {
  // An offer that replaces a window before the peer has seen it full (kMarked, or kNext while the
  // current window is not full) is not the successor of a window that we filled.
  const bool counts =
      offer == Offer::kAhead || (offer == Offer::kNext && peer_windows_.left() == 0);
  if (!counts || earned_ == 0) return false;
  --earned_;
  return true;
}

const char* StreamSender::on_offer(Offer offer, bool earned,
                                   const PeerWindows::Window& window) noexcept {
  switch (offer) {
    case Offer::kAhead:
      return peer_windows_.append(window);
    case Offer::kNext:
      // The peer offers a new window because its old one is full, so it has handled all messages up
      // to the one that filled the old window.
      if (earned) proof_.prove_full();
      peer_windows_.replace(window);
      return nullptr;
    case Offer::kMarked:
      mark_due_ = true;
      // The new window replaces windows that we have not filled. Their offers were already charged
      // to the peer's budget, so as many further offers of windows are not charged.
      const std::size_t replaced = peer_windows_.ahead() + (peer_windows_.left() != 0 ? 1 : 0);
      earned_ = static_cast<std::uint8_t>(std::min(earned_ + replaced, kMostAnnounced));
      peer_windows_.replace(window);
      // The peer replaces its windows because they are idle. It will hardly offer more of them
      // soon, so the memory for further windows is freed.
      peer_windows_.trim();
      return nullptr;
  }
  return nullptr;
}

void StreamSender::check() const {
#ifndef NDEBUG
  peer_windows_.check();
  proof_.check();
  assert(earned_ <= kMostAnnounced);
#endif
}

}}}  // namespace conn::rdma
