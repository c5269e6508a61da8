// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The shared memory of a connection. The client makes both memories and sends their descriptors;
// the server checks and seals them. After that nobody can change their size, free their pages or
// map them for writing. Mappings made earlier stay writable, so each end reads nothing back from
// the memory that it writes (docs/shm.md).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/error.h"
#include "conn/shm/ring.h"
#include "conn/tcp/socket.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

using tcp::Fd;

/// A mapping of one memory: the page of control fields (Words) and the ring behind it. A child of
/// fork() does not get it: the child's destructor does nothing, since the child may have mapped
/// something else at the same address.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_(other.size_) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();
  /// Maps the memory of `fd`: a page, and a ring of `ring` bytes behind it. On failure returns an
  /// empty object and sets errno.
  static Mapping of(int fd, std::size_t ring, bool writable) noexcept;

  explicit operator bool() const noexcept { return base_ != nullptr; }
  Words& words() const noexcept { return *reinterpret_cast<Words*>(base_); }
  std::byte* ring() const noexcept { return base_ + kPage; }
  std::size_t ring_size() const noexcept { return size_ - kPage; }

 private:
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
  ae::MadeHere made_here_;
};

/// Both memories of a connection, mapped, with a writer on one ring and a reader on the other.
class Channel {
 public:
  /// `mine` is the memory that this process writes, mapped as writable; the peer writes `theirs`.
  Channel(Mapping mine, Mapping theirs) noexcept
      : mine_(std::move(mine)),
        theirs_(std::move(theirs)),
        writer(mine_.words(), theirs_.words(), mine_.ring(), mine_.ring_size()),
        reader(mine_.words(), theirs_.words(), theirs_.ring(), theirs_.ring_size()) {}

 private:
  const Mapping mine_, theirs_;

 public:
  Writer writer;
  Reader reader;
};
using ChannelPtr = std::unique_ptr<Channel>;

/// The memories that a client makes for a new connection: it sends their descriptors to the server
/// and keeps the channel (their mappings).
struct Offer {
  Fd client, server;  ///< memory that the client writes, and memory that the server writes
  ChannelPtr channel;
  Failure failure;  ///< why the memories could not be made or mapped; `channel` is then null
};
/// Makes both memories, each with a ring of `ring` bytes, for a client. Throws std::bad_alloc.
Offer make_memories(std::size_t ring);

/// Checks that the peer, which writes this memory, has sealed it, and that all of its pages exist.
/// Throws std::bad_alloc.
Failure check_sealed(const Fd& fd, std::size_t ring);

/// Checks and seals the memories that a client has offered, and maps them for a server. Returns
/// null, and sets `why`, if they break a rule or cannot be mapped. Throws std::bad_alloc.
ChannelPtr accept_memories(const Fd& client, std::size_t client_ring, const Fd& server,
                           std::size_t server_ring, Failure& why);

}}}  // namespace conn::shm
