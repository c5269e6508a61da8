// SPDX-License-Identifier: BSD-3-Clause
// Goal: no bytes make the parser of HTTP request heads crash, grow beyond its limit, or change its
// result; the result does not depend on the pieces. Method: the input is a client's stream, after
// one byte that selects the cuts. Accepted requests are checked against basic rules of the grammar,
// printed, and parsed again. Run by `make fuzz`, with the seeds in corpus/http.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "examples/kv_server/http_request.h"

namespace {

using kv::HttpRequest;
using Result = HttpRequest::Result;

void require(bool condition) {
  if (!condition) std::abort();
}

struct Read {
  Result result = Result::kMore;
  std::string method, path;
  bool operator==(const Read&) const = default;
};

/// The result for all of `input`, arriving in pieces of `step` bytes.
Read read_all(std::string_view input, std::size_t step) {
  HttpRequest request;
  Read read;
  std::size_t taken = 0;
  while (!input.empty()) {
    // A new buffer for each call, so that nothing can be kept from the last one.
    const std::vector<char> piece(
        input.begin(), input.begin() + static_cast<std::ptrdiff_t>(std::min(step, input.size())));
    const Result result = request.feed({piece.data(), piece.size()});
    require(read.result == Result::kMore || result == read.result);
    read.result = result;
    input.remove_prefix(piece.size());
    taken += piece.size();
    require(result != Result::kMore || taken <= HttpRequest::kMost);
  }
  if (read.result != Result::kDone) return read;
  return {read.result, request.method(), request.path()};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Read whole = read_all(input, input.size() + 1);
  require(read_all(input, 1 + data[0] % 16) == whole);
  if (whole.result != Result::kDone) return 0;
  require(!whole.method.empty() && !whole.path.empty());
  for (const char c : whole.method + whole.path) require(c != ' ' && c != '\r' && c != '\n');
  require(whole.path.find('?') == std::string::npos);
  const std::string again = whole.method + ' ' + whole.path + " HTTP/1.0\r\n\r\n";
  // Without its host, an absolute target may look like another one, e.g. "http://a/http://b".
  if (again.size() <= HttpRequest::kMost && !whole.path.starts_with("http"))
    require(read_all(again, 1) == whole);
  return 0;
}
