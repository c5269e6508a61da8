// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Arguments of a Stream's reads and writes: contiguous bytes owned by the caller, in any kind of
// container.

#include <concepts>
#include <cstddef>
#include <cstring>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

namespace detail {

template <class T>
concept Byte = std::same_as<T, std::byte> || std::same_as<T, char> ||
    std::same_as<T, unsigned char> || std::same_as<T, signed char>;

template <class T>
concept CharPointer = std::same_as<T, const char*> || std::same_as<T, char*>;

template <class T>
concept ByteRange = std::ranges::contiguous_range<T> && std::ranges::sized_range<T> &&
    Byte<std::remove_cv_t<std::ranges::range_value_t<T>>>;

template <class T>
concept WritableByteRange =
    ByteRange<T> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<T>>>;

// Satisfied if a read may fill an object that was passed as an expression of type T: an lvalue, or
// a temporary that only refers to bytes which another object owns, such as a span.
template <class T>
concept Outlives = std::is_lvalue_reference_v<T> || std::ranges::borrowed_range<T>;

}  // namespace detail

/// Bytes to be written: std::string, std::string_view, or any contiguous sequence of char, unsigned
/// char or std::byte: std::vector, std::array, std::span, an array. A string literal and a
/// `const char*` end before their NUL.
class ConstBytes {
 public:
  ConstBytes() = default;
  /// Refers to the characters of `text`, up to its terminating NUL.
  template <detail::CharPointer Pointer>
  ConstBytes(Pointer text) noexcept  // NOLINT(google-explicit-constructor)
      : ConstBytes(text, std::strlen(text)) {}
  /// Refers to the `size` bytes at `data`.
  template <detail::Byte Its>
  ConstBytes(const Its* data, std::size_t size) noexcept
      : bytes_(std::as_bytes(std::span(data, size))) {}
  /// Refers to the bytes of any other contiguous range.
  template <class Range>
  requires(!std::same_as<std::remove_cvref_t<Range>, ConstBytes> &&
           !detail::CharPointer<std::decay_t<Range>>) ConstBytes(Range&& range)
  noexcept {  // NOLINT(google-explicit-constructor)
    static_assert(detail::ByteRange<Range>,
                  "write() takes bytes in one piece: std::string_view, std::string, or a span, "
                  "vector or array of char, unsigned char or std::byte");
    if constexpr (detail::ByteRange<Range>)
      bytes_ = std::as_bytes(std::span(std::ranges::data(range), std::ranges::size(range)));
  }
  /// Refers to a const array of char, which is taken as text: it ends before the first NUL, if
  /// there is one.
  template <std::size_t kSize>
  ConstBytes(const char (&text)[kSize]) noexcept  // NOLINT(google-explicit-constructor)
      : ConstBytes(text, strnlen(text, kSize)) {}
  /// Refers to a non-const array of char, which is taken as a buffer: all of its elements.
  template <std::size_t kSize>
  ConstBytes(char (&buffer)[kSize]) noexcept  // NOLINT(google-explicit-constructor)
      : ConstBytes(buffer, kSize) {}

  /// Returns the bytes referred to.
  std::span<const std::byte> span() const noexcept { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

/// A buffer to read into: a contiguous sequence like those that ConstBytes accepts, of writable
/// memory. A temporary container is rejected; a temporary span is not.
class MutableBytes {
 public:
  /// Refers to the `size` writable bytes at `data`.
  template <detail::Byte Its>
  MutableBytes(Its* data, std::size_t size) noexcept
      : bytes_(std::as_writable_bytes(std::span(data, size))) {}
  /// Refers to the bytes of any other contiguous, writable range.
  template <class Range>
  requires(!std::same_as<std::remove_cvref_t<Range>, MutableBytes>) MutableBytes(Range&& range)
  noexcept {  // NOLINT(google-explicit-constructor)
    constexpr bool kFits = detail::WritableByteRange<Range> && detail::Outlives<Range>;
    static_assert(kFits,
                  "read() takes room in one piece that outlives the call: a span, or a string, "
                  "vector or array, of char, unsigned char or std::byte that is not const");
    if constexpr (kFits)
      bytes_ =
          std::as_writable_bytes(std::span(std::ranges::data(range), std::ranges::size(range)));
  }

  std::span<std::byte> span() const noexcept { return bytes_; }  ///< returns the bytes referred to
  /// Returns the bytes referred to as a span of char.
  std::span<char> text() const noexcept {
    return {reinterpret_cast<char*>(bytes_.data()), bytes_.size()};
  }

 private:
  std::span<std::byte> bytes_;
};

}}}  // namespace conn::co
