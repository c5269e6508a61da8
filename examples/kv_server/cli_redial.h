// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// kv-cli --redial: repeats a command over a connection that is re-established when it is lost. This
// is the example of how to use conn::Redial.

#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

#include "ae/event_loop.h"
#include "conn/redial.h"
#include "resp_reply.h"

namespace kv {

class CliRedial {
 public:
  struct Plan {
    std::string url;
    std::vector<std::vector<std::string>> greeting;  ///< sent on each new connection, before a PING
    std::vector<std::string> command;                ///< empty: PING
    std::int64_t repeat = 1;                         ///< -1: without end
  };
  /// Borrows `loop` and `registry`. Throws conn::Error for an invalid URL.
  CliRedial(ae::EventLoop& loop, const conn::Registry& registry, Plan plan);

  /// Prints each reply, and on standard error what happens to the connection. A request whose reply
  /// was lost with the connection counts as sent, and is not sent again. Returns true if every
  /// request got a reply other than an error.
  bool run();

 private:
  void prove(conn::Connection& connection, const conn::Redial::Proved& proved);
  void up(conn::Connection& connection);
  void changed();
  void down(const conn::Redial::Loss& loss);
  void send_next(conn::Connection& connection);
  void read_answer(conn::Connection& connection);
  bool read(conn::Connection& connection, Reply& reply);

  ae::EventLoop& loop_;
  const Plan plan_;
  std::string request_, greeting_;
  ReplyParser parser_;
  std::string input_;
  std::error_code told_;  // the reason printed last
  std::size_t parsed_ = 0;
  std::size_t greetings_left_ = 0;
  std::int64_t sent_ = 0;
  bool all_good_ = true, waits_ = false;
  conn::Redial redial_;  // last: its handlers use the other members
};

}  // namespace kv
