// SPDX-License-Identifier: BSD-3-Clause
#include "conn/shm/loop_state.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "conn/core/connection_set.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {
namespace {

// The loop looks at the memory of at most this many connections in one iteration, in turn.
constexpr std::size_t kLooks = 64;
// A busy loop, which does not sleep, keeps looking at the memory of all hot connections (those that
// it looks at itself) if they are at most kFew. If they are more, each one without changes by its
// peer in kMostIdle successive looks becomes cold: the peer has to wake the loop for it.
constexpr std::size_t kFew = 16;
constexpr unsigned kMostIdle = 16;

}  // namespace

LoopState& LoopState::of(const ConnectionType& type, ae::EventLoop& loop) {
  ConnectionSet::of(loop);  // created before the LoopState, so that it is destroyed later
  std::unique_ptr<ae::LoopLocal>& slot = loop.local(&type);
  if (!slot) slot = std::make_unique<LoopState>(type, loop);
  return static_cast<LoopState&>(*slot);
}

LoopState::LoopState(const ConnectionType& type, ae::EventLoop& loop) : type_(type), loop_(loop) {
  loop_.add_source(*this);
}

LoopState::~LoopState() {
  ConnectionSet& set = ConnectionSet::of(loop_);
  set.loop_ends();
  set.abandon(type_);
  loop_.remove_source(*this);
}

void LoopState::heat(HotItem& item) noexcept {
  item.idle_ = 0;
  if (item.place_ == HotItem::kCold) {
    item.place_ = hot_.size();
    hot_.push_back(&item);  // cannot throw: enter() has reserved the place
  } else if (!armed_) {
    return;
  }
  loop_.nudge();  // the loop may be about to sleep until a peer wakes it
}

void LoopState::wake() noexcept {
  if (!std::exchange(armed_, false)) return;
  for (HotItem* item : hot_) item->disarm();
}

void LoopState::cool(HotItem& item) noexcept {
  if (item.place_ == HotItem::kCold) return;
  hot_[item.place_] = hot_.back();
  hot_[item.place_]->place_ = item.place_;
  hot_.pop_back();
  item.place_ = HotItem::kCold;
}

/// Looks at the memory of up to kLooks hot connections, in turn. With `may_cool`, each whose peer
/// has changed nothing in kMostIdle successive looks becomes cold: the loop stops looking at it.
void LoopState::look_at_some(bool may_cool) noexcept {
  for (std::size_t looks = std::min(hot_.size(), kLooks); looks != 0 && !hot_.empty(); --looks) {
    if (next_ >= hot_.size()) next_ = 0;
    HotItem& item = *hot_[next_++];
    if (item.look_now()) {
      item.idle_ = 0;
    } else if (may_cool && ++item.idle_ >= kMostIdle && item.arm()) {
      cool(item);
    }
  }
}

std::size_t LoopState::process_pending() {
  ++iteration_;
  wake();
  if (!hot_.empty()) look_at_some(hot_.size() > kFew);
  return ready_.process_pending();
}

bool LoopState::has_pending_now() {
  look_at_some(false);
  return has_pending();
}

bool LoopState::arm() {
  bool quiet = true;
  armed_ = true;
  for (std::size_t i = hot_.size(); i-- != 0;) {
    HotItem& item = *hot_[i];  // if cool() moves the last item here, arm() was called for it before
    if (!item.arm())
      quiet = false;
    else if (++item.idle_ >= kMostIdle)
      cool(item);
  }
  return quiet && !has_pending();
}

const ae::Spin* LoopState::spin() const {
  return users_ == 0 || spin_.mode == ae::Spin::Mode::kNo ? nullptr : &spin_;
}

}}}  // namespace conn::shm
