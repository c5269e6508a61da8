// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What two processes share in one connection: the memory, and the socket over which they send each
// other bells (a bell is one byte that wakes the peer's loop). The peer is gone when its end of the
// socket is closed. A Link uses no loop and no handler; it returns the facts of the connection.

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
  Link() noexcept : ConnectedSocket(nullptr) {}  // no settings: only TCP sockets need them

  /// Takes over a connected socket and the connection's shared memory.
  void set(Fd socket, const SocketAddress& peer, ChannelPtr channel) noexcept;
  /// Ends the link; no effect if it has ended. If `properly` is true, the peer reads the end of the
  /// stream, else an error. In a child of fork() only closes the socket: the peer is not told.
  void end(bool properly) noexcept;

  // Before set(), only the functions of CarrierFacts may be called. A child of fork() does not have
  // the shared memory. Of the following functions it may call only those up to lost(), which return
  // what this process knew before fork().

  Reader& reader() const noexcept { return channel_->reader; }
  Writer& writer() const noexcept { return channel_->writer; }
  /// Whether there are unread bytes, or the end of the stream, as far as it was known at the last
  /// look().
  bool readable() const noexcept { return reader().unread() != 0 || reader().finished(); }
  /// Whether there is room to write, or the peer reads no more, as of the last look().
  bool writable() const noexcept { return writer().room() != 0 || refuses(); }
  /// Whether the peer reads no more, as of the last look().
  bool refuses() const noexcept { return writer().peer_closed() || ended_; }
  /// Whether the peer has closed its socket.
  bool ended() const noexcept { return ended_; }
  /// Whether the peer has closed its socket without first announcing in the memory that it writes
  /// and reads no more (Words::fin and closed): the peer was killed, or aborted the connection.
  bool lost() const noexcept { return ended_ && !(reader().finished() && writer().peer_closed()); }
  /// Reads what the peer has stored in the memory: how far it has written and read, and whether it
  /// has ended. Returns whether there may be something to do.
  bool look() noexcept;
  /// Names the rule that the peer has broken; null: none.
  const char* broken() const noexcept;

  /// Sends a bell to wake the peer. Returns whether it was sent. If the socket's buffer is full, no
  /// bell is sent: the peer has not read the earlier bells yet, and will wake because of them.
  bool ring() noexcept;
  /// Whether the kernel had no memory to send the last bell (wake-up byte): call ring() again.
  bool owes_bell() const noexcept { return owes_bell_; }
  /// Reads the peer's bells (wake-up bytes) from the socket, and notes whether the peer has closed
  /// the socket (ended()). Returns the number of bells read.
  std::size_t take_bells() noexcept;
  /// Asks the peer to wake this side once there is something to read (`reading`) or room to write
  /// (`writing`). The caller must then call look(), since there may be some already.
  void wish(bool reading, bool writing) noexcept;
  /// Takes back the request of wish() that the peer wake this side.
  void unwish() noexcept;

  std::optional<bool> is_local() const override { return true; }
  // The program must not read the socket: its bytes are no data, they only wake the processes.
  int fd() const noexcept override { return -1; }
  std::string path() const override { return "shm " + peer_address(); }
  std::vector<std::pair<std::string, std::string>> info() const override;

 private:
  ChannelPtr channel_;
  std::uint64_t sent_ = 0, had_ = 0;  // number of bells (wake-up bytes) sent and received
  ae::MadeHere made_here_;
  bool ended_ = false;
  bool owes_bell_ = false;
  bool sends_descriptors_ = false;  // true if the peer sent descriptors with its wake-up bytes
};

}}}  // namespace conn::shm
