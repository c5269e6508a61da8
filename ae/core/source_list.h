// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The sources (objects of class Source) of one loop, which are visited in registration order,
// except those that rest (Source::rest()). Any function of a source may add and remove sources,
// including itself, and may make them rest and wake.

#include <cassert>
#include <cstddef>
#include <vector>

#include "ae/abi.h"
#include "ae/core/loop_core.h"
#include "ae/event_loop.h"

namespace ae { inline namespace AECONN_ABI {

class SourceList {
 public:
  /// Creates an empty list. When more sources are to be visited, calls stir() of `core`, so that
  /// the loop's next iteration does not skip them.
  explicit SourceList(LoopCore& core) noexcept : core_(core) {}
  /// Sources that are still in the list may outlive the list: they are then in no loop.
  ~SourceList();
  SourceList(const SourceList&) = delete;
  SourceList& operator=(const SourceList&) = delete;

  /// Adds a source. Does nothing if the source is already in the list.
  void add(Source& source);
  /// Removes a source. The loop calls no function of `source` afterwards.
  void remove(Source& source) noexcept;

  /// Whether there is no source to visit: none is in the list, or all of them rest.
  bool idle() const noexcept {
#ifdef AECONN_CHECKS  // in debug, ASan and fuzzing builds: finds missing calls of Source::wake()
    assert(none_rests_wrongly());
#endif
    return awake_ == 0;
  }

  /// Calls functions of all sources that do not rest. A source that is removed while a Visit exists
  /// leaves a null entry in the list, so that indices stay valid. A source that is added, or woken,
  /// meanwhile is visited too if it comes later in the list: if it is added during the arm() of
  /// another one, its own arm() must be called before the sleep.
  class Visit {
   public:
    explicit Visit(SourceList& of) noexcept : list_(of) { ++list_.visits_; }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    ~Visit() {
      if (--list_.visits_ == 0 && list_.has_removed_) list_.drop_removed();
    }

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
        const std::size_t at = list_.only_at_;
        if (visit(*only)) return true;
        if (list_.only_at_ == at) [[likely]]
          return false;
        i = at + 1;
      }
      for (; i < list_.count_; ++i) {
        Source* const source = list_.sources_[i];
        if (source != nullptr && !source->rests_ && visit(*source)) return true;
      }
      return false;
    }

    SourceList& list_;
  };

 private:
  friend class Source;
  static constexpr auto kNone = static_cast<std::size_t>(-1);
  void drop_removed() noexcept;
  void changed() noexcept;
  bool none_rests_wrongly() const noexcept;

  LoopCore& core_;
  std::vector<Source*> sources_;
  std::size_t count_ = 0;  // equals sources_.size(), but is faster to read
  std::size_t awake_ = 0;  // number of sources that do not rest (Source::rest())
  // The only source that does not rest, and its index; null and kNone: there are more such sources,
  // or none.
  Source* only_ = nullptr;
  std::size_t only_at_ = kNone;
  int visits_ = 0;  // number of Visit objects that exist now
  bool has_removed_ = false;
};

}}  // namespace ae
