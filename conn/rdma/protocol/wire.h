// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The wire format of Valkey Over RDMA: the 32-byte control messages, and the hello that two aeconn
// peers exchange in the private data of rdma_cm. (Other programs neither send nor read a hello.)
// Byte order is handled only here. The layouts are described in docs/valkey-over-rdma.md.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ae/abi.h"
#include "conn/rdma/protocol/siphash.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

inline constexpr std::size_t kControlSize = 32;
using ControlBytes = std::array<std::byte, kControlSize>;

enum class Opcode : std::uint16_t {
  /// Sent by the client; the server answers with the same opcode and `select`. The answer proves
  /// that the server has handled all earlier messages of the client, so this message also serves as
  /// a probe. An aeconn server sends it to an aeconn client, too, as a probe.
  kGetServerFeature = 0,
  /// The client sends the features that it supports; the server does not answer.
  kSetClientFeature = 1,
  /// Shows that the sender's software and the network path work; the receiver does not answer.
  kKeepalive = 2,
  /// Announces a receive window of the sender: memory that the peer may write into. The peer writes
  /// its next data byte to the start of this window, unless `select` is kWindowAhead: then it first
  /// fills the windows announced before.
  kRegisterXferMemory = 3,
};

/// Value of `select` in a RegisterXferMemory that replaces a receive window before that window is
/// full, and in the SetClientFeature with which the peer answers: the data after the answer goes
/// into the new window. Sent only between peers that have announced Hello::kMarksWindows.
inline constexpr std::uint16_t kWindowMark = 0x4157;
/// Value of `select` in a RegisterXferMemory that announces an additional receive window while
/// earlier windows are not full yet. The peer fills it after those. Sent only to peers that have
/// announced Hello::kTakesAhead.
inline constexpr std::uint16_t kWindowAhead = 0x4158;
/// Value of `select` in a SetClientFeature that tells the peer that the sender aborts its stream:
/// the disconnect that follows is not a clean end of stream. Sent only to peers that have announced
/// Hello::kHearsAborts.
inline constexpr std::uint16_t kAborted = 0x4159;
/// Value of `select` in a SetClientFeature that tells the peer that the sender's stream ends here;
/// `features` is the total number of bytes in that stream. Between peers that can resume it also
/// says that the sender reads no more. Sent only to peers that have announced Hello::kFinishes.
inline constexpr std::uint16_t kFinished = 0x415A;
/// Value of `select` in a SetClientFeature that tells the peer that the sender's stream ends here,
/// but that the sender continues to read; it sends kFinished when it closes. Sent only between
/// peers that can resume (Hello::kResumes): they must know whether a disconnect was caused by
/// close() or by the loss of a network path.
inline constexpr std::uint16_t kShutDown = 0x415B;
/// Flag in the immediate value of an RDMA write, whose other bits are the number of bytes written.
/// It means that the sender had to wait for a receive window before it could write these bytes, so
/// that more windows may help. Sent only to peers that have announced Hello::kTakesAhead.
inline constexpr std::uint32_t kWaited = 0x80000000;

struct ControlMessage {
  Opcode opcode{};
  /// In messages with opcode 0 or 1: the number of the feature page, or kWindowMark, kAborted,
  /// kFinished, kShutDown or the number of a probe. With opcode 3: 0, kWindowMark or kWindowAhead.
  std::uint16_t select = 0;
  /// In messages with opcode 0 or 1: bit mask of features; if `select` is kFinished or kShutDown:
  /// number of bytes in the sender's stream.
  std::uint64_t features = 0;
  /// In messages with opcode 3: start of the announced window, as an address in the sender's
  /// memory.
  std::uint64_t address = 0;
  std::uint32_t length = 0;  ///< with opcode 3: length of the announced window in bytes
  std::uint32_t key = 0;     ///< with opcode 3: rkey that allows writing into the announced window

  friend bool operator==(const ControlMessage&, const ControlMessage&) = default;
};

ControlBytes encode(const ControlMessage& message);
/// Decodes a control message. Returns no value if the size is not kControlSize or the opcode is
/// unknown. Reserved bytes are ignored.
std::optional<ControlMessage> decode(std::span<const std::byte> bytes);

/// What a server gives a client so that the client can resume the session (the connection) over
/// another network path.
struct Grant {
  /// Random number, unique among the sessions of the server; 0: no grant.
  std::uint64_t session = 0;
  /// Secret key that proves that a resume request comes from the client of the session. Whoever
  /// learns this key can take the session over, unless TLS over this connection adds another secret
  /// (Session::take_secret()).
  SipKey key{};

  friend bool operator==(const Grant&, const Grant&) = default;
};

/// Says which message carries a hello: a connection request, or the answer to one.
enum class HelloKind : std::uint8_t { kRequest, kAnswer };

