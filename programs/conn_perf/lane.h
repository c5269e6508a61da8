// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One connection of the client.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "conn/connection.h"
#include "load.h"
#include "outbox.h"
#include "wire.h"

namespace perf {

/// Connects, says hello, reads and verifies, writes; what it sends is for those below to say.
class Lane {
 public:
  Lane(Load& load, std::size_t number);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  virtual ~Lane() = default;

  void open();
  /// A run begins: send what may be sent.
  virtual void start() = 0;
  const conn::Connection* connection() const noexcept { return connection_.get(); }

  static std::unique_ptr<Lane> create(Load& load, std::size_t number);

 protected:
  /// A data message or an acknowledgement; what is wrong with it, or "".
  virtual std::string take(const Message& message) = 0;
  /// All of a read() was taken.
  virtual void taken() = 0;
  /// Makes the outbox hold what may be sent now. False if there is nothing.
  virtual bool refill() = 0;
  /// The bytes of messages up to the outbox's begun() were handed over at `now`.
  virtual void handed_over(std::uint64_t now) = 0;
  /// The connection stands, and the server has answered the hello.
  virtual void ready();
  /// A hello is sent, but not waited for.
  virtual bool hello_waits() const { return true; }

  void pump();
  void fail(const std::string& reason);
  /// Before the connection goes and another comes.
  void reset();
  void say_hello();
  std::uint64_t first() const noexcept { return first_; }

  Load& load_;
  std::size_t number_;
  std::uint64_t first_;  // the sequence numbers of a lane are its own
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
