// SPDX-License-Identifier: BSD-3-Clause
#include "ae/core/source_list.h"

#include <algorithm>

namespace ae { inline namespace AECONN_ABI {

Source::~Source() {
  if (list_ != nullptr) list_->remove(*this);
}

void Source::set_rests(bool rests) noexcept {
  rests_ = rests;
  if (list_ != nullptr) list_->changed();
}

SourceList::~SourceList() {
  for (Source* const source : sources_)
    if (source != nullptr) source->list_ = nullptr;
}

void SourceList::add(Source& source) {
  if (std::find(sources_.begin(), sources_.end(), &source) != sources_.end()) return;
  sources_.push_back(&source);
  source.list_ = this;
  changed();
}

void SourceList::remove(Source& source) noexcept {
  const auto at = std::find(sources_.begin(), sources_.end(), &source);
  if (at == sources_.end()) return;
  *at = nullptr;
  source.list_ = nullptr;
  has_removed_ = true;
  if (visits_ == 0)
    drop_removed();
  else
    changed();
}

void SourceList::drop_removed() noexcept {
  std::erase(sources_, nullptr);
  changed();
  has_removed_ = false;
}

// Counts the sources that the loop must visit. Called after sources were added or removed, or have
// begun or ended to rest (Source::rest()).
void SourceList::changed() noexcept {
  const std::size_t before = awake_;
  count_ = sources_.size();
  awake_ = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    if (sources_[i] == nullptr || sources_[i]->rests_) continue;
    only_at_ = i;
    ++awake_;
  }
  if (awake_ != 1) only_at_ = kNone;
  only_ = awake_ == 1 ? sources_[only_at_] : nullptr;
  if (awake_ > before) core_.stir();
}

// Whether no resting source has pending work, as Source::rest() requires.
bool SourceList::none_rests_wrongly() const noexcept {
  return std::none_of(sources_.begin(), sources_.end(), [](const Source* source) {
    return source != nullptr && source->rests_ && source->has_pending();
  });
}

}}  // namespace ae
