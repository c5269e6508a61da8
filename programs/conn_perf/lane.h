// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One connection of the client (a "lane").

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "conn/connection.h"
#include "load.h"
#include "outbox.h"
#include "wire.h"

namespace perf {

/// Connects, sends the hello (the first message of a connection), reads and verifies messages, and
/// writes; derived classes decide what to send.
class Lane {
 public:
  Lane(Load& load, std::size_t number);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  virtual ~Lane() = default;

  void open();
  /// Called when a run begins: the lane sends whatever is allowed.
  virtual void start() = 0;
  const conn::Connection* connection() const noexcept { return connection_.get(); }

  static std::unique_ptr<Lane> create(Load& load, std::size_t number);

 protected:
  /// Handles a data message or an acknowledgement. Returns what is wrong with it, or "".
  virtual std::string take(const Message& message) = 0;
  /// Called when all messages of one read() have been handled.
  virtual void taken() = 0;
  /// Queues in the outbox what may be sent now. Returns false if there is nothing.
  virtual bool refill() = 0;
  /// Called when the bytes of all messages before the outbox's begun() have been passed to the
  /// transport, at the time `now`.
  virtual void handed_over(std::uint64_t now) = 0;
  /// Called when the connection is established and the server has answered the hello.
  virtual void ready();
  /// Whether the lane waits for the answer to its hello before it sends more.
  virtual bool hello_waits() const { return true; }

  void pump();
  void fail(const std::string& reason);
  /// Called before the connection is replaced by a new one.
  void reset();
  void say_hello();
  std::uint64_t first() const noexcept { return first_; }

  Load& load_;
  std::size_t number_;
  std::uint64_t first_;  // each lane has its own range of sequence numbers
  conn::ConnectionPtr connection_;
  Outbox outbox_;
  std::unique_ptr<Parser> parser_;
  bool greeted_ = false;

 private:
  void connected();
  void readable();
  std::string take_any(const Message& message);
};

}  // namespace perf
