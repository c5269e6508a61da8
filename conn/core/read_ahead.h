// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ReadAhead: implements peek() and consume() where the Carrier cannot show the bytes in its own
// memory. It reads input into a chunk of memory and shows the bytes there. Unread bytes in the
// chunk always come before all bytes that the Carrier still has.

#include <cstddef>

#include "ae/abi.h"
#include "conn/core/chunks.h"
#include "conn/in_place.h"
#include "conn/kit/ready_list.h"

namespace conn { inline namespace AECONN_ABI {

class InPlace;

class ReadAhead final : public ReadyItem {
 public:
  explicit ReadAhead(InPlace& its) : its_(its) {}

  std::size_t unread() const noexcept { return unread_ == nullptr ? 0 : unread_->held(); }
  bool idle() const noexcept { return unread_ == nullptr; }
  View peek(std::size_t together);
  std::size_t consume(std::size_t size) noexcept;
  std::size_t read(void* into, std::size_t size) noexcept;
  /// Forgets how many bytes peek() asked for, so that the read handler runs for any number of
  /// bytes.
  void peek_anything() noexcept { wanted_ = 1; }
  /// Queues the read handler if it is due. Otherwise it would not run, because no descriptor
  /// signals bytes that have already been read into the chunk.
  void queue() noexcept;
  /// Called by shutdown_both(). Ends reading, and queues the read handler, so that the program
  /// learns that reading has ended.
  void end() noexcept;
  bool ended() const noexcept { return ended_; }
  void drop() noexcept;   ///< discards the bytes that the program has not read
  void reset() noexcept;  ///< prepares this object for another connection

 private:
  std::size_t run_ready() override;
  bool make_room(std::size_t together) noexcept;

  InPlace& its_;
  Chunk* unread_ = nullptr;
  std::size_t wanted_ = 1;  // the read handler is due when at least this number of bytes is unread
  bool ended_ = false;
};

}}  // namespace conn
