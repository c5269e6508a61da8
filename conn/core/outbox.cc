// SPDX-License-Identifier: BSD-3-Clause
// The part of InPlace that sends, for any Carrier. Output from commit() and send() is queued in
// order, and is passed to the Carrier at the end of the iteration.

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

#include "conn/core/connection_core.h"
#include "conn/core/in_place_state.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

// A closed connection that still sends output also reads and discards input. This is the maximum
// number of its reads in one iteration.
constexpr int kDiscards = 16;

std::error_code code_of(int err) { return {err, std::generic_category()}; }

/// Keeps an InPlace object from returning to the pool while one of its functions is executing.
class Busy {
 public:
  explicit Busy(bool& flag) : flag_(flag), before_(std::exchange(flag, true)) {}
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  ~Busy() { flag_ = before_; }

 private:
  bool& flag_;
  bool before_;
};

}  // namespace

// --- queueing output of the program --------------------------------------------------------------

void InPlace::commit(std::size_t size) noexcept {
  if (output_.commit(size))
    queue_sending();
  else
    settle();
}

bool InPlace::send(const Outgoing& bytes) noexcept {
  if (!output_.push(bytes, connection_->carrier_->sends_in_place(bytes))) return false;
  queue_sending();
  return true;
}

// --- passing output to the Carrier ---------------------------------------------------------------

/// Offers the next segment of output to the Carrier without copying it. Returns true if the Carrier
/// took it, or refused it for good, so that it will be written instead; false if the Carrier takes
/// nothing now.
bool InPlace::offer_reference() {
  const Outgoing bytes = output_.offer();
  if (bytes.bytes.empty()) {
    output_.refused();
    output_.written(0);
    return true;
  }
  const ssize_t n = connection_->carrier_->send(bytes);
  if (n >= 0)
    output_.lent(static_cast<std::size_t>(n));
  else if (errno == EOPNOTSUPP)
    output_.refused();
  else
    return false;
  return true;
}

bool InPlace::flush() {
  const Busy busy(busy_);
  if (connection_->inherited()) [[unlikely]]
    leave_to_parent();
  bool blocked = false;
  while (output_.waits() && !blocked) {
    // The connection has ended since the program reserved the buffer for this output, so the output
    // is discarded.
    if (connection_->state_ != State::kConnected) {
      drop(connection_->failure_ ? connection_->failure_.code : code_of(EPIPE));
      break;
    }
    if (output_.next_is_reference()) {
      blocked = !offer_reference();
      continue;
    }
    std::array<iovec, PendingOutput::kSegments> vectors;
    const int count = output_.gather(vectors.data());
    std::size_t asked = 0;
    for (int i = 0; i < count; ++i) asked += vectors[static_cast<std::size_t>(i)].iov_len;
    if (asked == 0) {  // a Carrier must not be called with zero bytes
      output_.written(0);
      continue;
    }
    const ssize_t n = connection_->carrier_->writev(vectors.data(), count);
    if (n >= 0) {
      output_.written(static_cast<std::size_t>(n));
      blocked = static_cast<std::size_t>(n) < asked;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      blocked = true;
    } else {
      drop(code_of(errno));
    }
  }
  queue_telling();
  look_at_room();
  if (output_.waits() != connection_->wanted_.blocked) set_blocked(output_.waits());
  if (!output_.waits() && shutdown_due_) {
    shutdown_due_ = false;
    if (connection_->state_ == State::kConnected)
      (void)connection_->shut_carrier_down(read_ahead.ended());
  }
  return !output_.waits();
}

bool InPlace::has_room() { return (!output_.waits() || flush()) && !connection_->wanted_.full; }

/// Sets whether output waits for the Carrier, which sends it: the Carrier must then signal when it
/// accepts more data.
void InPlace::set_blocked(bool blocked) {
  connection_->wanted_.blocked = blocked;
  ask_carrier(blocked);
}

void InPlace::ask_carrier(bool for_an_event) {
  if (!connection_->events_wanted()) return;
  try {
    connection_->carrier_->interest_changed();
  } catch (const std::bad_alloc&) {
    // Without the Carrier's event, the output would never be sent, so the connection fails.
    if (for_an_event) connection_->fail(out_of_memory());
  }
}

/// Disables the write handler while the queue of output segments is full, even if the Carrier
/// accepts data: a segment that was passed to the Carrier stays in the queue until the Carrier no
/// longer needs it.
void InPlace::look_at_room() {
  const bool is_full = output_.full() && connection_->state_ == State::kConnected;
  if (is_full == connection_->wanted_.full) return;
  connection_->wanted_.full = is_full;
  if (connection_->wanted_.write) ask_carrier(!is_full);
}

// --- output that is no longer needed: release functions ------------------------------------------

void InPlace::references_done(std::size_t count, std::error_code error) noexcept {
  output_.given_back(count, error);
  queue_telling();
}

void InPlace::drop(std::error_code error) noexcept {
  output_.drop(error);
  connection_->wanted_.blocked = false;
  const bool was_full = std::exchange(connection_->wanted_.full, false);
  shutdown_due_ = false;
  queue_telling();
  if (was_full && connection_->wanted_.write) ask_carrier(true);
}

void InPlace::leave_to_parent() noexcept {
  const bool was_blocked = connection_->wanted_.blocked;
  drop(std::make_error_code(std::errc::operation_canceled));
  if (was_blocked) ask_carrier(false);
}

void InPlace::queue_sending() noexcept {
  if (pool_ != nullptr) pool_->sending().push(sending_);
}

