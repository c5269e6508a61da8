// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Appends replies to an output buffer, in RESP2 or RESP3. Aggregates are written as a header
// followed by that many elements (pairs for maps).

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "buffer.h"
#include "references.h"
#include "resp_text.h"

namespace kv {

class ReplyWriter {
 public:
  explicit ReplyWriter(Buffer& out) noexcept : out_(out) {}

  int version() const noexcept { return version_; }
  void set_version(int version) noexcept { version_ = version; }
  /// The number of errors written so far.
  std::uint64_t errors() const noexcept { return errors_; }

  /// Limits one reply: a bulk is left out, and overflowed() is set, once the output exceeds
  /// `bytes`. One value of any size passes.
  void set_limit(std::size_t bytes) noexcept { limit_ = bytes; }
  bool overflowed() const noexcept { return overflowed_; }

  void ok() { out_.append("+OK\r\n"); }
  void simple(std::string_view text) { line('+', text); }
  /// `text` starts with a code: "ERR syntax error". Line ends become spaces.
  void error(std::string_view text) {
    ++errors_;
    std::string shown(text);
    for (char& c : shown) c = c == '\r' || c == '\n' ? ' ' : c;
    line('-', shown);
  }
  void integer(std::int64_t value) { header(':', value); }
  void bulk(std::string_view bytes) {
    if (out_.size() > limit_) {
      overflowed_ = true;
      return;
    }
    char* const start = out_.prepare(bytes.size() + 25).data();
    char* at = start;
    *at++ = '$';
    at += format_length(at, bytes.size());
    *at++ = '\r';
    *at++ = '\n';
    if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
    at += bytes.size();
    *at++ = '\r';
    *at++ = '\n';
    out_.commit(static_cast<std::size_t>(at - start));
  }
  /// Like bulk(), but a large value is sent in place if references are set.
  void value(Entry& entry) {
    if (entry.value_size >= References::kLeast && references_ != nullptr) [[unlikely]] {
      return refer(entry);
    }
    bulk(entry.value());
  }
  void set_references(References* references) noexcept { references_ = references; }
  void null() { out_.append(version_ >= 3 ? "_\r\n" : "$-1\r\n"); }
  void array(std::size_t size) { header('*', static_cast<std::int64_t>(size)); }
  void map(std::size_t pairs) {
    header(version_ >= 3 ? '%' : '*', static_cast<std::int64_t>(version_ >= 3 ? pairs : 2 * pairs));
  }
  /// Writes a text for people, which RESP3 marks as such.
  void verbatim(std::string_view text) {
    if (version_ < 3) return bulk(text);
    header('=', static_cast<std::int64_t>(text.size() + 4));
    out_.append("txt:");
    out_.append(text);
    out_.append("\r\n");
  }

 private:
  void header(char type, std::int64_t value) {
    char* const start = out_.prepare(24).data();
    *start = type;
    std::size_t size = 1 + format_integer(start + 1, value);
    start[size++] = '\r';
    start[size++] = '\n';
    out_.commit(size);
  }

  [[gnu::noinline]] void line(char type, std::string_view text) {
    out_.append({&type, 1});
    out_.append(text);
    out_.append("\r\n");
  }

  [[gnu::noinline]] void refer(Entry& entry) {
    if (out_.size() > limit_) {
      overflowed_ = true;
      return;
    }
    header('$', entry.value_size);
    references_->add(out_.size(), &entry);
    if (limit_ != static_cast<std::size_t>(-1))
      limit_ -= std::min<std::size_t>(limit_, entry.value_size);
    out_.append("\r\n");
  }

  Buffer& out_;
  References* references_ = nullptr;
  int version_ = 2;
  bool overflowed_ = false;
  std::size_t limit_ = static_cast<std::size_t>(-1);
  std::uint64_t errors_ = 0;
};

}  // namespace kv
