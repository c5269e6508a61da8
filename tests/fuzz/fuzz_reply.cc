// SPDX-License-Identifier: BSD-3-Clause
// Goal: no bytes of a server make the client's parser crash, read beyond its input, loop, or
// allocate memory for announced lengths; the result does not depend on the pieces. Method: the
// input is a server's stream, after one byte that selects the cuts. Each reply is printed.
// Run by `make fuzz`, with the seeds in corpus/reply.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "examples/kv_server/resp_reply.h"

namespace {

using kv::Reply;
using kv::ReplyParser;

void require(bool condition) {
  if (!condition) std::abort();
}

/// All replies as text, and the final error, with `input` arriving in pieces of `step` bytes.
std::string read_all(std::string_view input, std::size_t step) {
  ReplyParser parser;
  std::string out;
  std::size_t begin = 0, end = 0;
  for (;;) {
    // A new buffer for each call, so that nothing can be kept from the last one.
    const std::vector<char> exact(input.begin() + static_cast<std::ptrdiff_t>(begin),
                                  input.begin() + static_cast<std::ptrdiff_t>(end));
    std::size_t used = 0;
    const auto result = parser.next({exact.data(), exact.size()}, used);
    require(used <= exact.size());
    begin += used;
    if (result == ReplyParser::Result::kError) {
      require(!parser.error().empty());
      // The error is permanent, whatever follows.
      require(parser.next("+OK\r\n", used) == ReplyParser::Result::kError && used == 0);
      return out + "error: " + parser.error();
    }
    if (result == ReplyParser::Result::kReply) {
      require(used > 0);
      out += kv::format_reply(parser.reply()) + '\n';
    } else if (end == input.size()) {
      return out;
    } else {
      end = std::min(input.size(), end + step);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string whole = read_all(input, input.size() + 1);
  require(read_all(input, 1 + data[0] % 16) == whole);
  // A request with any argument, read as a reply, is an array with that argument.
  std::string request;
  kv::append_request(request, {std::string(input), "x"});
  ReplyParser parser;
  std::size_t used = 0;
  require(parser.next(request, used) == ReplyParser::Result::kReply && used == request.size());
  require(parser.reply().elements.at(0).text == input);
  return 0;
}
