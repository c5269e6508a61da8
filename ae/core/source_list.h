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
    if (std::find(sources_.begin(), sources_.end(), &source) != sources_.end()) return;
    sources_.push_back(&source);
    changed();
  }

  /// Removes a source. The loop calls no function of `source` afterwards.
  void remove(Source& source) noexcept {
    const auto at = std::find(sources_.begin(), sources_.end(), &source);
    if (at == sources_.end()) return;
    *at = only_ = nullptr;
    has_removed_ = true;
    if (visits_ == 0) drop_removed();
  }

  bool empty() const noexcept { return count_ == 0; }

  /// Calls functions of all sources. A source that is removed while a Visit exists leaves a null
  /// entry in the list, so that indices stay valid. A source that is added meanwhile is visited
  /// too: if it is added during the arm() of another one, its own arm() must be called before the
  /// sleep.
  class Visit {
   public:
    explicit Visit(SourceList& of) noexcept : list_(of) { ++list_.visits_; }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    ~Visit() {
      if (--list_.visits_ == 0 && list_.has_removed_) list_.drop_removed();
    }

    /// Whether the list has exactly one source.
    bool alone() const noexcept { return list_.only_ != nullptr; }
    bool has_pending() {
      return until([](Source& source) { return source.has_pending(); });
    }
    bool has_pending_now() {
      return until([](Source& source) { return source.has_pending_now(); });
    }
    std::size_t process_pending() {
      std::size_t done = 0;
      until([&done](Source& source) {
        done += source.process_pending();
        return false;
      });
      return done;
    }
    void flush() {
      until([](Source& source) {
        source.flush();
        return false;
      });
    }
    /// Calls arm() of the sources in their order. Returns false as soon as one of them vetoes the
    /// sleep; arm() of the sources after it is then not called.
    bool arm() {
      return !until([](Source& source) { return !source.arm(); });
    }
    /// Whether any source in the list asks the loop to spin.
    bool has_spin() {
      return until([](Source& source) { return source.spin() != nullptr; });
    }
    /// Combines the spinning that all sources ask for with `spin`. Returns false if no source asks
    /// the loop to spin.
    bool add_spin(Spin& spin) {
      bool asked = false;
      until([&](Source& source) {
        if (const Spin* const more = source.spin()) {
          spin = Spin::both(spin, *more);
          asked = true;
        }
        return false;
      });
      return asked;
    }

   private:
    // Calls `visit` for each source, until `visit` returns true. Returns whether it returned true.
    template <class Function>
    bool until(Function visit) {
      std::size_t i = 0;
      if (Source* const only = list_.only_) {
        if (visit(*only)) return true;
        if (list_.only_ == only) [[likely]]
          return false;
        i = 1;
      }
      for (; i < list_.count_; ++i) {
        if (Source* const source = list_.sources_[i]; source != nullptr && visit(*source))
          return true;
      }
      return false;
    }

    SourceList& list_;
  };

 private:
  void drop_removed() noexcept {
    std::erase(sources_, nullptr);
    changed();
    has_removed_ = false;
  }
  void changed() noexcept {
    count_ = sources_.size();
    only_ = count_ == 1 ? sources_.front() : nullptr;
  }

  std::vector<Source*> sources_;
  std::size_t count_ = 0;  // sources_.size(), which takes longer to compute
  // The only source, if it is the list's only entry; null: there are more entries, or none.
  Source* only_ = nullptr;
  int visits_ = 0;  // number of Visit objects
  bool has_removed_ = false;
};

}}  // namespace ae
