// SPDX-License-Identifier: BSD-3-Clause
// Goal: no bytes of a server make the client's parser crash, read beyond what it got, loop, or take
// memory for lengths that were only announced; and pieces read as the whole does.
// Method: the input is what a server sends, after a byte that chooses the cuts. Each reply that
// comes out is printed in both ways. `make fuzz` runs it, from the seeds in corpus/reply.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "examples/kv_server/resp_reply_format.h"
#include "examples/kv_server/resp_reply_parser.h"

namespace {

using kv::Reply;
using kv::ReplyParser;

void require(bool condition) {
  if (!condition) std::abort();
}

/// All replies as text, and the error that ended them. `step` bytes arrive at a time.
std::string read_all(std::string_view input, std::size_t step) {
  ReplyParser parser;
  std::string out;
  std::size_t begin = 0, end = 0;
  for (;;) {
    // A buffer of its own for every call, so that nothing may be kept from the last.
    const std::vector<char> exact(input.begin() + static_cast<std::ptrdiff_t>(begin),
                                  input.begin() + static_cast<std::ptrdiff_t>(end));
    std::size_t used = 0;
    const auto result = parser.next({exact.data(), exact.size()}, used);
    require(used <= exact.size());
    begin += used;
    if (result == ReplyParser::Result::kError) {
      require(!parser.error().empty());
      // It stays an error, whatever comes.
      require(parser.next("+OK\r\n", used) == ReplyParser::Result::kError && used == 0);
      return out + "error: " + parser.error();
    }
    if (result == ReplyParser::Result::kReply) {
      require(used > 0);
      const std::string shown = kv::format_reply(parser.reply());
      require(shown.ends_with('\n'));
      out += shown + kv::format_reply_raw(parser.reply()) + '\n';
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
  // What arguments there are, a request carries them: as a reply it is an array of them.
  std::string request;
  kv::append_request(request, {std::string(input), "x"});
  ReplyParser parser;
  std::size_t used = 0;
  require(parser.next(request, used) == ReplyParser::Result::kReply && used == request.size());
  require(parser.reply().elements.at(0).text == input);
  return 0;
}
