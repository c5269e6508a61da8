// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The two kinds of server connections.

#include <span>
#include <string>

#include "fields.h"
#include "server.h"
#include "wire.h"

namespace perf {

/// Echoes what it reads. It does not read while data is unsent: a peer that does not read is slowed
/// down, and at most one piece is buffered.
class EchoSession final : public Session {
 public:
  EchoSession(conn::ConnectionPtr connection, Server& server, ServerShared& shared);

 private:
  void readable();
  void read_nothing(ssize_t result);
  void keep_rest(ssize_t size, ssize_t sent);
  void writable();

  conn::ConnectionPtr connection_;
  Server& server_;
  ServerShared& shared_;
  std::string unsent_;
};

/// A connection that speaks the protocol of wire.h.
class ProtocolSession final : public Session {
 public:
  /// `controls` counts control connections; may be null.
  ProtocolSession(conn::ConnectionPtr connection, Server& server, ServerShared& shared,
                  Count* controls);
  ~ProtocolSession() override;

 private:
  void readable();
  std::string take_bytes(std::span<const char> bytes);
  void pump();
  void count_connection(bool control);
  void count_messages();
  // Each returns what is wrong with the message, or "" if nothing is.
  std::string take(const Message& message);
  std::string take_hello(const Message& message);
  std::string take_data(const Message& message);
  std::string take_end(const Message& message);
  void acknowledge_if_due();
  void tell_costs(const Message& message);

  conn::ConnectionPtr connection_;
  Server& server_;
  ServerShared& shared_;
  Count* controls_;
  Count* counted_in_ = nullptr;  // the counter that includes this connection
  Parser parser_;
  Outbox outbox_;
  bool greeted_ = false, both_ways_ = false, in_place_ = false;
  bool sending_ = false;  // whether our own stream is running
  bool ending_ = false;   // whether the peer's stream has ended and the acknowledgement is due
  Kind expected_ = Kind::kRequest;  // kind of data messages on this connection
  std::uint64_t next_ = 0;          // sequence number of the next data message
  std::uint64_t counted_ = 0;       // messages before this number are in the loop's count
  // messages and bytes received of a stream since its last end
  std::uint64_t taken_ = 0, taken_bytes_ = 0;
  std::uint64_t sent_before_ = 0;  // sequence number at which our own stream began
};

}  // namespace perf
