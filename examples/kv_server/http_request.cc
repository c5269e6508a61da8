// SPDX-License-Identifier: BSD-3-Clause
#include "http_request.h"

#include <fmt/format.h>

#include <algorithm>

namespace kv {
namespace {

/// Whether the character may be in a method or a field name (RFC 9110, 5.6.2).
bool is_token(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         (c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos);
}

bool is_token(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return is_token(c); });
}

bool is_control(char c) noexcept { return (c >= 0 && c < ' ' && c != '\t') || c == '\x7f'; }

bool is_host(std::string_view name) noexcept {
  constexpr std::string_view kHost = "host";
  return std::equal(name.begin(), name.end(), kHost.begin(), kHost.end(),
                    [](char a, char b) { return a == b || a == b - 'a' + 'A'; });
}

std::string_view reason_of(int status) noexcept {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Service Unavailable";
  }
}

}  // namespace

HttpRequest::Result HttpRequest::feed(std::string_view bytes) {
  for (const char c : bytes) {
    if (result_ != Result::kMore) break;
    if (++size_ > kMost)
      result_ = Result::kTooLarge;
    else if (c != '\n')
      line_ += c;
    else
      result_ = end_line();
  }
  return result_;
}

HttpRequest::Result HttpRequest::end_line() {
  if (!line_.empty() && line_.back() == '\r') line_.pop_back();
  if (std::any_of(line_.begin(), line_.end(), is_control)) return Result::kBad;
  const bool empty = line_.empty();
  Result result = Result::kMore;
  if (first_) {
    // Empty lines before the request line are allowed (RFC 9112, 2.2).
    if (!empty) result = read_request_line();
  } else if (!empty) {
    result = read_field();
  } else {
    result = wants_host_ && hosts_ != 1 ? Result::kBad : Result::kDone;
  }
  line_.clear();
  return result;
}

HttpRequest::Result HttpRequest::read_request_line() {
  first_ = false;
  const std::string_view line = line_;
  const std::size_t target = line.find(' ');
  const std::size_t version = line.rfind(' ');
  if (target == std::string_view::npos || version == target) return Result::kBad;
  const std::string_view method = line.substr(0, target);
  std::string_view path = line.substr(target + 1, version - target - 1);
  const std::string_view protocol = line.substr(version + 1);
  if (!is_token(method) || path.empty() || path.find(' ') != std::string_view::npos)
    return Result::kBad;
  if (protocol != "HTTP/1.1" && protocol != "HTTP/1.0") return Result::kBad;
  wants_host_ = protocol == "HTTP/1.1";
  bool absolute = false;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!path.starts_with(scheme)) continue;
    path.remove_prefix(std::min(path.find_first_of("/?", scheme.size()), path.size()));
    absolute = true;
  }
  path = path.substr(0, path.find('?'));
  // Only an absolute target may have an empty path (RFC 9112, 3.2.2).
  if (path.empty() && !absolute) return Result::kBad;
  method_ = method;
  path_ = path.empty() ? "/" : path;
  return Result::kMore;
}

HttpRequest::Result HttpRequest::read_field() {
  const std::string_view line = line_;
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return Result::kBad;
  if (is_host(line.substr(0, colon))) ++hosts_;
  return Result::kMore;
}

std::string http_answer(int status, std::string_view content_type, std::string_view body,
                        bool with_body, std::string_view more) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n{}",
      status, reason_of(status), content_type, body.size(), more,
      with_body ? body : std::string_view());
}

}  // namespace kv
