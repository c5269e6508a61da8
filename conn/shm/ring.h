// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One connection's shared memory: a ring of bytes in each direction, each with a page of words
// (control fields) in front of it. Both are written by the ring's writer alone; the other process
// can only read them. This header knows no descriptor and no loop. A bell is a function of the
// caller that wakes the peer; to ring is to call it.
//
// The peer is not trusted: each of its words is read once and checked, positions are kept outside
// of the shared memory, and nothing is read back from it. Once a word breaks a rule, broken() names
// the rule, and nothing more is read or written.
//
// A side that is about to sleep stores a new number as its wish (its request to be woken), then
// looks once more at what the peer has stored. The peer stores what has changed, then loads the
// wish, and rings once for each number. All four accesses are sequentially consistent, so that one
// of the two sides sees the other's store. A number is needed instead of a flag: if a flag were
// cleared and set again between two loads, the peer would take the second wish for the first one.
// tests/models/bell explores this code.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

inline constexpr std::size_t kPage = 4096;   ///< bytes before each ring, for control fields
inline constexpr std::size_t kPiece = 8192;  ///< bytes written or read until the peer is told

/// The page of words in front of a ring. Each line of the processor's cache has one purpose.
template <template <class> class Atomic>
struct BasicWords {
  std::uint32_t magic, version, ring;      ///< only for debugging; the peer ignores these fields
  alignas(64) Atomic<std::uint64_t> tail;  ///< number of bytes written into this ring so far
  Atomic<std::uint32_t> fin;               ///< 1: the stream has ended at `tail`
  alignas(64) Atomic<std::uint64_t> head;  ///< number of bytes read from the peer's ring so far
  Atomic<std::uint32_t> closed;            ///< 1: the peer's ring is not read any more
  /// A request of this page's owner to be woken; 0: no request. For each new number the peer wakes
  /// the owner once, as soon as the peer has written more (moved its own `tail`).
  alignas(64) Atomic<std::uint32_t> wish;
  /// A request like `wish`: the peer wakes the owner once its own `head` has reached `room_at`.
  alignas(64) Atomic<std::uint32_t> room_wish;
  Atomic<std::uint64_t> room_at;
};
using Words = BasicWords<std::atomic>;
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(Words) <= kPage);
static_assert(offsetof(Words, tail) == 64 && offsetof(Words, fin) == 72);
static_assert(offsetof(Words, head) == 128 && offsetof(Words, closed) == 136);
static_assert(offsetof(Words, wish) == 192 && offsetof(Words, room_at) == 264);

/// A request of this side that the peer wake it. The request is a number in a word of this side's
/// page; 0 in the word: no request.
class Wish {
 public:
  template <class Word>
  void make(Word& word) noexcept {
    if (static_cast<std::uint32_t>(++count_) == 0) ++count_;
    word.store(static_cast<std::uint32_t>(count_), std::memory_order_seq_cst);
    stands_ = true;
  }
  template <class Word>
  void take_back(Word& word) noexcept {
    if (stands_) word.store(0, std::memory_order_relaxed);
    stands_ = false;
  }
  /// Number of requests made so far. May be slightly too high, because the number 0 is skipped.
  std::uint64_t count() const noexcept { return count_; }

 private:
  std::uint64_t count_ = 0;  // number of the last request; the word gets its lower 32 bits
  bool stands_ = false;
};

/// The writing side of a ring.
template <template <class> class Atomic>
class BasicWriter {
 public:
  using Page = BasicWords<Atomic>;
  /// `mine` and `ring` are this side's memory, `theirs` is the peer's page; they must outlive this
  /// object. `size` is a power of two.
  BasicWriter(Page& mine, const Page& theirs, std::byte* ring, std::size_t size) noexcept
      : mine_(mine), theirs_(theirs), ring_(ring), size_(size) {}

