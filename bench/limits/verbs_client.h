// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Clients for the echo and for any server that speaks Valkey Over RDMA.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "programs/conn_perf/histogram.h"
#include "verbs_worker.h"

namespace limits {

struct ClientSettings {
  std::string address;
  std::uint32_t size = 64;  ///< of a message
  std::size_t connections = 1;
  std::size_t depth = 1;  ///< messages in flight per connection
  std::uint64_t requests = 10'000;
  std::size_t window = 16 * 1024;
  bool spin = false;
  bool separate = false;      ///< one RDMA write per message, even for messages sent together
  bool connect_rate = false;  ///< a new connection for each message
  std::uint64_t burst = 0;    ///< number of one-byte messages
  std::string text, reply;    ///< the burst repeats `text` and expects `reply` for each
};

/// Connects and keeps the windows of both sides open.
class Client : public Worker {
 public:
  explicit Client(const ClientSettings& settings);
  ~Client() override;

 protected:
  struct Slot {
    CmId id;  // until moved into the link
    std::unique_ptr<Link> link;
    bool open = false;            // the peer's window is known
    std::uint32_t looked_at = 0;  // bytes of our window already processed
    std::uint64_t begun = 0;
    std::uint64_t received = 0, sent = 0, to_send = 0;  // bytes of the streams
    std::vector<std::uint64_t> sent_at;                 // ring indexed by message number
    std::uint64_t issued = 0, answered = 0;             // messages
  };

  void dial(Slot& slot);
  /// Data may be sent from now on.
  virtual void opened(Slot& slot) = 0;
  /// `size` bytes were received; they continue the stream of `slot`.
  virtual void arrived(Slot& slot, const std::byte* bytes, std::uint32_t size) = 0;
  /// Adds the writes that are due, as far as space allows.
  virtual void fill(Slot& slot) = 0;
  virtual void closed(Slot& slot) = 0;
  /// Calls fill() and posts.
  void send(Slot& slot);

  const ClientSettings& settings_;
  sockaddr_storage address_;
  std::vector<Slot> slots_;

 private:
  struct SlotLink : Link {
    SlotLink(Device& device, CmId id, std::size_t window, Slot& its_slot)
        : Link(device, std::move(id), window), slot(its_slot) {}
    Slot& slot;
  };
  void on_cm(const CmEvent& event) final;
  void serve(Link& link) final;
  void lost(Link& link) final;
};

/// Closed-loop load over persistent connections, or a new one per message. Prints a line of JSON.
class LoopClient final : public Client {
 public:
  explicit LoopClient(const ClientSettings& settings) : Client(settings) {}
  void measure();

 private:
  void opened(Slot& slot) override;
  void arrived(Slot& slot, const std::byte* bytes, std::uint32_t size) override;
  void fill(Slot& slot) override;
  void closed(Slot& slot) override;
  void dial_more();
  void start(Slot& slot);
  void issue(Slot& slot, std::size_t count);
  void finish();

  std::unique_ptr<Memory> source_;  // the message, sent repeatedly
  std::size_t dialed_ = 0, opened_ = 0;
  std::uint64_t started_ = 0, ended_ = 0;  // connections
  std::uint64_t issued_ = 0, answered_ = 0, errors_ = 0;
  std::uint64_t begun_ = 0, elapsed_ = 0;
  perf::Histogram latency_;
};

/// One byte per message, as fast as the send queue and the windows allow. Prints a line of JSON.
class BurstClient final : public Client {
 public:
  explicit BurstClient(const ClientSettings& settings);
  void measure();

 private:
  void opened(Slot& slot) override;
  void arrived(Slot& slot, const std::byte* bytes, std::uint32_t size) override;
  void fill(Slot& slot) override;
  void closed(Slot& slot) override;

  std::uint64_t expected_;  // bytes
  std::uint64_t errors_ = 0, begun_ = 0, elapsed_ = 0;
  std::uint64_t last_reply_ = 0, worst_gap_ = 0;         // between replies
  std::uint64_t last_progress_ = 0, worst_silence_ = 0;  // between completions of any kind
};

}  // namespace limits
