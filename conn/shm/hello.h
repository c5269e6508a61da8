// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The two messages that set up a connection: the client's hello, with the descriptors of both
// memories, and the server's answer. Numbers are little endian. docs/shm.md shows the layout.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/shm/destination.h"
#include "conn/tcp/passed_descriptors.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

inline constexpr std::size_t kHeader = 64;         ///< bytes of a message before its text
inline constexpr std::size_t kMostMessage = 4096;  ///< bytes of the longest message

inline constexpr std::uint32_t kLeastRing = 64 << 10;  ///< bytes of the smallest ring
inline constexpr std::uint32_t kMostRing = 1U << 30;   ///< bytes of the largest ring

/// Whether a ring may have this size.
constexpr bool is_ring_size(std::uint64_t size) noexcept {
  return size >= kLeastRing && size <= kMostRing && (size & (size - 1)) == 0;
}

struct Hello {
  std::uint32_t client_ring = 0;  ///< bytes of the ring that the client writes
  std::uint32_t server_ring = 0;  ///< bytes of the ring that the server writes
  /// Hosts and port, or path, that the client's URL names for schemes beside shm; empty: none.
  Destination destination = {};
};

/// The server's answer to a hello. With status kStands, the connection is established.
struct Answer {
  enum Status : std::uint32_t { kStands, kFull, kNotHere, kVersion, kSize, kRule };
  std::uint32_t status = kStands;
  std::string text;  ///< why the client is refused
};

std::string encode(const Hello& hello);
std::string encode(const Answer& answer);
/// Whether a message of this protocol, of whatever version, may begin with these bytes.
bool may_begin(std::string_view bytes) noexcept;
/// Returns the length of the message that begins with these kHeader bytes; 0 if they break a rule.
std::size_t message_length(std::string_view header) noexcept;
/// Decodes a complete hello (the client's message) into `hello`. Returns the answer that refuses
/// the client, or one with status kStands. Rings of more than `most_ring` bytes are refused.
Answer decode(std::string_view message, std::uint64_t most_ring, Hello& hello);
/// Decodes a server's complete answer into `answer`. Returns false if it breaks a rule.
bool decode(std::string_view message, Answer& answer);

/// Receives one message from a socket, in as many pieces as it comes, and owns the descriptors that
/// come with it. Descriptors that are not memory, or are too many, are left in the socket or closed
/// by another thread.
class Receipt {
 public:
  Receipt() = default;
  Receipt(Receipt&&) = default;
  Receipt& operator=(Receipt&&) = delete;
  /// Has the descriptors that were not used closed by another thread: the kernel frees the pages of
  /// a memory at its last close, which may take long, as the peer chooses the size.
  ~Receipt();
  enum class Step : std::uint8_t {
    kMore,          ///< the message is incomplete, and no more of it has arrived
    kDone,          ///< message() is complete
    kEnded,         ///< the peer has closed its socket
    kForeign,       ///< the bytes or descriptors are not those of this protocol
    kNoDescriptors  ///< this process has no free descriptor
  };
  Step receive(int socket) noexcept;
  std::string_view message() const noexcept { return {bytes_.data(), size_}; }
  /// Number of descriptors that have come.
  std::size_t descriptors() const noexcept { return count_; }
  const tcp::Fd& descriptor(std::size_t index) const noexcept { return memories_[index]; }
  /// Closes the descriptors that have come. To be called once their memories are mapped.
  void used() noexcept { memories_ = {}; }

 private:
  bool keep(const tcp::Passed& passed) noexcept;
  std::array<char, kMostMessage> bytes_;
  std::array<tcp::Fd, 2> memories_;
  ae::MadeHere made_here_;
  std::size_t count_ = 0;
  std::size_t size_ = 0;
};

/// Sends a message, with descriptors if `count` is not 0, to a socket that nothing was sent to
/// before, so that the kernel has room for it. Returns 0 or an errno value.
int send_message(int socket, std::string_view message, const int* descriptors = nullptr,
                 std::size_t count = 0) noexcept;

}}}  // namespace conn::shm
