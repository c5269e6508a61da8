// SPDX-License-Identifier: BSD-3-Clause
#include "relay.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <new>
#include <span>
#include <utility>

#include "conn/connection_type.h"

namespace proxy {
namespace {

// Pieces that one direction passes on before other connections get served.
constexpr int kTurn = 16;
// A piece smaller than this was all the data available.
constexpr ssize_t kSmallPiece = 4096;
// Size to request if the next piece is likely to be small.
constexpr std::size_t kLeastRoom = 16 * 1024;
// How long data that one end sent before it failed is still passed on, and the check interval.
constexpr ae::Duration kLastWords = std::chrono::seconds(3);
constexpr ae::Duration kLook = std::chrono::milliseconds(10);

/// Whether the transport or the kernel holds unsent bytes that an abort() would discard. Sends what
/// the peer can receive now.
bool has_unsent(conn::Connection& connection) {
  connection.flush();
  // A failure of the connection may have the code ETIMEDOUT, too.
  if (connection.sync_write(nullptr, 0, ae::Duration::zero()) != 0 && errno == ETIMEDOUT &&
      connection.state() == conn::State::kConnected && !connection.why_ended())
    return true;
  int bytes = 0;
  return connection.type().capabilities().reset && connection.fd() >= 0 &&
         ioctl(connection.fd(), SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

}  // namespace

Counters& Counters::operator+=(const Counters& other) noexcept {
  accepted += other.accepted;
  joined += other.joined;
  failed += other.failed;
  left += other.left;
  broken += other.broken;
  idle += other.idle;
  upward += other.upward;
  downward += other.downward;
  return *this;
}

/// If memory is exhausted, only this relay ends.
template <typename Step>
void Relay::attempt(const Step& step) {
  try {
    step();
  } catch (const std::bad_alloc&) {
    ++(joined_ ? counters_.broken : counters_.failed);
    abort();
    owner_.over(*this, "no memory");
  }
}

Relay::Relay(Owner& owner, Counters& counters, conn::ConnectionPtr client)
    : owner_(owner),
      counters_(counters),
      client_(std::move(client)),
      client_name_(conn::printable(client_->peer_address())),
      last_byte_(client_->loop()->now()) {
  ++counters_.accepted;
}

Relay::~Relay() {
  if (timer_ != 0 && client_ && client_->loop() != nullptr)
    client_->loop()->remove_time_event(timer_);
}

void Relay::connect(conn::ConnectionPtr server, const conn::Endpoint& to, std::string greeting) {
  server_ = std::move(server);
  greeting_ = std::move(greeting);
  up_ = {client_.get(), server_.get(), &counters_.upward};
  down_ = {server_.get(), client_.get(), &counters_.downward};
  hear_of_failure(up_);
  server_->connect(to, [this](conn::Connection& there) {
    attempt([this, &there] {
      if (there.state() == conn::State::kConnected) return join();
      not_reached(there.last_error());
    });
  });
}

void Relay::not_reached(std::string why) noexcept {
  ++counters_.failed;
  abort();
  owner_.over(*this, why);
}

void Relay::join() {
  // A new connection has room for so few bytes, so a shorter write is a failure.
  if (!greeting_.empty() &&
      server_->write(greeting_.data(), greeting_.size()) != static_cast<ssize_t>(greeting_.size()))
    return not_reached("the PROXY protocol header was not sent: " + server_->last_error());
  ++counters_.joined;
  joined_ = true;
  for (Flow* each : {&up_, &down_}) {
    each->in_place = each->to->type().capabilities().in_place;
    each->piece = kLeastRoom;
  }
  hear_of_failure(down_);
  watch(up_);
  watch(down_);
}

void Relay::watch(Flow& flow) {
  flow.from->set_read_handler(
      [this, &flow](conn::Connection&) { attempt([this, &flow] { pump(flow); }); });
}

void Relay::pump(Flow& flow) {
  for (int i = 0; i < kTurn; ++i) {
    const ssize_t n = flow.in_place ? receive_into(flow) : pass_on(flow);
    if (n <= 0) return;
    *flow.counter += static_cast<std::uint64_t>(n);
    last_byte_ = flow.from->loop()->now();
    // Probably no more data: if there is, the loop reports it, which costs less than another read.
    if (n < kSmallPiece) return;
  }
}

/// Writes received data directly from the receive buffer. Returns the number of bytes passed on, or
/// 0 if there is nothing to do for now or the relay is gone.
ssize_t Relay::pass_on(Flow& flow) {
  const conn::View view = flow.from->peek();
  if (view.size == 0) return nothing_read(flow, errno);
  const ssize_t n = flow.to->writev(view.pieces.data(), view.count);
  if (n < 0) return nothing_written(flow);
  const auto taken = static_cast<std::size_t>(n);
  flow.from->consume(taken);
  if (taken == view.size) return n;
  *flow.counter += taken;
  last_byte_ = flow.from->loop()->now();
  wait_for_room(flow);
  return 0;
}

/// Reads directly into memory that the receiver sends from, which saves a copy.
ssize_t Relay::receive_into(Flow& flow) {
  const std::span<std::byte> room = flow.to->reserve(flow.piece);
  if (room.empty()) return nothing_written(flow);
  const ssize_t n = flow.from->read(room.data(), room.size());
  const int error = n < 0 ? errno : 0;
  flow.to->commit(n > 0 ? static_cast<std::size_t>(n) : 0);
  if (n <= 0) return nothing_read(flow, error);
  // A read that filled the buffer probably has more to follow.
  flow.piece = static_cast<std::size_t>(n) == room.size() ? conn::kMaxContiguous : kLeastRoom;
  return n;
}

ssize_t Relay::nothing_read(Flow& flow, int error) {
  if (error == 0) {
    end(flow);
  } else if (error != EAGAIN && error != ENOMEM) {
    cut(flow);
  }
  return 0;
}

ssize_t Relay::nothing_written(Flow& flow) {
  if (errno == EAGAIN) {
    wait_for_room(flow);
  } else if (errno != ENOMEM) {
    give_up(flow);
  }
  return 0;
}

/// A peer that no longer reads may still have sent data, such as an answer or an error. The other
/// direction passes that on and then sees the same end of stream.
void Relay::give_up(Flow& flow) {
  if (back(flow).ended) return cut(back(flow));
  drop(flow);
}

/// Discards further data so that its sender continues and reads.
void Relay::drop(Flow& flow) {
  flow.ended = true;
  flow.to->set_write_handler(nullptr);
  flow.from->set_read_handler([](conn::Connection& from) {
    std::array<char, 4096> scratch;
    ssize_t n = 0;
    for (int i = 0; i < kTurn && (n = from.read(scratch.data(), scratch.size())) > 0;) ++i;
    if (n == 0 || (n < 0 && errno != EAGAIN)) from.set_read_handler(nullptr);
  });
}

/// Reads from the sender again once the receiver is writable.
void Relay::wait_for_room(Flow& flow) {
  flow.to->set_write_handler([this, &flow](conn::Connection&) {
    attempt([this, &flow] {
      flow.to->set_write_handler(nullptr);
      watch(flow);
      pump(flow);
    });
  });
  flow.from->set_read_handler(nullptr);
}

void Relay::end(Flow& flow) {
  flow.ended = true;
  // If either side does not support half-close, the end of one direction ends both. Over rdma that
  // depends on the peer: the state then is kClosed, or shutdown() says so.
  const bool half = flow.to->type().capabilities().half_close &&
                    flow.from->type().capabilities().half_close &&
                    flow.from->state() == conn::State::kConnected;
  if (!half || (up_.ended && down_.ended)) return owner_.over(*this, "");
  flow.from->set_read_handler(nullptr);
  if (flow.to->shutdown() == 0) return;
  if (errno == EOPNOTSUPP) return owner_.over(*this, "");
  give_up(flow);
}

// --- failures ------------------------------------------------------------------------------------

/// Learns of a failure of the sender even while nothing is read from it: the receiver may be
/// blocked, or the end of stream was already seen.
void Relay::hear_of_failure(Flow& flow) {
  flow.from->set_close_handler(
      [this, &flow](conn::Connection&) { attempt([this, &flow] { failed(flow); }); },
      conn::CloseOn::kFailure);
}

void Relay::failed(Flow& flow) {
  if (flow.ended || flow.to->state() != conn::State::kConnected) return cut(flow);
  // Data received earlier is passed on to the other end, for a bounded time; data for the failed
  // end is dropped.
  if (!back(flow).ended) drop(back(flow));
  cut_by_ = flow.from->loop()->now() + kLastWords;
  if (timer_ != 0) return;
  cut_after(kLastWords, flow);
}

void Relay::cut_after(ae::Duration delay, Flow& flow) {
  timer_ = flow.from->loop()->add_time_event(delay, [this, &flow] {
    timer_ = 0;
    attempt([this, &flow] { cut(flow); });
    return ae::kNoMore;
  });
}

/// The sender has failed, and everything it sent was written: the receiver must see a failure, too.
void Relay::cut(Flow& flow) {
  conn::Connection& failed = *flow.from;
  ae::EventLoop& loop = *failed.loop();
  if (cut_by_ == ae::TimePoint{}) cut_by_ = loop.now() + kLastWords;
  if (flow.to->state() == conn::State::kConnected && has_unsent(*flow.to) && loop.now() < cut_by_) {
    flow.ended = true;
    failed.set_read_handler(nullptr);
    if (!back(flow).ended) drop(back(flow));
    if (timer_ != 0) loop.remove_time_event(std::exchange(timer_, 0));
    return cut_after(kLook, flow);
  }
  const std::string text = failed.why_ended().text;  // comes first: it may throw
  // A peer that closes while the other end still writes is not counted as a failure.
  const std::error_code why = failed.why_ended().code;
  const bool ordinary = !why || why == std::errc::broken_pipe || why == std::errc::connection_reset;
  if (!joined_)
    ++counters_.left;
  else if (!ordinary)
    ++counters_.broken;
  abort();
  owner_.over(*this, text);
}

void Relay::abort() noexcept {
  if (timer_ != 0 && client_ && client_->loop() != nullptr)
    client_->loop()->remove_time_event(std::exchange(timer_, 0));
  for (conn::ConnectionPtr* each : {&client_, &server_})
    if (*each) each->release()->abort();
}

void Relay::cut_short() noexcept {
  if (client_->loop() == nullptr) return;  // it has ended, and so have the connections
  try {
    if (at_rest()) return;
  } catch (const std::bad_alloc&) {  // then it is not known
  }
  abort();
}

/// Whether an end of stream now cuts nothing that the proxy knows of.
bool Relay::at_rest() const {
  return client_->state() == conn::State::kConnected && server_ != nullptr &&
         server_->state() == conn::State::kConnected && at_rest(up_) && at_rest(down_);
}

/// A direction that has ended is not at rest: its sender may be waiting for an answer.
bool Relay::at_rest(const Flow& flow) const {
  if (flow.ended || flow.to->has_write_handler()) return false;
  return flow.from->peek().size == 0 && errno == EAGAIN;
}

}  // namespace proxy
