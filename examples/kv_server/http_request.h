// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Parses the head of an HTTP/1.0 or 1.1 request from pieces of any size. Does no I/O.

#include <cstddef>
#include <string>
#include <string_view>

namespace kv {

/// Parses one request; a body is ignored.
class HttpRequest {
 public:
  enum class Result {
    kMore,      ///< the head is not complete
    kDone,      ///< method() and path() are known
    kBad,       ///< not an HTTP request
    kTooLarge,  ///< the head exceeds kMost bytes
  };
  static constexpr std::size_t kMost = 8192;  ///< bytes of the head

  /// Parses the next bytes. A result other than kMore is final.
  Result feed(std::string_view bytes);
  /// For example "GET". Valid after kDone, and then never empty.
  const std::string& method() const noexcept { return method_; }
  /// For example "/metrics": without the query, and without the scheme and host of an absolute URL.
  const std::string& path() const noexcept { return path_; }

 private:
  Result end_line();
  Result read_request_line();
  Result read_field();

  Result result_ = Result::kMore;
  std::string line_, method_, path_;
  std::size_t size_ = 0;
  bool first_ = true;        // the request line is not complete
  bool wants_host_ = false;  // HTTP/1.1 requires exactly one Host field
  int hosts_ = 0;
};

/// A whole response with `Connection: close`. `more`: further header lines, each with CRLF.
std::string http_answer(int status, std::string_view content_type, std::string_view body,
                        bool with_body = true, std::string_view more = {});

}  // namespace kv
