// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The sources of one loop, which are visited in registration order. Any function of a source may
// add and remove sources, including itself.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace ae { inline namespace AECONN_ABI {

class SourceList {
 public:
  /// Adds a source. Does nothing if the source is already in the list.
  void add(Source& source) {
    if (std::find(sources_.begin(), sources_.end(), &source) == sources_.end()) {
      sources_.push_back(&source);
    }
  }

  /// Removes a source. The loop calls no function of `source` afterwards.
  void remove(Source& source) noexcept {
    const auto at = std::find(sources_.begin(), sources_.end(), &source);
    if (at == sources_.end()) return;
    if (visiting_ == 0) {
      sources_.erase(at);
    } else {
      *at = nullptr;
      has_removed_ = true;
    }
  }

  bool empty() const noexcept { return sources_.empty(); }

  bool has_pending() {
    return visit_until([](Source& source) { return source.has_pending(); });
  }
  bool has_pending_now() {
    return visit_until([](Source& source) { return source.has_pending_now(); });
  }
  std::size_t process_pending() {
    std::size_t done = 0;
    visit_until([&done](Source& source) {
      done += source.process_pending();
      return false;
    });
    return done;
  }
  void flush() {
    visit_until([](Source& source) {
      source.flush();
      return false;
    });
  }
  /// Arms the sources in their order. Returns false if one of them vetoes the sleep; the sources
  /// after it are then not armed.
  bool arm() {
    return !visit_until([](Source& source) { return !source.arm(); });
  }
  /// Whether any source in the list asks the loop to spin.
  bool has_spin() {
    return visit_until([](Source& source) { return source.spin() != nullptr; });
  }
  /// Combines the spinning that all sources ask for with `spin`. Returns false if no source asks
  /// the loop to spin.
  bool add_spin(Spin& spin) {
    bool asked = false;
    visit_until([&](Source& source) {
      if (const Spin* const more = source.spin()) {
        spin = Spin::both(spin, *more);
        asked = true;
      }
      return false;
    });
    return asked;
  }

 private:
  // Exists while sources are visited. A source that is removed meanwhile is replaced by null, so
  // that indices stay valid.
  struct Visiting {
    explicit Visiting(SourceList& of) : list(of) { ++list.visiting_; }
    Visiting(const Visiting&) = delete;
    Visiting& operator=(const Visiting&) = delete;
    ~Visiting() {
      if (--list.visiting_ == 0 && list.has_removed_) {
        std::erase(list.sources_, nullptr);
        list.has_removed_ = false;
      }
    }
    SourceList& list;
  };

  // Calls `visit` for each source until it returns true, and returns whether it did. Also visits
  // sources that are added meanwhile: one that is added during arm() must be armed before the
  // sleep.
  template <class Visit>
  bool visit_until(Visit visit) {
    if (empty()) return false;
    const Visiting guard(*this);
    for (std::size_t i = 0; i < sources_.size(); ++i) {  // NOLINT(modernize-loop-convert): may grow
      if (sources_[i] != nullptr && visit(*sources_[i])) return true;
    }
    return false;
  }

  std::vector<Source*> sources_;
  int visiting_ = 0;
  bool has_removed_ = false;
};

}}  // namespace ae