  /// Number of bytes that put() would take, as far as it was known at the last look().
  std::size_t room() const noexcept { return size_ - static_cast<std::size_t>(written_ - head_); }
  std::size_t size() const noexcept { return size_; }
  /// Number of bytes that put() took and the peer has not read yet; at most size(), even if the
  /// peer breaks the rules.
  std::size_t unread() const noexcept {
    return static_cast<std::size_t>(
        std::min<std::uint64_t>(written_ - theirs_.head.load(std::memory_order_relaxed), size_));
  }
  bool peer_closed() const noexcept { return closed_; }  ///< whether the peer reads no more
  const char* broken() const noexcept { return broken_; }
  /// Reads from the shared memory how far the peer has read, and whether it reads no more.
  void look() noexcept {
    if (broken_ != nullptr) return;
    if (theirs_.closed.load(std::memory_order_seq_cst) != 0) closed_ = true;
    const std::uint64_t head = theirs_.head.load(std::memory_order_seq_cst);
    if (published_ - head > published_ - head_)
      broken_ = "it says that it has read bytes that were not written, or fewer than before";
    else
      head_ = head;
  }
  /// Copies as many of the bytes as there is room for, and returns how many. Shows them to the
  /// peer, and calls `bell` if it has to be woken, after each kPiece bytes; publish() does so for
  /// the rest.
  template <class Bell>
  std::size_t put(const void* from, std::size_t size, Bell&& bell) {
    std::size_t done = 0;
    while (done < size) {
      std::size_t n =
          std::min(size - done, kPiece - static_cast<std::size_t>(written_ - published_));
      if (n > room()) look();
      n = broken_ == nullptr ? std::min(n, room()) : 0;
      if (n == 0) break;
      const std::size_t at = static_cast<std::size_t>(written_) & (size_ - 1);
      const std::size_t straight = std::min(n, size_ - at);
      const std::byte* const source = static_cast<const std::byte*>(from) + done;
      std::memcpy(ring_ + at, source, straight);
      if (straight != n) std::memcpy(ring_, source + straight, n - straight);
      written_ += n;
      done += n;
      if (written_ - published_ == kPiece) publish(bell);
    }
    return done;
  }
  /// Shows the peer all bytes that put() has taken; calls `bell` if the peer has to be woken.
  template <class Bell>
  void publish(Bell&& bell) {
    if (published_ == written_) return;
    published_ = written_;
    mine_.tail.store(written_, std::memory_order_seq_cst);
    const std::uint32_t wish = theirs_.wish.load(std::memory_order_seq_cst);
    if (wish == 0 || wish == rung_) return;
    rung_ = wish;
    bell();
  }
  /// Ends the stream. The caller must then wake the peer, even if the peer has not asked for it.
  void finish() noexcept { mine_.fin.store(1, std::memory_order_seq_cst); }

  /// Asks the peer to wake this side once half of the ring is free. The caller must then call
  /// look(), since half of it may be free already.
  void wish() noexcept {
    mine_.room_at.store(published_ - size_ / 2, std::memory_order_relaxed);
    wish_.make(mine_.room_wish);
  }
  void unwish() noexcept { wish_.take_back(mine_.room_wish); }  ///< withdraws the request of wish()
  std::uint64_t wishes() const noexcept { return wish_.count(); }

 private:
  Page& mine_;
  const Page& theirs_;
  std::byte* const ring_;
  const std::size_t size_;
  std::uint64_t written_ = 0, published_ = 0, head_ = 0;
  Wish wish_;
  std::uint32_t rung_ = 0;  // number of the last wake-up request of the peer that was met
  const char* broken_ = nullptr;
  bool closed_ = false;
};

/// The reading side of a ring.
template <template <class> class Atomic>
class BasicReader {
 public:
  using Page = BasicWords<Atomic>;
  /// `mine` is this side's page, `theirs` and `ring` are the peer's memory; they must outlive this
  /// object. `size` is a power of two.
  BasicReader(Page& mine, const Page& theirs, const std::byte* ring, std::size_t size) noexcept
      : mine_(mine), theirs_(theirs), ring_(ring), size_(size) {}

