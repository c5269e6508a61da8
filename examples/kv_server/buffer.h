// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A byte queue: bytes are appended at the end and consumed at the front. Each session has one per
// direction. The memory is not zeroed, and is counted in a meter that --maxmemory reads.

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <string_view>

namespace kv {

class Buffer {
 public:
  /// Adds the capacity to `meter` (may be null), which must outlive the buffer.
  explicit Buffer(std::size_t* meter = nullptr) noexcept : meter_(meter) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { release(); }

  /// Counts the capacity in `meter` (may be null) from now on, and no longer in the earlier one.
  void count_in(std::size_t* meter) noexcept {
    if (meter_ != nullptr) *meter_ -= capacity_;
    meter_ = meter;
    if (meter_ != nullptr) *meter_ += capacity_;
  }

  std::string_view view() const noexcept { return {data_ + begin_, end_ - begin_}; }
  std::size_t size() const noexcept { return end_ - begin_; }
  bool empty() const noexcept { return begin_ == end_; }
  std::size_t capacity() const noexcept { return capacity_; }

  /// Returns at least `size` writable bytes; call commit() with the number written. May move the
  /// contents. Throws std::bad_alloc and then changes nothing.
  [[gnu::always_inline]] std::span<char> prepare(std::size_t size) {
    if (capacity_ - end_ < size) make_room(size);
    return {data_ + end_, capacity_ - end_};
  }
  void commit(std::size_t size) noexcept { end_ += size; }
  void consume(std::size_t size) noexcept {
    begin_ += size;
    if (begin_ == end_) begin_ = end_ = 0;
  }
  void append(std::string_view bytes) {
    if (bytes.empty()) return;  // memcpy from null is undefined, even for no bytes
    std::memcpy(prepare(bytes.size()).data(), bytes.data(), bytes.size());
    end_ += bytes.size();
  }
  /// Drops everything after the first `size` bytes.
  void truncate(std::size_t size) noexcept { end_ = begin_ + size; }
  void clear() noexcept { begin_ = end_ = 0; }
  /// Frees the memory of an empty buffer.
  void shrink() noexcept {
    if (empty()) release();
  }

  /// Frees memory that a much longer content left behind; moves the contents.
  void trim() noexcept {
    const std::size_t used = end_ - begin_;
    if (capacity_ < kWorthTrimming || capacity_ / 4 < used) return;
    if (used == 0) return release();
    if (begin_ != 0) std::memmove(data_, data_ + begin_, used);
    begin_ = 0;
    end_ = used;
    void* const moved = std::realloc(data_, used);
    if (moved == nullptr) return;
    data_ = static_cast<char*>(moved);
    if (meter_ != nullptr) *meter_ -= capacity_ - used;
    capacity_ = used;
  }

 private:
  static constexpr std::size_t kWorthTrimming = 8192;
  [[gnu::noinline]] void make_room(std::size_t size) {
    const std::size_t used = end_ - begin_;
    if (used + size <= capacity_ && begin_ >= used) {  // moves fewer bytes than were consumed
      if (used != 0) std::memcpy(data_, data_ + begin_, used);
      begin_ = 0;
      end_ = used;
      return;
    }
    if (size > static_cast<std::size_t>(-1) / 4 - end_) throw std::bad_alloc();
    std::size_t wanted = capacity_ < 256 ? 256 : capacity_;
    while (wanted < end_ + size) wanted *= 2;
    void* const moved = std::realloc(data_, wanted);
    if (moved == nullptr) throw std::bad_alloc();
    data_ = static_cast<char*>(moved);
    if (meter_ != nullptr) *meter_ += wanted - capacity_;
    capacity_ = wanted;
  }
  void release() noexcept {
    std::free(data_);
    if (meter_ != nullptr) *meter_ -= capacity_;
    data_ = nullptr;
    begin_ = end_ = capacity_ = 0;
  }

  char* data_ = nullptr;
  std::size_t begin_ = 0, end_ = 0, capacity_ = 0;
  std::size_t* meter_;
};

}  // namespace kv
