// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The header of the PROXY protocol, versions 1 and 2: the first bytes of a connection, by which a
// proxy tells a server the address of its client. Does no I/O. The protocol:
// https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ae/abi.h"
#include "conn/kit/resolver.h"

namespace conn { inline namespace AECONN_ABI {

/// Reads one header of the PROXY protocol, version 1 or 2, from pieces of any size.
class AECONN_API ProxyHeaderReader {
 public:
  /// The state of reading the header.
  enum class Status : std::uint8_t {
    kIncomplete,  ///< more bytes of the header are missing
    kComplete,    ///< the header has been read
    kMalformed,   ///< the bytes are no valid header; problem() says why
  };
  /// Longest header of the PROXY protocol, version 2, that is accepted, in bytes. The protocol
  /// allows 65551; addresses take 232 at most, the rest are additional fields, which are skipped.
  static constexpr std::size_t kMost = 4096;

  /// Reads from `bytes`, which follow those of the last call. Returns how many of these bytes
  /// belong to the header; bytes after the header are data for the program. Returns 0 unless
  /// status() is kIncomplete.
  std::size_t read(std::span<const std::byte> bytes) noexcept;
  Status status() const noexcept { return status_; }  ///< state of reading the header
  /// Says what is wrong with a malformed header: the end of a sentence that begins "its PROXY
  /// protocol header". Empty otherwise.
  std::string_view problem() const noexcept { return problem_; }
  /// The client's address, IPv4 or IPv6, once the header is complete. Unset if the header has no
  /// address (UNKNOWN, LOCAL, UNSPEC) or one of another kind (a Unix socket, UDP): the connection
  /// then keeps the addresses of its socket.
  const SocketAddress& client() const noexcept { return client_; }

 private:
  void read_text(char byte) noexcept;
  void read_line() noexcept;
  void read_binary(std::uint8_t byte) noexcept;
  void fixed_part_read() noexcept;
  void take_addresses() noexcept;
  void malformed(std::string_view problem) noexcept;

  // Maximum size of a PROXY header of version 1, which is a line, with its CR and LF.
  static constexpr std::size_t kLongestLine = 107;
  Status status_ = Status::kIncomplete;
  bool binary_ = false;  // true if the header is of version 2
  // The header's bytes: the line of version 1; of version 2 the fixed part, followed by the IP
  // addresses and ports.
  std::array<std::uint8_t, kLongestLine> bytes_{};
  std::size_t count_ = 0;  // number of bytes read
  std::size_t end_ = 16;   // size of a header of version 2, as far as it is known
  std::string_view problem_;
  SocketAddress client_;
};

/// The versions of the PROXY protocol's header.
enum class ProxyVersion : std::uint8_t {
  kV1,  ///< version 1 of the header, a line of text
  kV2,  ///< version 2 of the header, binary
};

/// Returns the header that tells a server that `client` has connected to `server`. If one of the
/// addresses is IPv4 and the other IPv6, the IPv4 address is written as an IPv4-mapped IPv6
/// address; an unset `server` is written as zeros. If `client` is unset or the address of a Unix
/// socket, the header says that the address is unknown. Throws std::bad_alloc.
AECONN_API std::string proxy_header(ProxyVersion version, const SocketAddress& client,
                                    const SocketAddress& server);

}}  // namespace conn
