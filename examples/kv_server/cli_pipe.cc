// SPDX-License-Identifier: BSD-3-Clause
#include "cli_pipe.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <random>

namespace kv {
namespace {

struct PipeCount {
  std::size_t replies = 0, errors = 0;
  std::string last;  ///< the mark that follows everything else
  bool finished = false;

  void take(CliClient& client) {
    for (Reply reply; !finished && client.poll(reply);) {
      if (reply.type == Reply::Type::kBulk && reply.text == last) {
        finished = true;
        return;
      }
      ++replies;
      if (reply.type != Reply::Type::kError) continue;
      ++errors;
      std::cout << reply.text << '\n';
    }
  }
};

}  // namespace

bool run_pipe(CliClient& client) {
  constexpr std::size_t kMostUnsent = 1 << 20;
  PipeCount count;
  // Random, so that no value in the data is taken for it.
  std::random_device random;
  for (int i = 0; i < 5; ++i) count.last += fmt::format("{:08x}", random());

  std::vector<char> chunk(64 * 1024);
  for (ssize_t size = 0; (size = ::read(STDIN_FILENO, chunk.data(), chunk.size())) > 0;) {
    client.send({chunk.data(), static_cast<std::size_t>(size)});
    do {
      client.step(client.unsent() > kMostUnsent);
      count.take(client);
    } while (client.unsent() > kMostUnsent && !client.ended());
    if (client.ended()) break;
  }
  // A line end first, as redis-cli does: it finishes an inline command without one.
  std::string mark = "\r\n";
  append_request(mark, {"ECHO", count.last});
  client.send(mark);
  while (client.unsent() > 0 && !client.ended()) {
    client.step(true);
    count.take(client);
  }
  std::cout << "Everything is sent; the last reply is awaited.\n";
  while (!count.finished && !client.ended()) {
    client.step(true);
    count.take(client);
  }
  if (count.finished)
    std::cout << "The last reply is here.\n";
  else
    std::cerr << "kv-cli: the server closed the connection\n";
  std::cout << fmt::format("errors: {}, replies: {}\n", count.errors, count.replies);
  return count.finished && count.errors == 0;
}

}  // namespace kv
