// SPDX-License-Identifier: BSD-3-Clause
// Goal: no bytes make the head of an HTTP request crash, grow beyond its limit, or change its mind;
// and pieces read as the whole does.
// Method: the input is what a client sends, after a byte that chooses the cuts. What is accepted is
// held against the grammar's first rules, and read once more from its own words. `make fuzz` runs
// it, from the seeds in corpus/http.

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

/// What it says of all of `input`. `step` bytes arrive at a time.
Read read_all(std::string_view input, std::size_t step) {
  HttpRequest request;
  Read read;
  std::size_t taken = 0;
  while (!input.empty()) {
    // A buffer of its own for every call, so that nothing may be kept from the last.
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
  // Without its host an absolute target may look like another one: "http://a/http://b" is such.
  if (again.size() <= HttpRequest::kMost && !whole.path.starts_with("http"))
    require(read_all(again, 1) == whole);
  return 0;
}
