// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// State of a connection for in-place reads and sends when its carrier exposes no memory of its
// own: bytes that were read ahead, and output pending in order. It is borrowed from the loop's
// pool, and an idle connection has none. For the sources of this folder.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <system_error>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/core/chunks.h"
#include "conn/core/pending_output.h"
#include "conn/core/read_ahead.h"
#include "conn/in_place.h"
#include "conn/kit/ready_list.h"

namespace conn { inline namespace AECONN_ABI {

class ConnectionCore;
class InPlacePool;

class InPlace {
 public:
  explicit InPlace(InPlacePool& pool);
  InPlace(const InPlace&) = delete;
  InPlace& operator=(const InPlace&) = delete;

  void begin(ConnectionCore& connection) noexcept { connection_ = &connection; }

  ReadAhead read_ahead{*this};
  // For it:
  ConnectionCore& connection() noexcept { return *connection_; }
  InPlacePool* pool() noexcept { return pool_; }  ///< null between two loops
  void put(Chunk* chunk) noexcept;                ///< gives it back

  /// Call after the read or write handler was set or removed.
  void handler_changed() noexcept {
    read_ahead.queue();
    queue_refusing();
  }

  // --- sending: outbox.cc ------------------------------------------------------------------------
  std::span<std::byte> reserve(std::size_t size) noexcept { return output_.reserve(size); }
  void commit(std::size_t size) noexcept;
  bool send(const Outgoing& bytes) noexcept;
  /// Whether output is pending that was not handed to the carrier yet.
  bool waits() const noexcept { return output_.waits(); }
  const PendingOutput& output() const noexcept { return output_; }
  /// Hands pending output to the carrier as far as it accepts it. True if none is left.
  bool flush();
  /// Hands on pending output. True if the carrier accepts even more, so that no write would fail
  /// with EAGAIN.
  bool has_room();
  /// Reports that the carrier no longer needs the oldest `count` segments taken by Carrier::send().
  void references_done(std::size_t count, std::error_code error) noexcept;
  /// Discards all pending output.
  void drop(std::error_code error) noexcept;
  /// In a child of fork(): drops pending output, which the parent sends.
  void leave_to_parent() noexcept;
  /// Defers shutdown() until pending output is sent. write() fails from now on; the write handler
  /// runs so that the program learns of it.
  void shut_down_later() noexcept {
    shutdown_due_ = true;
    queue_refusing();
  }
  bool shutdown_due() const noexcept { return shutdown_due_; }
  /// Called by close(): true if it must wait for pending output.
  bool begin_drain() noexcept;

  // --- both --------------------------------------------------------------------------------------
  /// Returns to the pool if it holds nothing.
  void settle() noexcept;
  /// The connection is being destroyed: releases everything with an error.
  void end(std::error_code error) noexcept;
  void leave_loop() noexcept;
  void arrive(InPlacePool& pool) noexcept;

 private:
  friend class InPlacePool;
  template <std::size_t (InPlace::*kRun)()>
  struct Item final : ReadyItem {
    explicit Item(InPlace& its) : owner(its) {}
    std::size_t run_ready() override { return (owner.*kRun)(); }
    InPlace& owner;
  };
  std::size_t run_sending();
  std::size_t run_telling();
  std::size_t run_refusing();
  void queue_sending() noexcept;
  void queue_telling() noexcept;
  void queue_refusing() noexcept;
  bool offer_reference();
  void tell() noexcept;
  void set_blocked(bool blocked);
  void ask_carrier(bool for_an_event);
  void look_at_room();
  void discard();
  void finish_close() noexcept;
  void clear_timer() noexcept;

  InPlacePool* pool_;  // null between two loops
  ConnectionCore* connection_ = nullptr;

  PendingOutput output_;
  ae::TimerId timer_ = 0;  // linger time-out of close()
  bool shutdown_due_ = false;
  bool busy_ = false;  // functions of this object are on the stack
  Item<&InPlace::run_sending> sending_{*this};
  Item<&InPlace::run_telling> telling_{*this};
  Item<&InPlace::run_refusing> refusing_{*this};
};

/// In-place state of one loop. Member of its ConnectionSet.
class InPlacePool final : public ae::Source {
 public:
  explicit InPlacePool(ae::EventLoop& loop);
  ~InPlacePool() override;

  /// Null if memory ran out.
  InPlace* acquire(ConnectionCore& connection) noexcept;
  void release(InPlace* state) noexcept;
  ChunkPool& chunks() noexcept { return chunks_; }
  /// Handlers and releases that are due.
  ReadyList& ready() noexcept { return ready_; }
  /// Output to be sent at the end of the iteration.
  ReadyList& sending() noexcept { return sending_; }

  bool has_pending() const override { return !ready_.empty() || !sending_.empty(); }
  std::size_t process_pending() override { return ready_.process_pending(); }
  void flush() override { sending_.process_all(); }

 private:
  static constexpr std::size_t kKept = 64;
  ae::EventLoop& loop_;
  ChunkPool chunks_;
  ReadyList ready_{loop_}, sending_{loop_};
  std::vector<std::unique_ptr<InPlace>> idle_;  // capacity kKept is reserved at construction
};

}}  // namespace conn
