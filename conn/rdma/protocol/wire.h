// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Wire format of Valkey Over RDMA: the 32-byte control messages, and the hello that two aeconn
// peers exchange in the private data of rdma_cm (other programs neither send nor read it). Byte
// order is handled only here. Layouts: docs/valkey-over-rdma.md.

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
  kGetServerFeature = 0,    ///< from the client; the server answers with the same opcode, select
  kSetClientFeature = 1,    ///< from the client; no answer
  kKeepalive = 2,           ///< proves that the path works; no answer
  kRegisterXferMemory = 3,  ///< announces a receive window; the next data byte goes to its start
};

/// `select` of a RegisterXferMemory sent before the last window is full, and of the
/// SetClientFeature that answers it: the data that follows goes into the new window. Only between
/// peers whose hellos have kMarksWindows.
inline constexpr std::uint16_t kWindowMark = 0x4157;
/// `select` of a RegisterXferMemory sent before the last window is full, for a window that is
/// filled after it. Only to peers whose hellos have kTakesAhead.
inline constexpr std::uint16_t kWindowAhead = 0x4158;
/// `select` of a SetClientFeature that reports that the sender aborts the stream: the end that
/// follows is not a clean end of stream. Only to peers whose hellos have kHearsAborts.
inline constexpr std::uint16_t kAborted = 0x4159;
/// Flag in an immediate, beside the number of bytes: they had to wait for a window. Only to peers
/// whose hellos have kTakesAhead.
inline constexpr std::uint32_t kWaited = 0x80000000;

struct ControlMessage {
  Opcode opcode{};
  std::uint16_t select =
      0;  ///< opcodes 0 and 1: feature page; opcode 3: 0, kWindowMark or kWindowAhead
  std::uint64_t features = 0;  ///< opcodes 0 and 1: bit mask
  std::uint64_t address = 0;   ///< opcode 3: start of the window, an address in its owner's memory
  std::uint32_t length = 0;    ///< opcode 3: bytes in the window
  std::uint32_t key = 0;       ///< opcode 3: its rkey

  friend bool operator==(const ControlMessage&, const ControlMessage&) = default;
};

ControlBytes encode(const ControlMessage& message);
/// No value if the size is not kControlSize or the opcode is unknown. Reserved bytes are ignored.
std::optional<ControlMessage> decode(std::span<const std::byte> bytes);

/// What an aeconn peer states about itself at set-up. Optional: without it the plain protocol is
/// used.
struct Hello {
  static constexpr std::size_t kSize = 24;
  static constexpr std::uint32_t kWindowMayChange = 1;  ///< accepts windows of changing length
  static constexpr std::uint32_t kAnswersProbes = 2;    ///< answers GetServerFeature in both roles
  /// Sends one every keepalive_ms; after a longer silence its peer probes the sender's device.
  static constexpr std::uint32_t kSendsKeepalives = 4;
  static constexpr std::uint32_t kTellsReceives = 8;  ///< `receives` is valid
  /// Marks where it changes over to a window that was announced before the last one was full
  /// (kWindowMark).
  static constexpr std::uint32_t kMarksWindows = 16;
  /// Accepts windows that are announced ahead (kWindowAhead), and reports when it waited for one
  /// (kWaited).
  static constexpr std::uint32_t kTakesAhead = 32;
  static constexpr std::uint32_t kTellsMtu = 64;      ///< `mtu` is valid
  static constexpr std::uint32_t kHearsAborts = 128;  ///< knows kAborted
  std::uint32_t flags = 0;
  std::uint32_t keepalive_ms = 0;
  std::uint32_t receives = 0;  ///< receives of the sender that its peer can count on at first
  /// Release of the sender's aeconn, 0.3.1 as {0, 3, 1}; shown to people only. All 0: a release
  /// that did not send it yet.
  std::array<std::uint8_t, 3> release{};
  /// In a request: packets of this end are no longer than this. In the answer: packets of both ends
  /// have exactly this MTU. Encoded as ibv_mtu, 1 (256 bytes) to 5 (4096); both ends of a path need
  /// the same.
  std::uint8_t mtu = 0;

  friend bool operator==(const Hello&, const Hello&) = default;
};
std::array<std::byte, Hello::kSize> encode(const Hello& hello);
/// No value unless the bytes begin with a hello. Trailing bytes (rdma_cm pads) are ignored.
std::optional<Hello> decode_hello(std::span<const std::byte> private_data);

}}}  // namespace conn::rdma
