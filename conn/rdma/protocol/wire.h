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
/// window. Only between peers whose hellos have kMarksWindows.
inline constexpr std::uint16_t kWindowMark = 0x4157;
/// `select` of a RegisterXferMemory that is sent before the last window is full, for a window that
/// is filled after that one. Only to peers whose hellos have kTakesAhead.
inline constexpr std::uint16_t kWindowAhead = 0x4158;
/// `select` of a SetClientFeature that tells the peer that its sender aborts the stream: the end
/// that follows is not a clean end of stream. Only to peers whose hellos have kHearsAborts.
inline constexpr std::uint16_t kAborted = 0x4159;
/// Flag in an immediate, besides the number of bytes: these bytes had to wait for a window. Only to
/// peers whose hellos have kTakesAhead.
inline constexpr std::uint32_t kWaited = 0x80000000;

struct ControlMessage {
  Opcode opcode{};
  /// In messages with opcode 0 or 1: the number of the feature page, or kWindowMark, kAborted or a
  /// probe's number. With opcode 3: 0, kWindowMark or kWindowAhead.
  std::uint16_t select = 0;
  std::uint64_t features = 0;  ///< bit mask of features, in messages with opcode 0 or 1
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

/// What an aeconn peer states about itself when a connection is set up. It is optional: without it
/// the plain protocol is used.
struct Hello {
  static constexpr std::size_t kSize = 24;
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

  friend bool operator==(const Hello&, const Hello&) = default;
};
std::array<std::byte, Hello::kSize> encode(const Hello& hello);
/// Decodes a hello from the private data of an rdma_cm event. Returns no value unless the bytes
/// begin with a hello. Trailing bytes are ignored, because rdma_cm pads the data.
std::optional<Hello> decode_hello(std::span<const std::byte> private_data);

}}}  // namespace conn::rdma
