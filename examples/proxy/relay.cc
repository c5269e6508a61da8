#include "relay.h"

#include <cerrno>
#include <utility>

#include "conn/connection_type.h"

namespace proxy {
namespace {

// Pieces that one direction passes before others have their turn.
constexpr int kTurn = 16;

}  // namespace

Counters& Counters::operator+=(const Counters& other) noexcept {
  accepted += other.accepted;
  joined += other.joined;
  failed += other.failed;
  broken += other.broken;
  idle += other.idle;
  upward += other.upward;
  downward += other.downward;
  return *this;
}

Relay::Relay(Owner& owner, Counters& counters, conn::ConnectionPtr client)
    : owner_(owner),
      counters_(counters),
      client_(std::move(client)),
      client_name_(client_->peer_address()),
      last_byte_(client_->loop()->now()) {
  ++counters_.accepted;
}

void Relay::connect(conn::ConnectionPtr server, const conn::Endpoint& to) {
  server_ = std::move(server);
  server_->connect(to, [this](conn::Connection& there) {
    if (there.state() == conn::State::kConnected) return join();
    ++counters_.failed;
    owner_.over(*this, there.last_error());
  });
}

void Relay::join() {
  ++counters_.joined;
  up_ = {client_.get(), server_.get(), &counters_.upward};
  down_ = {server_.get(), client_.get(), &counters_.downward};
  client_->set_read_handler([this](conn::Connection&) { pump(up_); });
  server_->set_read_handler([this](conn::Connection&) { pump(down_); });
}

void Relay::pump(Flow& flow) {
  for (int i = 0; i < kTurn; ++i) {
    const conn::View view = flow.from->peek();
    if (view.size == 0) {
      if (errno == 0) return end(flow);
      if (errno != EAGAIN && errno != ENOMEM) return fail(*flow.from);
      return;
    }
    const ssize_t n = flow.to->writev(view.pieces.data(), view.count);
    if (n < 0) {
      if (errno == EAGAIN) return wait_for_room(flow);
      return fail(*flow.to);
    }
    const auto taken = static_cast<std::size_t>(n);
    flow.from->consume(taken);
    *flow.counter += taken;
    last_byte_ = flow.from->loop()->now();
    if (taken < view.size) return wait_for_room(flow);
  }
}

/// The sender is read again when the receiver takes more.
void Relay::wait_for_room(Flow& flow) {
  flow.from->set_read_handler(nullptr);
  flow.to->set_write_handler([this, &flow](conn::Connection& to) {
    to.set_write_handler(nullptr);
    flow.from->set_read_handler([this, &flow](conn::Connection&) { pump(flow); });
    pump(flow);
  });
}

void Relay::end(Flow& flow) {
  flow.ended = true;
  // Where one of the two has no half-close, the end of one direction is that of both.
  const bool half =
      flow.to->type().capabilities().half_close && flow.from->type().capabilities().half_close;
  if (!half || (up_.ended && down_.ended)) return owner_.over(*this, "");
  flow.from->set_read_handler(nullptr);
  if (flow.to->shutdown() != 0) return fail(*flow.to);
}

void Relay::fail(const conn::Connection& connection) {
  // Who closes while the other still writes is no failure of ours.
  const bool ordinary = errno == EPIPE || errno == ECONNRESET;
  if (!ordinary) ++counters_.broken;
  owner_.over(*this, connection.last_error());
}

}  // namespace proxy
