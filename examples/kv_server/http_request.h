// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The head of an HTTP request, 1.0 or 1.1, from pieces of any size. Pure code: no connection.

#include <cstddef>
#include <string>
#include <string_view>

namespace kv {

/// Takes one request; a body is nobody's business here.
class HttpRequest {
 public:
  enum class Result {
    kMore,      ///< the head goes on
    kDone,      ///< method() and path() are known
    kBad,       ///< this is no HTTP
    kTooLarge,  ///< the head has more than kMost bytes
  };
  static constexpr std::size_t kMost = 8192;  ///< bytes of a head

  /// The next bytes. What it said once, other than kMore, stays.
  Result feed(std::string_view bytes);
  /// "GET". Never empty once kDone is said; until then nobody is to ask.
  const std::string& method() const noexcept { return method_; }
  /// "/metrics", without a query, and without the host where the request has one before it.
  const std::string& path() const noexcept { return path_; }

 private:
  Result end_line();
  Result read_request_line();
  Result read_field();

  Result result_ = Result::kMore;
  std::string line_, method_, path_;
  std::size_t size_ = 0;
  bool first_ = true;        // the request line is to come
  bool wants_host_ = false;  // HTTP/1.1 has exactly one
  int hosts_ = 0;
};

/// A whole answer with `Connection: close`. `more` are further header lines, each with its CRLF.
std::string http_answer(int status, std::string_view content_type, std::string_view body,
                        bool with_body = true, std::string_view more = {});

}  // namespace kv