/// What an aeconn peer states about itself when a connection is set up. A hello is optional: with a
/// peer that sends none, the plain Valkey protocol is used.
struct Hello {
  /// Encoded sizes in bytes of a hello: without the flag kResumes; with that flag, in a connection
  /// request; with that flag, in an answer.
  static constexpr std::size_t kSize = 24, kRequestSize = 28, kAnswerSize = 52;
  /// Flag in a hello: its sender accepts offers of receive windows that differ in length from
  /// earlier ones.
  static constexpr std::uint32_t kWindowMayChange = 1;
  /// Flag in a hello: its sender answers GetServerFeature messages, also when it is the client.
  static constexpr std::uint32_t kAnswersProbes = 2;
  /// Flag in a hello: its sender sends a keepalive every `keepalive_ms` milliseconds; after a
  /// longer silence, the receiver of the hello probes the sender's device.
  static constexpr std::uint32_t kSendsKeepalives = 4;
  /// Flag in a hello: its member `receives` is valid.
  static constexpr std::uint32_t kTellsReceives = 8;
  /// Flag in a hello: if its sender is offered a receive window that replaces one that is not full,
  /// it sends a message (kWindowMark) at the point of its stream from which it writes into the new
  /// window.
  static constexpr std::uint32_t kMarksWindows = 16;
  /// Flag in a hello: its sender accepts several receive windows at a time (kWindowAhead), and
  /// reports that it had to wait for a window (kWaited).
  static constexpr std::uint32_t kTakesAhead = 32;
  static constexpr std::uint32_t kTellsMtu = 64;      ///< flag: the member `mtu` is valid
  static constexpr std::uint32_t kHearsAborts = 128;  ///< flag: the sender understands kAborted
  /// Flag in a hello: its sender understands kFinished. The peer can thus distinguish the end of a
  /// stream from a lost connection, and half-close works.
  static constexpr std::uint32_t kFinishes = 256;
  /// Flag in the hello of a request: asks the server to keep the session if its network path is
  /// lost. In that of an answer: the server agrees. The member `resume_ms` and, in an answer, the
  /// member `grant` are valid.
  static constexpr std::uint32_t kResumes = 512;
  /// Flag in the hello of an answer: a client that closes while it has no network path may ask the
  /// server to forget the session (ResumeReason::kForget). Answers to resume requests carry this
  /// flag, too.
  static constexpr std::uint32_t kForgets = 1024;
  std::uint32_t flags = 0;
  std::uint32_t keepalive_ms = 0;
  /// Number of receives that the hello's sender keeps posted. The peer may have at most this many
  /// messages outstanding: sent, and not proven to be handled.
  std::uint32_t receives = 0;
  /// Release of aeconn that the hello's sender uses, for example 0.3.1 as {0, 3, 1}; only shown to
  /// people. All zeros: a release that does not send its number.
  std::array<std::uint8_t, 3> release{};
  /// In a connection request: the largest path MTU that the sender can use. In the answer: the MTU
  /// that both queue pairs must use, because both ends of a connection need the same value. Encoded
  /// as enum ibv_mtu: 1 (256 bytes) to 5 (4096 bytes); 0: not stated.
  std::uint8_t mtu = 0;
  /// Time in milliseconds for which the hello's sender keeps a session whose network path is lost.
  /// Not 0 if kResumes is set.
  std::uint32_t resume_ms = 0;
  Grant grant{};  ///< only in an answer; `grant.session` is not 0 if kResumes is set

  friend bool operator==(const Hello&, const Hello&) = default;
};
/// An encoded hello: the bytes to be sent.
class HelloBytes {
 public:
  /// Creates `size` zero bytes; `size` is at most Hello::kAnswerSize.
  explicit HelloBytes(std::size_t size) noexcept : size_(size) {}
  const std::byte* data() const noexcept { return bytes_.data(); }
  std::byte* data() noexcept { return bytes_.data(); }
  std::size_t size() const noexcept { return size_; }
  const std::byte* begin() const noexcept { return data(); }
  const std::byte* end() const noexcept { return data() + size(); }
  std::byte* begin() noexcept { return data(); }
  std::byte* end() noexcept { return data() + size(); }
  std::byte& operator[](std::size_t i) noexcept { return bytes_[i]; }

 private:
  std::array<std::byte, Hello::kAnswerSize> bytes_{};
  std::size_t size_;
};

/// Encodes a hello as it is sent. Without the flag kResumes, `resume_ms` and `grant` are not
/// encoded, and `kind` has no effect.
HelloBytes encode(const Hello& hello, HelloKind kind);
/// Decodes a hello from the private data of an rdma_cm event. Returns no value unless the bytes
/// begin with a hello. Trailing bytes are ignored, because rdma_cm pads the data. The flag kResumes
/// is cleared if its members are missing, or if `resume_ms` or, in an answer, the session or its
/// key is 0 (which padding would give).
std::optional<Hello> decode_hello(std::span<const std::byte> private_data, HelloKind kind);

}}}  // namespace conn::rdma
