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
  /// that the earlier messages were handled, so this is also the probe. An aeconn server probes its
  /// aeconn client with it, too.
  kGetServerFeature = 0,
  /// The client sends the features that it supports; the server does not answer.
  kSetClientFeature = 1,
  /// Shows that the sender's software and the path work; the receiver does not answer.
  kKeepalive = 2,
  /// Announces a receive window of the sender. The peer writes its next data byte to the start of
  /// the window, unless the window is announced ahead of its use (kWindowAhead).
  kRegisterXferMemory = 3,
};

/// `select` of a RegisterXferMemory that is sent before the last window is full, and of the
/// SetClientFeature with which the peer answers it: the data after the answer goes into the new
/// window. Sent only between peers whose hellos have Hello::kMarksWindows.
inline constexpr std::uint16_t kWindowMark = 0x4157;
/// `select` of a RegisterXferMemory that is sent before the last window is full, for a window that
/// is filled after that one. Sent only to peers whose hellos have Hello::kTakesAhead.
inline constexpr std::uint16_t kWindowAhead = 0x4158;
/// `select` of a SetClientFeature that tells the peer that its sender aborts the stream: the end
/// that follows is not a clean end of stream. Sent only to peers whose hellos have
/// Hello::kHearsAborts.
inline constexpr std::uint16_t kAborted = 0x4159;
/// `select` of a SetClientFeature that tells the peer that the stream of its sender ends here;
/// `features` is the number of bytes that the sender wrote into it in all. Sent only to peers whose
/// hellos have Hello::kFinishes.
inline constexpr std::uint16_t kFinished = 0x415A;
/// Like kFinished, but of a sender that continues to read; it sends kFinished when it closes. Sent
/// only between peers that can resume (Hello::kResumes): they must know whether a disconnect was
/// caused by close() or by the loss of a path.
inline constexpr std::uint16_t kShutDown = 0x415B;
/// Flag in the immediate value of an RDMA write, whose other bits are the number of bytes written.
/// It means that the sender had to wait for a window before it could write these bytes. Sent only
/// to peers whose hellos have Hello::kTakesAhead.
inline constexpr std::uint32_t kWaited = 0x80000000;

struct ControlMessage {
  Opcode opcode{};
  /// In messages with opcode 0 or 1: the number of the feature page, or kWindowMark, kAborted,
  /// kFinished, kShutDown or a probe's number. With opcode 3: 0, kWindowMark or kWindowAhead.
  std::uint16_t select = 0;
  /// In messages with opcode 0 or 1: bit mask of features; with kFinished and kShutDown: a number
  /// of bytes.
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

/// What a server gives a client in order to take up the session again after its path was lost.
struct Grant {
  std::uint64_t session = 0;  ///< random, unique among the sessions of the server; 0: no grant
  /// Proves that a resume request comes from the client of the session. Whoever learns it can take
  /// the session over, unless a protocol above has added a secret (Session::take_secret()).
  SipKey key{};

  friend bool operator==(const Grant&, const Grant&) = default;
};

/// Whether a hello is that of a connection request or that of its answer.
enum class HelloKind : std::uint8_t { kRequest, kAnswer };

/// What an aeconn peer states about itself when a connection is set up. It is optional: without it
/// the plain protocol is used.
struct Hello {
  /// Number of bytes of a hello without kResumes, and of a request and an answer with it.
  static constexpr std::size_t kSize = 24, kRequestSize = 28, kAnswerSize = 52;
  /// The hello's sender accepts receive windows whose lengths differ from those offered before.
  static constexpr std::uint32_t kWindowMayChange = 1;
  /// The hello's sender answers GetServerFeature messages, also when it is the client.
  static constexpr std::uint32_t kAnswersProbes = 2;
  /// The hello's sender sends a keepalive every keepalive_ms; after a longer silence, the receiver
  /// of the hello probes the sender's device.
  static constexpr std::uint32_t kSendsKeepalives = 4;
  /// The member `receives` of this hello is valid.
  static constexpr std::uint32_t kTellsReceives = 8;
  /// The hello's sender marks where it changes to a window that was announced before the last one
  /// was full (kWindowMark).
  static constexpr std::uint32_t kMarksWindows = 16;
  /// The hello's sender accepts windows that are announced ahead (kWindowAhead), and reports when
  /// it waited for a window (kWaited).
  static constexpr std::uint32_t kTakesAhead = 32;
  static constexpr std::uint32_t kTellsMtu = 64;      ///< the member `mtu` of this hello is valid
  static constexpr std::uint32_t kHearsAborts = 128;  ///< the hello's sender understands kAborted
  /// The hello's sender understands kFinished: a stream that was closed is told from one that was
  /// cut, and half-close works.
  static constexpr std::uint32_t kFinishes = 256;
  /// In a request: asks that the session survive the loss of its path. In an answer: grants it.
  /// The members `resume_ms` and, in an answer, `grant` of this hello are valid.
  static constexpr std::uint32_t kResumes = 512;
  /// In an answer: a client without a path that closes may ask to have the session forgotten
  /// (ResumeReason::kForget). The answers of a resume have it, too.
  static constexpr std::uint32_t kForgets = 1024;
  std::uint32_t flags = 0;
  std::uint32_t keepalive_ms = 0;
  /// Number of receives that the hello's sender keeps posted, so that its peer may send this many
  /// messages before it has proof that any was handled.
  std::uint32_t receives = 0;
  /// Release of aeconn that the hello's sender uses, 0.3.1 as {0, 3, 1}; only shown to people. All
  /// 0: that release does not send its number.
  std::array<std::uint8_t, 3> release{};
  /// In a connection request: the greatest length of the sender's packets. In the answer: the MTU
  /// that both ends must use exactly, because both ends of a path need the same. Encoded as
  /// ibv_mtu, 1 (256 bytes) to 5 (4096); 0: not stated.
  std::uint8_t mtu = 0;
  /// How long the hello's sender keeps a session whose path is lost. Not 0 with kResumes.
  std::uint32_t resume_ms = 0;
  Grant grant{};  ///< in answers only; `grant.session` is not 0 with kResumes

  friend bool operator==(const Hello&, const Hello&) = default;
};
/// An encoded hello, a range of as many bytes as are to be sent.
class HelloBytes {
 public:
  explicit HelloBytes(std::size_t size) noexcept : size_(size) {}  ///< zeros, kAnswerSize at most
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

/// Encodes a hello. Without kResumes, the bytes are the same for both kinds; `resume_ms` and
/// `grant` are not sent then.
HelloBytes encode(const Hello& hello, HelloKind kind);
/// Decodes a hello from the private data of an rdma_cm event. Returns no value unless the bytes
/// begin with a hello. Trailing bytes are ignored, because rdma_cm pads the data. kResumes is
/// dropped if the bytes end before the members that it promises, or if the time, the session or the
/// key is 0, as in padding.
std::optional<Hello> decode_hello(std::span<const std::byte> private_data, HelloKind kind);

}}}  // namespace conn::rdma