  /// Number of bytes to read, as far as it was known at the last look().
  std::size_t unread() const noexcept { return static_cast<std::size_t>(tail_ - head_); }
  std::size_t size() const noexcept { return size_; }
  bool finished() const noexcept { return fin_; }  ///< whether the unread bytes end the stream
  const char* broken() const noexcept { return broken_; }
  /// Reads from the shared memory how far the peer has written. Returns true if anything is new.
  bool look() noexcept {
    if (fin_ || broken_ != nullptr) return false;
    // `fin` is loaded before `tail`: otherwise bytes written between the two loads would be lost.
    const bool fin = theirs_.fin.load(std::memory_order_seq_cst) != 0;
    const std::uint64_t tail = theirs_.tail.load(std::memory_order_seq_cst);
    if (tail - head_ > size_ || tail - head_ < tail_ - head_) {
      broken_ = "it says that it has written more than its ring holds, or less than before";
      return true;
    }
    if (tail == tail_ && !fin) return false;
    tail_ = tail;
    fin_ = fin;
    return true;
  }
  /// Copies up to `size` bytes, and frees their room after each kPiece bytes; calls `bell` if the
  /// peer has to be woken. Returns the number of bytes copied; 0 if nothing is unread.
  template <class Bell>
  std::size_t get(void* into, std::size_t size, Bell&& bell) {
    std::size_t done = 0;
    while (done < size) {
      if (unread() == 0) (void)look();
      std::size_t n = std::min(size - done, kPiece - static_cast<std::size_t>(head_ - freed_));
      n = broken_ == nullptr ? std::min(n, unread()) : 0;
      if (n == 0) break;
      const std::size_t at = static_cast<std::size_t>(head_) & (size_ - 1);
      const std::size_t straight = std::min(n, size_ - at);
      std::byte* const target = static_cast<std::byte*>(into) + done;
      std::memcpy(target, ring_ + at, straight);
      if (straight != n) std::memcpy(target + straight, ring_, n - straight);
      head_ += n;
      done += n;
      if (head_ - freed_ == kPiece) free(bell);
    }
    free(bell);
    return done;
  }
  /// Tells the peer that nothing is read any more. The caller must then wake the peer, even if the
  /// peer has not asked for it.
  void close() noexcept { mine_.closed.store(1, std::memory_order_seq_cst); }

  /// Asks the peer to wake this side once the peer has written more. The caller must then call
  /// look(), since the peer may have written already.
  void wish() noexcept { wish_.make(mine_.wish); }
  void unwish() noexcept { wish_.take_back(mine_.wish); }  ///< withdraws the request of wish()
  std::uint64_t wishes() const noexcept { return wish_.count(); }

 private:
  template <class Bell>
  void free(Bell&& bell) {
    if (freed_ == head_) return;
    freed_ = head_;
    mine_.head.store(head_, std::memory_order_seq_cst);
    const std::uint32_t wish = theirs_.room_wish.load(std::memory_order_seq_cst);
    if (wish == 0 || wish == rung_) return;
    // Since the load above, the peer may have stored a new request (`room_at` and `room_wish`). It
    // is not missed: after storing it the peer looks at `head`, and finds the value stored above,
    // or else a later call of this function finds the request.
    const std::uint64_t at = theirs_.room_at.load(std::memory_order_relaxed);
    if (static_cast<std::int64_t>(head_ - at) < 0) return;
    rung_ = wish;
    bell();
  }

  Page& mine_;
  const Page& theirs_;
  const std::byte* const ring_;
  const std::size_t size_;
  std::uint64_t head_ = 0, freed_ = 0, tail_ = 0;
  Wish wish_;
  std::uint32_t rung_ = 0;  // number of the last wake-up request of the peer that was met
  const char* broken_ = nullptr;
  bool fin_ = false;
};

using Writer = BasicWriter<std::atomic>;
using Reader = BasicReader<std::atomic>;

}}}  // namespace conn::shm
