// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// InPlace: the state of a connection's in-place reads and sends if its Carrier gives no access to
// memory of its own. It contains bytes that were read ahead, and pending output in order. A
// connection borrows one from the loop's pool when it needs it, and returns it when it is empty.
// For the sources of this folder.

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
  // connection(), pool() and put() are called by the member read_ahead.
  ConnectionCore& connection() noexcept { return *connection_; }
  /// The pool of the loop; null while the connection moves between loops.
  InPlacePool* pool() noexcept { return pool_; }
  /// Returns a chunk to the loop's pool, or frees it if there is no pool.
  void put(Chunk* chunk) noexcept;

  /// To be called after the read or write handler was set or removed. Queues those handlers that
  /// this object runs, if they are due.
  void handler_changed() noexcept {
    read_ahead.queue();
    queue_refusing();
  }

  // --- sending, implemented in outbox.cc ---------------------------------------------------------
  std::span<std::byte> reserve(std::size_t size) noexcept { return output_.reserve(size); }
  void commit(std::size_t size) noexcept;
  bool send(const Outgoing& bytes) noexcept;
  /// The output, of which a part may not have been passed to the Carrier yet (waits()).
  const PendingOutput& output() const noexcept { return output_; }
  /// Passes pending output to the Carrier, as far as the Carrier accepts it. Returns true if no
  /// output is left.
  bool flush();
  /// Passes pending output to the Carrier. Returns true if the Carrier accepts even more, so that a
  /// write would not fail with EAGAIN.
  bool has_room();
  /// Reports that the Carrier no longer needs the oldest `count` of the output segments that
  /// Carrier::send() has taken.
  void references_done(std::size_t count, std::error_code error) noexcept;
  /// Discards all output that the Carrier has not taken. The release functions of this output get
  /// `error` as the reason.
  void drop(std::error_code error) noexcept;
  /// Discards pending output in a child of fork(), because the parent process sends it.
  void leave_to_parent() noexcept;
  /// Postpones shutdown() until pending output is sent. Meanwhile write() fails, and the write
  /// handler runs so that the program learns of it.
  void shut_down_later() noexcept {
    shutdown_due_ = true;
    queue_refusing();
  }
  bool shutdown_due() const noexcept { return shutdown_due_; }
  /// Called by close(): sends pending output, as far as the Carrier accepts it. Returns true if
  /// some is left, which must be sent before the Carrier is closed.
  bool begin_drain() noexcept;

  // --- reading and sending -----------------------------------------------------------------------
  /// Returns this object to the pool if it holds no data and has nothing left to do.
  void settle() noexcept;
  /// Releases all data and output, which ends with `error`, because the connection is being
  /// destroyed.
  void end(std::error_code error) noexcept;
  /// Returns whether one of this object's functions is executing: it may have called a release
  /// function of the program.
  bool busy() const noexcept { return busy_; }
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
  void give_up_output(std::error_code error) noexcept;
  void finish_close() noexcept;
  void clear_timer() noexcept;

  InPlacePool* pool_;  // the pool of the loop; null while the connection moves between loops
  ConnectionCore* connection_ = nullptr;

  PendingOutput output_;
  // Timer that limits how long a closed connection waits for its pending output to be sent; 0: no
  // timer.
  ae::TimerId timer_ = 0;
  bool shutdown_due_ = false;
  // True if functions of this object are executing, so that it must not return to the pool yet.
  bool busy_ = false;
  Item<&InPlace::run_sending> sending_{*this};
  Item<&InPlace::run_telling> telling_{*this};
  Item<&InPlace::run_refusing> refusing_{*this};
};

/// The InPlace objects and memory chunks of one loop, for reuse. Owned by the loop's ConnectionSet.
/// While no connection is in its lists, the loop does not ask it for work (ae::Source::rest()).
class InPlacePool final : public ae::Source {
 public:
  explicit InPlacePool(ae::EventLoop& loop);
  ~InPlacePool() override;

  /// Returns an InPlace object for the connection; null if memory has run out.
  InPlace* acquire(ConnectionCore& connection) noexcept;
  void release(InPlace* state) noexcept;
  ChunkPool& chunks() noexcept { return chunks_; }
  /// The list of the read handlers, write handlers and release functions that are due to run.
  ReadyList& ready() noexcept { return ready_; }
  /// The list of the connections whose output is to be sent at the end of the iteration.
  ReadyList& sending() noexcept { return sending_; }

  bool has_pending() const override { return !ready_.empty() || !sending_.empty(); }
  std::size_t process_pending() override { return ready_.process_pending(); }
  void flush() override {
    sending_.process_all();
    if (!has_pending()) rest();
  }

 private:
  static constexpr std::size_t kKept = 64;
  ae::EventLoop& loop_;
  ChunkPool chunks_;
  ReadyList ready_{loop_, *this}, sending_{loop_, *this};
  // InPlace objects that no connection uses, at most kKept. The constructor reserves memory for so
  // many pointers.
  std::vector<std::unique_ptr<InPlace>> idle_;
};

}}  // namespace conn
