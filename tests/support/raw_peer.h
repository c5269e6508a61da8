// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A peer on plain verbs and rdma_cm in both roles, written from docs/valkey-over-rdma.md alone. By
// default it follows the protocol; a test can make it violate the protocol in any way. It has no
// thread: the test's loop watches its descriptors.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ae/event_loop.h"
#include "conn/endpoint.h"
#include "conn/rdma/device/functions.h"

namespace testing {

class RawNet;
class RawPeer;

struct RawOptions {
  unsigned receives = 1024;      ///< posted before connect or accept
  bool reposts = true;           ///< receives are posted again after use
  bool announce = true;          ///< RegisterXferMemory at ESTABLISHED, and when a window is full
  bool answers_features = true;  ///< as a server: answers GetServerFeature
  std::uint32_t window = 65536;
  bool completes = true;       ///< as a client: completes the handshake
  std::uint8_t rnr_retry = 7;  ///< told to the other side; Valkey's server says 0
  std::string private_data;
  /// As a client, if set: returns the private data, once the peer's own address is known.
  std::function<std::string(RawPeer&)> at_request;
  std::string source;                            ///< address to connect from
  std::function<void(RawPeer&)> at_established;  ///< called first thing when established
};

/// Control messages in the format of docs/valkey-over-rdma.md.
std::string raw_register(std::uint64_t address, std::uint32_t length, std::uint32_t key);
std::string raw_feature(std::uint16_t opcode, std::uint16_t select, std::uint64_t features);
std::string raw_control(std::uint16_t opcode);
inline std::string raw_keepalive() { return raw_control(2); }
/// The hello of an aeconn peer.
std::string raw_hello(std::uint32_t flags, std::uint32_t keepalive_ms);

class RawPeer {
 public:
  struct Offer {
    std::uint64_t address;
    std::uint32_t length, key;
  };
  RawPeer(RawNet& net, RawOptions options);
  ~RawPeer();
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  // --- actions ---
  /// One SEND of arbitrary bytes.
  void send(std::string_view bytes);
  /// RDMA WRITE of `bytes`, with the immediate if one is given.
  void write(std::string_view bytes, std::uint64_t address, std::uint32_t key,
             std::optional<std::uint32_t> immediate = {});
  /// WRITE_WITH_IMM without bytes.
  void immediate(std::uint32_t value);
  /// Sends bytes of the stream according to the protocol: split at the end of the window.
  void stream(std::string_view bytes);
  /// Registers another window of this length and offers it.
  void announce_new(std::uint32_t length);
  void announce();  ///< offers the current window, from its start
  void stop_polling();
  void poll_again();
  void post_receives(unsigned count);
  void answer_features();  ///< the ones not answered yet
  void disconnect();
  // Operations that the protocol does not use.
  void read(std::uint32_t size, std::uint64_t address, std::uint32_t key);
  void fetch_and_add(std::uint64_t address, std::uint32_t key);
  void compare_and_swap(std::uint64_t address, std::uint32_t key);
  void send_with_immediate(std::string_view bytes, std::uint32_t value);
  void send_and_invalidate(std::string_view bytes, std::uint32_t key);
  /// Destroys the queue pair without a disconnect; nothing more can be sent.
  void drop_queue_pair();
  /// As a client with completes = false: rejects the server's answer.
  void reject();
  /// Whether the send queue has room for `count` more requests.
  bool can_post(unsigned count = 1) const { return outstanding_ + count <= kSends; }
  bool idle() const { return outstanding_ == 0 && pending_.empty(); }

  // --- observations ---
  bool requested = false;  ///< as a client: the request was sent
  bool answered = false, established = false, disconnected = false, failed = false;
  int reject_status = -1;
  std::string private_data;  ///< of the answer or of the rejection
  std::string received;      ///< the stream
  bool overrun = false;      ///< an immediate exceeded the window
  std::vector<std::uint32_t> immediates;
  std::vector<Offer> offers;  ///< windows of the other side
  unsigned keepalives = 0, messages = 0, set_features = 0, renewals = 0;
  std::deque<std::uint16_t> unanswered;                          ///< selects of GetServerFeature
  std::vector<std::pair<std::uint16_t, std::uint64_t>> answers;  ///< as a client: the answers
  std::vector<ibv_wc_status> errors;
  bool over() const { return disconnected || failed; }
  const Offer& offer() const { return offers.back(); }
  std::uint32_t offer_used = 0;
  Offer own_window() const;
  Offer unwritable_memory() const;  ///< its own memory, without remote write access
  int port() const;

 private:
  friend class RawNet;
  static constexpr unsigned kSends = 2048;
  struct Memory {
    std::byte* data = nullptr;
    std::size_t size = 0;
    ibv_mr* mr = nullptr;
  };
  void resolve(const std::string& host, std::uint16_t port);
  void accept(rdma_cm_id* id);
  void on_event(const rdma_cm_event& event);
  void make_queue_pair();
  void on_established();
  void take_completions();
  void drain();
  void on_receive(const ibv_wc& wc);
  void on_message(std::string_view bytes);
  void push();
  void post(ibv_send_wr& request, std::string_view bytes);
  void post_atomic(ibv_wr_opcode opcode, std::uint64_t address, std::uint32_t key);
  void post_receive(unsigned slot);
  Memory make_memory(std::size_t size, int access);

  RawNet& net_;
  RawOptions options_;
  bool server_ = false, polls_ = false;
  rdma_cm_id* id_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  std::vector<Memory> memory_;
  Memory window_, receives_, sends_;
  std::size_t window_used_ = 0, sends_used_ = 0;
  unsigned outstanding_ = 0;
  std::vector<unsigned> spare_receives_;
  std::string pending_;
};

/// Handles the rdma_cm events of raw peers on one loop, and listens for raw servers.
class RawNet {
 public:
  explicit RawNet(ae::EventLoop& loop);
  ~RawNet();
  RawNet(const RawNet&) = delete;
  RawNet& operator=(const RawNet&) = delete;

  std::unique_ptr<RawPeer> connect(const conn::Endpoint& to, RawOptions options = {});
  /// What a listening RawNet does with a request: accept it, leave it unanswered, reject it, or
  /// destroy its id.
  enum class Answer { kAccept, kIgnore, kReject, kVanish };
  conn::Endpoint listen(RawOptions options = {}, Answer answer = Answer::kAccept,
                        std::uint16_t port = 0);
  /// Private data of the answers to later requests.
  void answer_with(std::string data) { accept_options_.private_data = std::move(data); }
  std::vector<std::unique_ptr<RawPeer>> accepted;
  std::size_t requests = 0;
  std::string request_data;  ///< private data of the latest request, with what pads it

 private:
  friend class RawPeer;
  void on_readable();
  ae::EventLoop& loop_;
  rdma_event_channel* channel_;
  rdma_cm_id* listener_ = nullptr;
  std::vector<rdma_cm_id*> ignored_;
  RawOptions accept_options_;
  Answer answer_ = Answer::kAccept;
};

}  // namespace testing
