// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What two processes share in one connection: the memory, and the socket over which they send each
// other bells, bytes that wake the other. The peer is gone when its end of the socket is closed. A
// Link knows no loop and no handler, and tells the facts of the connection.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/shm/memory.h"
#include "conn/tcp/connected_socket.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

class Link final : public tcp::ConnectedSocket {
 public:
  Link() noexcept : ConnectedSocket(nullptr) {}  // only facts of TCP need the settings

  /// Becomes the link over this connected socket and memory.
  void set(Fd socket, const SocketAddress& peer, ChannelPtr channel) noexcept;
  /// Ends the link; no effect if it has ended. If `properly` is true, the peer reads the end of the
  /// stream, else an error. In a child of fork() the peer sees nothing.
  void end(bool properly) noexcept;

  // The other functions must not be called before set(), or in a child of fork().

  Reader& reader() const noexcept { return channel_->reader; }
  Writer& writer() const noexcept { return channel_->writer; }
  /// Whether there are unread bytes, or the end of the stream, as far as it was known at the last
  /// look().
  bool readable() const noexcept { return reader().unread() != 0 || reader().finished(); }
  /// Whether there is room for bytes, or the peer reads no more, as of the last look().
  bool writable() const noexcept { return writer().room() != 0 || refuses(); }
  /// Whether the peer reads no more, as of the last look().
  bool refuses() const noexcept { return writer().peer_closed() || ended_; }
  /// Whether the peer has closed its socket.
  bool ended() const noexcept { return ended_; }
  /// Whether the peer has closed its socket without the words for it: it was killed, or aborts.
  bool lost() const noexcept { return ended_ && !(reader().finished() && writer().peer_closed()); }
  /// Reads what the peer has stored in the memory: how far it has written and read, and whether it
  /// has ended. Returns whether there may be something to do.
  bool look() noexcept;
  /// Names the rule that the peer has broken; null: none.
  const char* broken() const noexcept;

  /// Wakes the peer. Returns whether a bell was sent: a peer that has not taken the last one needs
  /// no other.
  bool ring() noexcept;
  /// Whether the kernel had no memory for the last bell, which must then be rung again.
  bool owes_bell() const noexcept { return owes_bell_; }
  /// Takes the bells from the socket, and learns whether it has ended. Returns their number.
  std::size_t take_bells() noexcept;
  /// Asks the peer to ring when there is something to read, or room. look() must follow.
  void wish(bool reading, bool writing) noexcept;
  /// Asks the peer not to ring.
  void unwish() noexcept;

  std::optional<bool> is_local() const override { return true; }
  int fd() const noexcept override { return -1; }  // the peer's bells are not for the program
  std::string path() const override { return "shm " + peer_address(); }
  std::vector<std::pair<std::string, std::string>> info() const override;

 private:
  ChannelPtr channel_;
  std::uint64_t sent_ = 0, had_ = 0;  // bells
  ae::MadeHere made_here_;
  bool ended_ = false;
  bool owes_bell_ = false;
  bool sends_descriptors_ = false;  // whether descriptors came among the peer's bells
};

}}}  // namespace conn::shm
