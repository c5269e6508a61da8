// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A client on one connection, which sends requests and receives the replies in order. Its loop runs
// only while the client waits. Also the code of kv-cli --pipe.

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "ae/event_loop.h"
#include "conn/registry.h"
#include "resp_reply.h"

namespace kv {

class CliClient {
 public:
  /// Borrows `loop`. Throws conn::Error if `url` cannot be connected to within five seconds.
  CliClient(ae::EventLoop& loop, const conn::Registry& registry, const std::string& url);

  /// Queues bytes, and writes what the connection accepts at once.
  void send(std::string_view bytes);
  /// Waits for the next reply. Throws conn::Error when the connection ends before it.
  Reply receive();
  /// Calls send(), then receive().
  Reply call(const std::vector<std::string>& arguments);

  /// Runs one iteration of the loop, which blocks only if `wait` is true.
  void step(bool wait);
  /// Waits until bytes were received or sent; returns false if there were none for `patience`.
  bool step(ae::Duration patience);
  /// Takes the next reply if it was received. Throws conn::Error for bytes that are no reply.
  bool poll(Reply& reply);
  std::size_t unsent() const noexcept { return output_.size() - sent_; }
  bool ended() const noexcept { return ended_; }
  /// Returns Connection::path().
  std::string path() const { return connection_->path(); }

 private:
  void read();
  void write();
  std::string explain(int error) const;
  conn::Error connection_ended() const;
  void refuse_tls_alert() const;

  ae::EventLoop& loop_;
  std::string url_, scheme_;
  conn::ConnectionPtr connection_;
  std::string output_, input_;
  std::size_t sent_ = 0, parsed_ = 0;
  ReplyParser parser_;
  bool ended_ = false, answered_ = false;
  std::string failure_;
};

/// The longest silence of the server while replies are awaited.
inline constexpr ae::Duration kPipePatience = std::chrono::seconds(30);

/// kv-cli --pipe: sends standard input, which is RESP, and then an ECHO; counts the replies.
/// Returns true if the ECHO was answered and no reply was an error. Ends early if the server closes
/// the connection or asks for a password. Throws conn::Error if the server is silent for
/// `patience`.
bool run_pipe(CliClient& client, ae::Duration patience = kPipePatience);

}  // namespace kv
