// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What went with clients and serves those that come: a server whose clients connect, ask once and
// leave would otherwise allocate the same blocks again each time. A few are kept, buffers for a
// second at most. Memory only: what was in it never is.

#include <array>
#include <cstddef>
#include <cstdlib>
#include <utility>
#include <vector>

namespace kv {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr std::size_t kMostSpares = 0;  // or a use after its end would go unnoticed
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr std::size_t kMostSpares = 0;
#else
inline constexpr std::size_t kMostSpares = 64;
#endif
#else
inline constexpr std::size_t kMostSpares = 64;
#endif

/// Things of one type, of any that can be moved. Keeping one does not allocate.
template <class Thing>
class Spares {
 public:
  Spares() { kept_.reserve(kMostSpares); }
  bool empty() const noexcept { return kept_.empty(); }
  Thing take() noexcept {
    Thing thing = std::move(kept_.back());
    kept_.pop_back();
    return thing;
  }
  /// False: there are enough.
  bool keep(Thing&& thing) noexcept {
    if (kept_.size() >= kMostSpares) return false;
    kept_.push_back(std::move(thing));
    return true;
  }
  void clear() noexcept { kept_.clear(); }

 private:
  std::vector<Thing> kept_;
};

/// Blocks of malloc's, of the sizes that most buffers begin with.
class SpareBlocks {
 public:
  SpareBlocks() = default;
  SpareBlocks(const SpareBlocks&) = delete;
  SpareBlocks& operator=(const SpareBlocks&) = delete;
  ~SpareBlocks() { clear(); }

  /// Null: none of that size is there.
  char* take(std::size_t size) noexcept {
    Spares<char*>* const blocks = of(size);
    return blocks == nullptr || blocks->empty() ? nullptr : blocks->take();
  }
  void give(char* block, std::size_t size) noexcept {
    Spares<char*>* const blocks = block == nullptr ? nullptr : of(size);
    if (blocks == nullptr || !blocks->keep(static_cast<char*>(block))) std::free(block);
  }
  void clear() noexcept {
    for (Spares<char*>& blocks : blocks_) {
      while (!blocks.empty()) std::free(blocks.take());
    }
  }

 private:
  Spares<char*>* of(std::size_t size) noexcept {
    return size == 256 ? &blocks_[0] : size == 16 * 1024 ? &blocks_[1] : nullptr;
  }
  std::array<Spares<char*>, 2> blocks_;
};

}  // namespace kv
