// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a connection keeps while bytes are read or sent in place and its transport has no memory of
// its own to show: bytes that were read ahead, and output that waits in order. Borrowed from its
// loop's pool; an idle connection has none. For connection.cc and connection_set.cc.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <system_error>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/connection.h"
#include "conn/core/chunks.h"
#include "conn/kit/ready_list.h"

namespace conn { inline namespace AECONN_ABI {

class InPlacePool;

class InPlace {
 public:
  explicit InPlace(InPlacePool& pool) : pool_(&pool) {}
  InPlace(const InPlace&) = delete;
  InPlace& operator=(const InPlace&) = delete;
  ~InPlace() = default;

  void begin(Connection& connection) noexcept { connection_ = &connection; }

  // --- receiving: in_place.cc --------------------------------------------------------------------
  std::size_t unread() const noexcept { return unread_ == nullptr ? 0 : unread_->held(); }
  View peek(std::size_t together);
  std::size_t consume(std::size_t size) noexcept;
  std::size_t read(void* into, std::size_t size) noexcept;
  /// The read handler need not wait for as many as peek() was asked for.
  void peek_anything() noexcept { wanted_ = 1; }
  /// The read or the write handler was set or removed.
  void handler_changed() noexcept {
    queue_reading();
    queue_refusing();
  }

  // --- sending: outbox.cc ------------------------------------------------------------------------
  static constexpr std::size_t kSegments = 64;
  /// With so much copied and unsent there is no more room.
  static constexpr std::size_t kMostHeld = 4 * kMaxContiguous;

  std::span<std::byte> reserve(std::size_t size) noexcept;
  void commit(std::size_t size) noexcept;
  bool send(const Outgoing& bytes) noexcept;
  bool reserving() const noexcept { return filling_ != nullptr; }
  /// Output that was not handed on yet.
  bool waits() const noexcept { return next_ != last_; }
  /// And what was handed on is the caller's again, and he knows.
  bool all_told() const noexcept { return first_ == last_; }
  /// Hands on what the transport takes. True if nothing waits any more.
  bool flush();
  /// Hands on what it takes, if the transport has room for more than that: no call that writes
  /// would say EAGAIN.
  bool has_room() { return (!waits() || flush()) && !connection_->output_full_; }
  /// The transport is done with so many of what do_send() took.
  void references_done(std::size_t count, std::error_code error) noexcept;
  /// Nothing that waits will be sent.
  void drop(std::error_code error) noexcept;
  /// In a child of fork(): drops what waits, which the parent sends.
  void leave_to_parent() noexcept;
  /// shutdown() waits for output. write() fails from now on, which the write handler runs for.
  void shut_down_later() noexcept {
    shutdown_due_ = true;
    queue_refusing();
  }
  /// shutdown_both() was called: nothing more is read, and the read handler runs for that.
  void end_reading() noexcept;
  bool reading_ended() const noexcept { return reading_ended_; }
  bool shutdown_due() const noexcept { return shutdown_due_; }
  /// close() was called: true if it has to wait for output.
  bool begin_drain() noexcept;

  // --- both --------------------------------------------------------------------------------------
  /// Goes back to the pool if it holds nothing.
  void settle() noexcept;
  /// The connection is going: everything is released, with an error.
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
  enum class Stage : std::uint8_t {
    kWaiting,
    kRefused,   ///< by do_send(): do_writev() takes it
    kHandedOn,  ///< do_send() took it
    kDone,
  };
  struct Segment {
    const std::byte* data = nullptr;
    std::size_t size = 0;
    Chunk* chunk = nullptr;  // that holds the bytes, if they were copied
    Outgoing::Release release = nullptr;
    void* context = nullptr;
    const Memory* memory = nullptr;
    std::error_code error;
    Stage stage = Stage::kWaiting;
    bool begun = false;  ///< do_send() took a part of it, or all
  };

  std::size_t run_reading();
  std::size_t run_sending();
  std::size_t run_telling();
  std::size_t run_refusing();
  void queue_reading() noexcept;
  void queue_sending() noexcept;
  void queue_telling() noexcept;
  void queue_refusing() noexcept;
  bool make_room(std::size_t together) noexcept;
  void drop_unread() noexcept;
  Segment& at(std::size_t index) noexcept { return segments_[index % kSegments]; }
  bool full() const noexcept { return last_ - first_ == kSegments; }
  bool offer_reference();
  int gather(iovec* vectors) noexcept;
  void taken(std::size_t size) noexcept;
  void done(Segment& segment, std::error_code error) noexcept;
  void unuse(Chunk* chunk) noexcept;
  void put(Chunk* chunk) noexcept;
  void tell() noexcept;
  void set_blocked(bool blocked);
  void ask_transport(bool for_an_event);
  void look_at_room();
  void discard();
  void finish_close() noexcept;
  void clear_timer() noexcept;

  InPlacePool* pool_;  // null on the way to another loop
  Connection* connection_ = nullptr;

  Chunk* unread_ = nullptr;
  std::size_t wanted_ = 1;  // unread bytes that the read handler waits for

  Chunk* filling_ = nullptr;  // reserve() gave its end
  std::size_t held_ = 0;      // copied bytes that wait
  std::array<Segment, kSegments> segments_;
  // Of segments_, modulo its size: done from first_ on, handed on before next_.
  std::size_t first_ = 0, next_ = 0, last_ = 0;
  std::size_t done_early_ = 0;  // references, before do_send() has returned
  ae::TimerId timer_ = 0;       // of close()
  bool shutdown_due_ = false;
  bool reading_ended_ = false;
  bool busy_ = false;  // functions of this object are on the stack
  Item<&InPlace::run_reading> reading_{*this};
  Item<&InPlace::run_sending> sending_{*this};
  Item<&InPlace::run_telling> telling_{*this};
  Item<&InPlace::run_refusing> refusing_{*this};
};

/// What one loop keeps for them. Member of its ConnectionSet.
class InPlacePool final : public ae::Source {
 public:
  explicit InPlacePool(ae::EventLoop& loop);
  ~InPlacePool() override;

  /// Null: there is no memory.
  InPlace* acquire(Connection& connection) noexcept;
  void release(InPlace* state) noexcept;
  ChunkPool& chunks() noexcept { return chunks_; }
  /// Handlers and releases that are due.
  ReadyList& ready() noexcept { return ready_; }
  /// Output that leaves at the end of the iteration.
  ReadyList& sending() noexcept { return sending_; }

  bool has_pending() const override { return !ready_.empty() || !sending_.empty(); }
  std::size_t process_pending() override { return ready_.process_pending(); }
  void flush() override { sending_.process_all(); }

 private:
  static constexpr std::size_t kKept = 64;
  ae::EventLoop& loop_;
  ChunkPool chunks_;
  ReadyList ready_{loop_}, sending_{loop_};
  std::vector<std::unique_ptr<InPlace>> idle_;  // has room for kKept from the beginning
};

}}  // namespace conn
