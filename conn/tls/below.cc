// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/below.h"

#include <linux/tls.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "conn/connection_type.h"
#include "conn/core/connection_core.h"
#include "conn/core/counting.h"
#include "conn/kit/probes.h"

#ifndef SOL_TLS
#define SOL_TLS 282  // value from linux/socket.h, since the headers of the C library may lack it
#endif

namespace conn { inline namespace AECONN_ABI { namespace tls {
Below::~Below() {
  if (exists() && !closing() && loop_ != nullptr) carrier_->abandon();
  carrier_.reset();
  leave_counters();
}

void Below::take(ConnectionPtr connection) {
  early_ = ConnectionCore::hand_over(std::move(connection), *this);
}

void Below::connect(const Endpoint& to) {
  move_to(State::kConnecting);
  wanted_.connected = true;
  try {
    carrier_->connect(to);
  } catch (...) {  // the TLS connection above learns the reason from the exception
    wanted_.connected = false;
    fail(out_of_memory());
    throw;
  }
}

bool Below::connect_blocking(const Endpoint& to, ae::TimePoint deadline) {
  move_to(State::kConnecting);
  try {
    return wait_to_connect(to, deadline);
  } catch (...) {
    fail(out_of_memory());
    throw;
  }
}

// --- reading and writing bytes -------------------------------------------------------------------

/// Returns whether reading and writing are refused (errno ECANCELED): in a forked child, and after
/// the end of the loop.
bool Below::cut_off() const noexcept {
  if (!inherited() && loop_ != nullptr) return false;
  errno = ECANCELED;
  return true;
}

ssize_t Below::receive(void* buffer, std::size_t size) {
  if (cut_off()) return -1;
  if (size == 0) return 0;
  if (!early_.empty()) {
    size = early_.copy(static_cast<char*>(buffer), size);
    early_.erase(0, size);
    return finish_read(static_cast<ssize_t>(size));
  }
  if (state_ != State::kConnected && !keeps_unread()) return refuse(ae::kReadable);
  try {
    return finish_read(carrier_->read(buffer, size));
  } catch (const std::bad_alloc&) {
    // the exception must not pass through OpenSSL's functions, which are on the stack
    errno = ENOMEM;
    return -1;
  }
}

ssize_t Below::transmit(const void* buffer, std::size_t size) {
  if (cut_off()) return -1;
  if (state_ != State::kConnected) return refuse(ae::kWritable);
  try {
    return finish_write(carrier_->write(buffer, size), size);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
}

/// Sends a record of a type other than data over a socket with kernel TLS; see "Sending TLS control
/// messages" in Linux, Documentation/networking/tls.rst.
ssize_t Below::transmit_record(std::uint8_t type, const void* buffer, std::size_t size) {
  if (cut_off()) return -1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof type)> control{};
  iovec vector{const_cast<void*>(buffer), size};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_TLS;
  header->cmsg_type = TLS_SET_RECORD_TYPE;
  header->cmsg_len = CMSG_LEN(sizeof type);
  std::memcpy(CMSG_DATA(header), &type, sizeof type);
  return ::sendmsg(carrier_->facts().fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t Below::write_plain(const iovec* vectors, int count) {
  std::size_t asked = 0;
  for (int i = 0; i < count; ++i) asked += vectors[i].iov_len;
  ssize_t n = -1;
  if (!cut_off())
    n = state_ != State::kConnected ? refuse(ae::kWritable)
                                    : finish_write(carrier_->writev(vectors, count), asked);
  full_ = n < 0 ? errno == EAGAIN : static_cast<std::size_t>(n) < asked;
  return n;
}

// --- events of the Carrier -----------------------------------------------------------------------

void Below::watch(ae::Mask wanted) {
  const Wanted before = wanted_;
  const bool watched_close = watches_close_;
  wanted_.read = (wanted & ae::kReadable) != 0;
  wanted_.write = (wanted & ae::kWritable) != 0;
  watches_close_ = wants_close();
  const bool same = wanted_.read == before.read && wanted_.write == before.write &&
                    watches_close_ == watched_close;
  if (same && !inherited()) return;
  try {
    carrier_->interest_changed();
  } catch (...) {
    wanted_ = before;
    watches_close_ = watched_close;
    throw;
  }
}

CarrierHost::Alive Below::run_connect_handler() {
  if (std::exchange(wanted_.connected, false)) user_->below_connected();
  return closing() ? Alive::kGone : Alive::kYes;
}

CarrierHost::Alive Below::run_read_handler() {
  if (wanted_.read) run_watched(true, [this] { user_->below_readable(); });
  return closing() ? Alive::kGone : Alive::kYes;
}

CarrierHost::Alive Below::run_write_handler() {
  if (wanted_.write) run_watched(false, [this] { user_->below_writable(); });
  return closing() ? Alive::kGone : Alive::kYes;
}

void Below::state_changed(State from) noexcept {
  count_state(from);
  if (from == State::kConnecting && state_ == State::kConnected) {
    const std::string_view name = carrier_->type().name();
    const CarrierHost* const connection = this;
    AECONN_PROBE(connect, id_, connection, name.data(), name.size());
  }
  if (state_ == State::kError) peer_gone_changed();
}

void Below::peer_gone_changed() noexcept {
  if (CarrierHost* const up = above(); up != nullptr && up->state() == State::kConnected)
    up->peer_gone();
}

void Below::path_changed() noexcept {
  if (CarrierHost* const up = above(); up != nullptr) up->path_changed();
}

bool Below::wants_close() const noexcept {
  const CarrierHost* const up = above();
  return up != nullptr && up->state() == State::kConnected && up->wants_close();
}

void Below::set_origin(Origin origin) {
  origin_ = std::make_unique<const Origin>(std::move(origin));
}

// --- moving to another loop ----------------------------------------------------------------------

bool Below::can_move() const noexcept {
  return exists() && (carrier_->type().capabilities().rebind || carrier_->can_move());
}

bool Below::leave(ae::EventLoop* to) {
  if (!exists()) return true;
  if (closing() || !can_move()) {
    errno = closing() ? EBUSY : EOPNOTSUPP;
    return false;
  }
  if (!carrier_->leave(to)) return false;
  leave_counters();
  loop_ = to;
  return true;
}

bool Below::join(ae::EventLoop& loop) {
  if (!exists()) return true;
  const bool stood = state_ != State::kError;
  enter_loop(loop);
  try {
    enter_counters(loop);
  } catch (const std::bad_alloc&) {
    if (!closing()) fail(out_of_memory());
  }
  if (!carrier_->join(loop) && !closing()) fail(out_of_memory());
  if (!closing()) watch_or_fail();
  return !stood || state_ != State::kError;
}

// --- the end of the connection -------------------------------------------------------------------

void Below::shutdown_both() {
  if (state_ == State::kConnected) (void)carrier_->shutdown_both();
}

void Below::close(bool abort) noexcept {
  if (carrier_ == nullptr || closing()) return;
  ending_ = Ending::kClosing;
  aborts_ = abort;
  wanted_ = {};
  count_close();
  if (!inherited()) return carrier_->close();
  // In a child of fork(): sends nothing, because the connection belongs to the parent.
  carrier_->abandon();
  release();
}

void Below::released() noexcept {
  place_.reset();
  leave_counters();
  if (CarrierHost* const up = above(); up != nullptr && up->closing()) up->release();
}

void Below::abandon() noexcept {
  if (const CarrierHost* const up = above(); up != nullptr && up->aborts()) aborts_ = true;
  if (exists()) carrier_->abandon();
  leave_counters();
  wanted_ = {};
  loop_ = nullptr;
}

ae::Duration Below::end_linger() const noexcept {
  return exists() ? carrier_->end_linger() : ae::Duration::zero();
}

bool Below::drain(ae::TimePoint until) noexcept {
  return end_linger() <= ae::Duration::zero() || carrier_->drain(until);
}

}}}  // namespace conn::tls
