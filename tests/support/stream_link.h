// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A simulated link between two ends of an RDMA byte stream that applies the hardware's rules only.
//
//     software            | hardware, network                   | software
//     send() ------------>| wire: in order -> deliver() ------->| completions -> handle()
//                         |   takes one posted receive,         |   the receive is posted
//                         |   a write lands in the window       |   again when it returns
//
// Messages move only when the test calls deliver() and handle(), so that each end can be slow,
// asleep, or behind a slow network. What real hardware would punish (a write outside of the window,
// an empty receive queue where that ends the connection) is reported by fault().
//
// Ends: StreamNode drives a Stream as the connection does; PlainNode behaves like Valkey's
// programs.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/protocol/stream.h"
#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma::test {

/// Byte `index` of stream `stream`. The pattern has no period: a lost, doubled or moved byte is
/// detected.
std::byte pattern(std::uint64_t stream, std::uint64_t index);

struct Message {
  bool is_write = false;  ///< WRITE_WITH_IMM, else SEND
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t immediate = 0;
  std::vector<std::byte> bytes;
};

class Node {
 public:
  explicit Node(std::uint32_t receives) : receives_(receives) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  virtual ~Node() = default;
  static void join(Node& a, Node& b);

  /// The network delivers the oldest message under way to this end. False if there is no message or
  /// no receive is posted.
  bool deliver();
  /// This end's software handles the oldest completion. False if there is none.
  bool handle(ae::TimePoint now);
  /// Sends what can be sent, registers and frees windows, and so on. True if it sent anything.
  virtual bool work(ae::TimePoint now) = 0;
  /// The user takes up to `size` bytes, which are verified. Returns the number of bytes.
  virtual std::size_t take(std::size_t size, ae::TimePoint now) = 0;

  /// The user has `size` more bytes to send.
  void stage(std::size_t size) { staged_ += size; }
  std::size_t staged() const { return staged_; }
  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::uint64_t bytes_taken() const { return bytes_taken_; }
  std::size_t on_the_wire() const { return wire_.size(); }  ///< towards this end
  std::size_t unhandled() const { return completions_.size(); }
  std::uint32_t receives() const { return receives_; }
  std::uint32_t fewest_receives() const { return fewest_receives_; }
  const std::string& fault() const { return fault_; }

  /// The peer's queue pair does not wait for receives: with none posted, the connection is dead.
  bool must_not_run_dry = false;
  /// Limit of work requests under way from this end.
  std::size_t send_depth = 64;
  std::uint64_t stream_id = 0;  ///< of the bytes sent by this end

 protected:
  void send(Message message);
  bool can_send() const { return peer_->wire_.size() < send_depth; }
  void blame(const std::string& what) {
    if (fault_.empty()) fault_ = what;
  }
  /// Registers memory with this end's device.
  WindowBuffer add_memory(std::uint32_t length);
  void remove_memory(const WindowBuffer& buffer);
  std::vector<std::byte> next_bytes(std::size_t size);         // of the staged bytes
  void check_bytes(const std::byte* bytes, std::size_t size);  // verifies taken bytes
  Node& peer() { return *peer_; }
  const Node& peer() const { return *peer_; }

 private:
  virtual void on_message(const Message& message, ae::TimePoint now) = 0;
  /// A receive of the peer has taken a message of this end.
  virtual void on_completed() {}

  Node* peer_ = nullptr;
  std::deque<Message> wire_, completions_;
  std::uint32_t receives_, fewest_receives_ = ~0u;
  // By key: length and bytes, each in an allocation of its own so that ASan detects overruns.
  std::map<std::uint32_t, std::pair<std::uint32_t, std::unique_ptr<std::byte[]>>> memory_;
  std::uint32_t next_key_ = 0x100;
  std::size_t staged_ = 0;
  std::uint64_t bytes_sent_ = 0, bytes_taken_ = 0;
  std::string fault_;
};

/// Drives a Stream.
class StreamNode final : public Node {
 public:
  StreamNode(const StreamConfig& config, std::uint32_t receives, ae::TimePoint now)
      : Node(receives), stream(config, now) {}
  bool work(ae::TimePoint now) override;
  std::size_t take(std::size_t size, ae::TimePoint now) override;
  /// Messages sent that the peer's software has not handled yet; the stream must count at least
  /// these.
  std::uint64_t truly_unproven() const { return peer().on_the_wire() + peer().unhandled(); }

  Stream stream;
  bool counts_exactly = false;     ///< it asks for proof instead of guessing
  unsigned refuse_windows = 0;     ///< per cent; the only window is never refused
  std::mt19937* random = nullptr;  ///< for the above, and to peek at half of what is taken
  std::size_t silent_probes = 0;
  std::size_t windows_provided = 0, windows_refused = 0, windows_discarded = 0;
  std::map<Opcode, std::size_t> controls_sent;
  std::map<std::uint16_t, std::size_t> selects_sent;
  std::size_t waits = 0;         ///< messages sent with the bit for bytes that had waited
  std::size_t most_windows = 0;  ///< highest number of windows wanted with the peer at once

 private:
  std::size_t look(std::span<std::byte> into);
  void on_message(const Message& message, ae::TimePoint now) override;
  void on_completed() override { stream.outbound().proof().on_completed(1); }
};

/// Models Valkey's server or client as far as the protocol shows: one window, offered again when it
/// is full and consumed; the server answers GetServerFeature and fails on a changed length; the
/// client fails on any feature message.
class PlainNode final : public Node {
 public:
  PlainNode(Role role, std::uint32_t window, std::uint32_t receives);
  bool work(ae::TimePoint now) override;
  std::size_t take(std::size_t size, ae::TimePoint now) override;
  /// Offers a window of `length` bytes now, whatever the state of the old one. Correct only if the
  /// peer writes nothing before it has handled this.
  void register_early(std::uint32_t length);
  bool can_register_early() const;

  std::size_t controls_received = 0;

 private:
  void on_message(const Message& message, ae::TimePoint now) override;
  void send_register();

  Role role_;
  WindowBuffer window_;
  std::uint32_t filled_ = 0, consumed_ = 0;
  bool register_due_ = true;
  std::uint32_t new_length_;  // of the next window to be registered
  std::uint64_t peer_address_ = 0;
  std::uint32_t peer_length_ = 0, peer_key_ = 0, peer_used_ = 0, first_length_ = 0;
  std::deque<std::uint16_t> answers_;
};

}}}  // namespace conn::rdma::test
