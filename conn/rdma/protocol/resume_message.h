// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The messages with which a client resumes a session (a connection that outlives its network path)
// over a new path: 56 bytes in the private data of a connection request, and 56 bytes in that of
// the answer, or a text in that of the rejection. The layout is described in
// docs/valkey-over-rdma.md.
//
// A message authentication code (MAC) in each message proves that its sender has the key of the
// session, which the server gave in the answer to the first connection (Grant). The MAC of a
// request also covers the requester's address, so that a copied request cannot be used from another
// address. The MAC of an answer also covers the MAC of the request, so that a copied answer fits no
// other request.

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

/// The reason for which a client sends a resume request. In the answers of servers it is always
/// kPathLost.
enum class ResumeReason : std::uint8_t {
  kPathLost,    ///< the network path failed
  kMoves,       ///< the client's connection moves to another event loop
  kAsked,       ///< the server disconnected without ending its stream
  kBetterPath,  ///< the client returns to a network path that it prefers
  /// The client has closed and wants no new path: the server must end the session and reject the
  /// request. Sent only to servers that have announced Hello::kForgets.
  kForget,
};

struct ResumeMessage {
  /// The hello (properties of the sender) for the new network path. Only `flags`, `receives`,
  /// `release` and `mtu` are sent; the other members are 0 here, and their values from the hello of
  /// the first connection remain valid.
  Hello hello{};
  /// Number of the attempt to resume; it increases with each request for a session.
  std::uint32_t generation = 0;
  std::uint64_t session = 0;  ///< number of the session to resume (Grant::session)
  /// Number of bytes of the peer's stream that the sender of this message has received. If the
  /// reason is kForget, only the low 32 bits are sent, and the other bits are 0 here.
  std::uint64_t received = 0;
  std::uint64_t total = 0;  ///< only with kForget: total number of bytes in the sender's stream
  ResumeReason reason{};
  /// The message authentication code (MAC) that was received. Set only in decoded messages;
  /// seal_request() and seal_answer() compute their own.
  std::array<std::byte, 16> mac{};

  friend bool operator==(const ResumeMessage&, const ResumeMessage&) = default;
};

using ResumeBytes = std::array<std::byte, 56>;  ///< encoded message; its last 16 bytes are the MAC

/// The address that the MAC of a request covers: the IP address and the port that the request comes
/// from. It consists of 16 bytes of an IPv6 address, or of an IPv4 address in mapped form
/// (::ffff:10.0.0.1), and 2 bytes of the port, big-endian. An IPv6 scope is left out, because the
/// two machines number scopes differently.
using BoundAddress = std::array<std::byte, 18>;
BoundAddress bound_address(const SocketAddress& from) noexcept;

/// Encodes a resume request and its message authentication code (MAC). `bound`: bound_address() of
/// the requester.
ResumeBytes seal_request(const ResumeMessage& message, const SipKey& key,
                         std::span<const std::byte> bound) noexcept;
/// Encodes the answer to a resume request and its message authentication code (MAC). `request_mac`:
/// the last 16 bytes of the request.
ResumeBytes seal_answer(const ResumeMessage& message, const SipKey& key,
                        std::span<const std::byte, 16> request_mac) noexcept;

/// Decodes a resume request, or the answer to one, from the private data of an rdma_cm event.
/// Returns no value unless the data begins with such a message and its reason is known. Trailing
/// bytes are ignored, because rdma_cm pads the data. Does not check the MAC: trust the result only
/// after verify_request() or verify_answer().
std::optional<ResumeMessage> decode_resume(std::span<const std::byte> private_data) noexcept;

/// Returns true if the private data begins with a resume request whose MAC is valid for this key
/// and `bound`. The running time does not depend on the MAC in the data.
bool verify_request(std::span<const std::byte> private_data, const SipKey& key,
                    std::span<const std::byte> bound) noexcept;
/// Returns true if the private data begins with the answer to a resume request whose MAC is valid
/// for this key and that request. The running time does not depend on the MAC in the data.
bool verify_answer(std::span<const std::byte> private_data, const SipKey& key,
                   std::span<const std::byte, 16> request_mac) noexcept;

/// The reason for which a server rejects a resume request for good. (A rejection that asks the
/// client to try again later is in conn/kit/retry_after.h.)
enum class Refused : std::uint8_t {
  kNone,     ///< the text of the rejection states none of the reasons below
  kUnknown,  ///< the server has no such session, or the MAC is wrong
  /// The server's connection has ended; in answer to kForget: it has received the client's whole
  /// stream.
  kOver,
  kGap,  ///< bytes of the stream are missing and cannot be sent again
};

/// Returns the text that the server sends as the private data of its rejection; "" for kNone.
std::string_view text_of(Refused refused) noexcept;
/// Returns the reason that the text of a rejection states; kNone if it states none of them. `text`:
/// the private data of the rejection, with or without padding, or the result of reject_reason_in(),
/// which begins with ": ".
Refused refused_in(std::string_view text) noexcept;

}}}  // namespace conn::rdma
