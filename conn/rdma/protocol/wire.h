// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Valkey Over RDMA on the wire: the 32-byte control messages, and the hello that two aeconn peers
// exchange in the private data of rdma_cm (which others neither send nor look at).
// Byte order lives here and nowhere else. Layouts: docs/valkey-over-rdma.md.

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
  kGetServerFeature = 0,    ///< client asks; the server answers with the same opcode and select
  kSetClientFeature = 1,    ///< client tells; no answer
  kKeepalive = 2,           ///< proves that the path works; no answer
  kRegisterXferMemory = 3,  ///< here is my receive window; its first byte is the next one you send
};

/// `select` of a RegisterXferMemory that comes before the last window is full, and of the
/// SetClientFeature that answers it: what follows goes into the new one. Only between peers whose
/// hellos have kMarksWindows.
inline constexpr std::uint16_t kWindowMark = 0x4157;
/// `select` of a RegisterXferMemory that comes before the last window is full and is to be filled
/// after it. Only to peers whose hellos have kTakesAhead, as the next.
inline constexpr std::uint16_t kWindowAhead = 0x4158;
/// `select` of a SetClientFeature that says that the sender cuts the stream: what follows it is no
/// clean end. Only to peers whose hellos have kHearsAborts.
inline constexpr std::uint16_t kAborted = 0x4159;
/// Of an immediate, beside the number of bytes: they had to wait for their window.
inline constexpr std::uint32_t kWaited = 0x80000000;

struct ControlMessage {
  Opcode opcode{};
  std::uint16_t select =
      0;  ///< opcodes 0 and 1: feature page; opcode 3: 0, kWindowMark or kWindowAhead
  std::uint64_t features = 0;  ///< opcodes 0 and 1: bit mask
  std::uint64_t address = 0;   ///< opcode 3: where the window starts in its owner's memory
  std::uint32_t length = 0;    ///< opcode 3: bytes in it
  std::uint32_t key = 0;       ///< opcode 3: its rkey

  friend bool operator==(const ControlMessage&, const ControlMessage&) = default;
};

ControlBytes encode(const ControlMessage& message);
/// No value if the size is not kControlSize or the opcode is unknown. Reserved bytes are ignored.
std::optional<ControlMessage> decode(std::span<const std::byte> bytes);

/// What an aeconn peer says of itself at set-up. Never needed: without it, plain protocol.
struct Hello {
  static constexpr std::size_t kSize = 24;
  static constexpr std::uint32_t kWindowMayChange = 1;  ///< accepts windows of changing length
  static constexpr std::uint32_t kAnswersProbes = 2;    ///< answers GetServerFeature in both roles
  static constexpr std::uint32_t kSendsKeepalives = 4;  ///< every keepalive_ms; silence means dead
  static constexpr std::uint32_t kTellsReceives = 8;    ///< `receives` counts
  /// Tells where it changes over to a window that came before the last was full (kWindowMark).
  static constexpr std::uint32_t kMarksWindows = 16;
  /// Keeps windows that are announced ahead (kWindowAhead), and says when it waited for one
  /// (kWaited).
  static constexpr std::uint32_t kTakesAhead = 32;
  static constexpr std::uint32_t kTellsMtu = 64;      ///< `mtu` counts
  static constexpr std::uint32_t kHearsAborts = 128;  ///< knows kAborted
  std::uint32_t flags = 0;
  std::uint32_t keepalive_ms = 0;
  std::uint32_t receives = 0;  ///< how many this peer can count on at first
  /// Of its aeconn, 0.3.1 as {0, 3, 1}; for people. All 0: one that did not say so yet.
  std::array<std::uint8_t, 3> release{};
  /// In a request: packets of this end are no longer than that. In the answer: both ends' are just
  /// that. As ibv_mtu has it, 1 (256 bytes) to 5 (4096); both ends of a path need the same.
  std::uint8_t mtu = 0;

  friend bool operator==(const Hello&, const Hello&) = default;
};
std::array<std::byte, Hello::kSize> encode(const Hello& hello);
/// No value unless the bytes begin with a hello. What follows it (rdma_cm pads) is ignored.
std::optional<Hello> decode_hello(std::span<const std::byte> private_data);

}}}  // namespace conn::rdma
