// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// For tests of kv-server: requests in the protocol's format, one step of a conversation, and
// servers with one loop and with three.

#include <memory>
#include <string>
#include <vector>

#include "examples/kv_server/session.h"

namespace kv_kit {

inline std::string bulk(const std::string& text) {
  return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}

inline std::string request(const std::vector<std::string>& arguments) {
  std::string out = "*" + std::to_string(arguments.size()) + "\r\n";
  for (const std::string& argument : arguments) out += bulk(argument);
  return out;
}

/// Takes the pending output as if it had been sent.
inline std::string take(kv::Session& session) {
  std::string out(session.pending_output());
  session.consume_output(out.size());
  return out;
}

inline std::string call(kv::Session& session, const std::vector<std::string>& arguments) {
  session.feed(request(arguments));
  session.execute();
  return take(session);
}

struct OneLoop {
  explicit OneLoop(kv::Server::Clock clock) : server(clock) {}
  kv::Server server;
};

/// Three loops on one thread: requests from one to another are answered at once, or later if
/// `together.post` delays them.
struct ThreeLoops {
  explicit ThreeLoops(kv::Server::Clock clock, kv::Config config = {})
      : together(std::move(config), 3, clock) {}
  kv::Together together;
  kv::Server first{together, 0}, server{together, 1}, third{together, 2};
};

}  // namespace kv_kit
