// SPDX-License-Identifier: BSD-3-Clause
// A client: sends the lines of standard input to a server, one at a time, and prints the line
// received in reply to each. The loop keeps running while it waits for input. On failure it prints
// one line to standard error and exits with status 1.
//
//   ./client tcp://127.0.0.1:7000 <lines.txt
#include <unistd.h>

#include <array>
#include <chrono>
#include <iostream>
#include <string>

#include "ae/libev_loop.h"
#include "conn/co.h"
#include "conn/transports/transports.h"

namespace co = conn::co;
using namespace std::chrono_literals;

/// Removes the next line, with its newline, from the front of `typed`; reads from standard input if
/// there is none. Returns false at the end of the input.
co::Task<bool> next_line(ae::EventLoop& loop, std::string& typed, std::string& line) {
  std::size_t end = 0;
  while ((end = typed.find('\n')) == std::string::npos) {
    co::Event readable(loop);
    loop.add_file_event(STDIN_FILENO, ae::kReadable, [&](int, ae::Mask) { readable.set(); });
    (void)co_await readable.wait();
    loop.remove_file_event(STDIN_FILENO, ae::kReadable);
    std::array<char, 4096> buffer;
    const ssize_t size = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (size > 0) typed.append(buffer.data(), static_cast<std::size_t>(size));
    if (size <= 0 && typed.empty()) co_return false;
    if (size <= 0) typed += '\n';  // a last line without a newline
  }
  line = typed.substr(0, end + 1);
  typed.erase(0, end + 1);
  co_return true;
}

/// Stores a description of the failure, if any, in `failure`.
co::Task<> talk(const conn::Registry& registry, ae::EventLoop& loop, std::string url,
                std::string& failure) {
  co::Connected to = co_await co::connect(registry, loop, url);
  if (!to) {
    failure = to.failure.text;
    co_return loop.stop();
  }
  std::string typed, line;
  std::array<char, 64 * 1024> answer;
  while (co_await next_line(loop, typed, line)) {
    co::Result done = co_await to.stream.write(line, 10s);
    if (done) done = co_await to.stream.read_line(answer, 10s);
    if (!done) {
      failure = done.ended() ? "the server closed the connection"
                             : "no answer: " + std::make_error_code(done.error).message();
      break;
    }
    std::cout << std::string_view(answer.data(), done.size) << std::endl;
  }
  loop.stop();
}

int main(int argc, char** argv) try {
  if (argc != 2) throw std::runtime_error("usage: client URL");
  const conn::Registry registry = conn::all_transports();  // must outlive the loop
  ae::LibevLoop loop;
  std::string failure;
  co::Scope scope;  // declared after all that its tasks use: destroyed first
  scope.spawn(talk(registry, loop, argv[1], failure));
  loop.run();
  if (!failure.empty()) throw std::runtime_error(failure);
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