/// Schedules the calls of the release functions of output that the Carrier no longer needs. They
/// are called from the event loop, which does not sleep until then.
void InPlace::queue_telling() noexcept {
  const bool to_tell = output_.has_release();
  const bool to_close = connection_->given_up() && !connection_->closing() && !output_.waits();
  if (pool_ != nullptr && (to_tell || to_close)) pool_->ready().push(telling_);
  if (connection_->wanted_.full) look_at_room();
}

/// Calls the release functions that the program passed to send(), for output that the Carrier no
/// longer needs, in the order of the calls of send(). Called from the event loop, and when the
/// connection ends.
void InPlace::tell() noexcept {
  const Busy busy(busy_);
  while (output_.has_release()) {
    const PendingOutput::Release release = output_.take_release();
    release.call(release.context, release.error);
  }
  look_at_room();
}

/// Called by the loop at the end of an iteration: passes output to the Carrier. Runs no handler.
std::size_t InPlace::run_sending() {
  ConnectionCore& connection = *connection_;
  if (output_.waits() && !connection.wanted_.blocked) {
    (void)flush();
    if (connection.state_ == State::kConnected && !connection.inherited())
      (void)connection.carrier_->flush(ae::TimePoint::min());
  }
  settle();
  return 0;
}

std::size_t InPlace::run_telling() {
  tell();
  if (connection_->given_up() && !connection_->closing() && !output_.waits())
    finish_close();
  else
    settle();
  return 1;
}

/// While shutdown() waits until pending output was sent, write() fails with EPIPE. Queues the write
/// handler so that the program learns that, because a Carrier that accepts no data does not run it.
void InPlace::queue_refusing() noexcept {
  if (pool_ == nullptr) return;
  if (connection_->wanted_.write && shutdown_due_)
    pool_->ready().push(refusing_);
  else
    refusing_.unqueue();
}

std::size_t InPlace::run_refusing() {
  ConnectionCore& connection = *connection_;
  if (!connection.wanted_.write || !shutdown_due_ || connection.given_up()) return 0;
  struct Requeue {  // the destructor queues the handler again, even if the handler throws
    ConnectionCore& connection;
    ~Requeue() {
      if (!connection.given_up() && connection.in_place_ != nullptr)
        connection.in_place_->queue_refusing();
    }
  } requeue{connection};
  (void)connection.run(connection.on_write_, false);
  return 1;
}

// --- the end of the connection -------------------------------------------------------------------

bool InPlace::begin_drain() noexcept {
  const Busy busy(busy_);
  read_ahead.drop();
  if (output_.reserving()) output_.stop_filling();
  try {
    if (flush()) return false;
    timer_ = connection_->loop_->add_time_event(connection_->carrier_->linger(), [this] {
      timer_ = 0;
      give_up_output(code_of(ETIMEDOUT));
      return ae::kNoMore;
    });
    connection_->put(connection_->on_read_, connection_->wanted_.read, [](Connection& one) {
      if (InPlace* const its = ConnectionCore::of(one).in_place_; its != nullptr) its->discard();
    });
    connection_->carrier_->interest_changed();
    return true;
  } catch (const std::exception&) {
    // There is no memory to wait for the output, so it is discarded.
    clear_timer();
    connection_->put(connection_->on_read_, connection_->wanted_.read);
    give_up_output(code_of(ENOMEM));
    return false;
  }
}

/// Discards the output of a closed connection. The Carrier then aborts, so that the peer does not
/// take what it received for the whole stream.
void InPlace::give_up_output(std::error_code error) noexcept {
  drop(error);
  connection_->aborts_ = true;
}

/// Reads and discards input while a closed connection still sends. Without this, a peer that reads
/// nothing before all its own output has been read would never take the rest of this end's output.
void InPlace::discard() {
  Chunk* const scratch = pool_->chunks().acquire(ChunkPool::kSmall);
  if (scratch == nullptr) return;
  bool over = false, dry = false;
  for (int i = 0; i < kDiscards && !over && !dry; ++i) {
    over = connection_->state_ != State::kConnected;
    if (over) break;
    const ssize_t n = connection_->carrier_->read(scratch->data(), scratch->size);
    dry = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    over = n <= 0 && !dry;
  }
  pool_->chunks().release(scratch);
  if (!over) return;
  connection_->put(connection_->on_read_, connection_->wanted_.read);
  set_blocked(output_.waits());
}

void InPlace::finish_close() noexcept {
  clear_timer();
  connection_->put(connection_->on_read_, connection_->wanted_.read);
  connection_->ending_ = ConnectionCore::Ending::kClosing;
  if (connection_->inherited())
    connection_->leave_to_parent();
  else
    connection_->carrier_->close();
}

void InPlace::clear_timer() noexcept {
  if (timer_ != 0) connection_->loop_->remove_time_event(std::exchange(timer_, 0));
}

void InPlace::end(std::error_code error) noexcept {
  busy_ = true;
  if (timer_ != 0) clear_timer();
  read_ahead.drop();
  output_.end(error);
  tell();
  sending_.unqueue();
  telling_.unqueue();
  refusing_.unqueue();
  busy_ = shutdown_due_ = false;
  read_ahead.reset();
  connection_->in_place_ = nullptr;
  connection_->wanted_.blocked = connection_->wanted_.full = false;
  if (pool_ != nullptr)
    pool_->release(this);
  else
    delete this;
}

}}  // namespace conn
