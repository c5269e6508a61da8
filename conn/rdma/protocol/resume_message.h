// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The messages with which a client takes up a session again after its path was lost: 56 bytes in
// the private data of a connection request, 56 bytes in that of its answer, or a text in that of
// its rejection. The layout is described in docs/valkey-over-rdma.md.
//
// A code of authentication (MAC) in each message shows that its sender has the key of the session,
// which the server gave in the answer to the first connection (Grant). That of a request covers
// also the address that both ends see of the requester, so that it cannot be used from elsewhere;
// that of an answer covers the MAC of its request, so that it answers no other one.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "ae/abi.h"
#include "conn/kit/resolver.h"
#include "conn/rdma/protocol/siphash.h"
#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Why the client sends a request. In answers it is kPathLost.
enum class ResumeReason : std::uint8_t {
  kPathLost,    ///< the path failed
  kMoves,       ///< the client's end goes to another event loop
  kAsked,       ///< the server ended the path without the end of the stream
  kBetterPath,  ///< the client returns to a path that is preferred
  /// The client has closed, and wants no path: the server is to end the session, and to reject the
  /// request. Only to servers whose answers have Hello::kForgets.
  kForget,
};

struct ResumeMessage {
  /// What the sender's end of the new path promises. Only `flags`, `receives`, `release` and `mtu`
  /// are sent; the rest is 0 here, and the values of the hello of the first connection stand.
  Hello hello{};
  std::uint32_t generation = 0;  ///< number of the path; greater in each request of a session
  std::uint64_t session = 0;     ///< Grant::session
  /// Bytes of the stream that the sender has counted so far. With kForget only the low 32 bits are
  /// sent, and the rest is 0 here.
  std::uint64_t received = 0;
  std::uint64_t total = 0;  ///< only with kForget: bytes that the sender wrote in all
  ResumeReason reason{};
  /// Set only in decoded messages; seal_request() and seal_answer() compute it.
  std::array<std::byte, 16> mac{};

  friend bool operator==(const ResumeMessage&, const ResumeMessage&) = default;
};

using ResumeBytes = std::array<std::byte, 56>;  ///< the last 16 bytes are the MAC

/// What a request is bound to: the IP address and the port that it comes from, as the client and
/// the server both see them. 16 bytes of an IPv6 address, or of an IPv4 address in mapped form
/// (::ffff:10.0.0.1), and 2 of the port, big-endian. An IPv6 scope is left out: each machine has
/// its own name for it.
using BoundAddress = std::array<std::byte, 18>;
BoundAddress bound_address(const SocketAddress& from) noexcept;

/// Encodes a request. `bound`: bound_address() of the requester.
ResumeBytes seal_request(const ResumeMessage& message, const SipKey& key,
                         std::span<const std::byte> bound) noexcept;
/// Encodes the answer to the request with this MAC (the last 16 bytes of the request).
ResumeBytes seal_answer(const ResumeMessage& message, const SipKey& key,
                        std::span<const std::byte, 16> request_mac) noexcept;

/// Decodes a request or an answer from the private data of an rdma_cm event. Returns no value
/// unless it begins with one, with a known reason. Trailing bytes are ignored, because rdma_cm pads
/// the data. A message is to be believed only after verify_request() or verify_answer().
std::optional<ResumeMessage> decode_resume(std::span<const std::byte> private_data) noexcept;

/// Returns whether the private data begins with what seal_request() returned for this key and
/// `bound`. The time does not depend on the MAC in the data.
bool verify_request(std::span<const std::byte> private_data, const SipKey& key,
                    std::span<const std::byte> bound) noexcept;
/// Returns whether the private data begins with what seal_answer() returned for this key and
/// request. The time does not depend on the MAC in the data.
bool verify_answer(std::span<const std::byte> private_data, const SipKey& key,
                   std::span<const std::byte, 16> request_mac) noexcept;

/// Why a server rejects a resume for good. (It may also ask to try again: conn/kit/retry_after.h.)
enum class Refused : std::uint8_t {
  kNone,     ///< as the result of refused_in(): the text says something else
  kUnknown,  ///< no such session, or the MAC is wrong
  kOver,     ///< the stream has ended, and all its bytes were received
  kGap,      ///< bytes that the other end misses were released already
};

/// Returns the text that the server gives as the reason of its rejection; "" for kNone.
std::string_view text_of(Refused refused) noexcept;
/// Returns which refusal the reason of a rejection contains. It may be the private data of the
/// rejection, with what pads it, or the result of reject_reason_in(), which begins with ": ".
Refused refused_in(std::string_view text) noexcept;

}}}  // namespace conn::rdma
