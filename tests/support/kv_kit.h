#pragma once
// For the tests of kv-server: requests as clients send them, and one conversation's step.

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

/// What waits to be sent, as if it had been.
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

}  // namespace kv_kit
