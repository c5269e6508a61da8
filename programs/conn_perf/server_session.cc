// SPDX-License-Identifier: BSD-3-Clause
#include "server_session.h"

#include <fmt/format.h>

#include <cerrno>

namespace perf {
namespace {

/// The reason why a failed read() or write() ended the connection; empty for end of stream.
std::string reason_of(const conn::Connection& connection, ssize_t result) {
  return result == 0 ? std::string() : connection.last_error();
}

}  // namespace

EchoSession::EchoSession(conn::ConnectionPtr connection, Server& server, ServerShared& shared)
    : connection_(std::move(connection)), server_(server), shared_(shared) {
  connection_->set_read_handler([this](conn::Connection&) { readable(); });
}

void EchoSession::readable() {
  const ssize_t size = connection_->read(shared_.room.data(), shared_.room.size());
  if (size <= 0) return read_nothing(size);
  const ssize_t sent = connection_->write(shared_.room.data(), static_cast<std::size_t>(size));
  if (sent != size) keep_rest(size, sent);
}

void EchoSession::read_nothing(ssize_t result) {
  if (result < 0 && errno == EAGAIN) return;
  server_.end(*connection_, reason_of(*connection_, result));
}

/// Keeps what write() did not accept of the `size` bytes that were read: `sent` is its result.
void EchoSession::keep_rest(ssize_t size, ssize_t sent) {
  if (sent < 0 && errno != EAGAIN) return server_.end(*connection_, connection_->last_error());
  if (sent < 0) sent = 0;
  unsent_.assign(shared_.room.data() + sent, static_cast<std::size_t>(size - sent));
  connection_->set_read_handler(nullptr);
  connection_->set_write_handler([this](conn::Connection&) { writable(); });
}

void EchoSession::writable() {
  const ssize_t sent = connection_->write(unsent_.data(), unsent_.size());
  if (sent < 0 && errno == EAGAIN) return;
  if (sent < 0) return server_.end(*connection_, connection_->last_error());
  unsent_.erase(0, static_cast<std::size_t>(sent));
  if (!unsent_.empty()) return;
  connection_->set_write_handler(nullptr);
  connection_->set_read_handler([this](conn::Connection&) { readable(); });
}

ProtocolSession::ProtocolSession(conn::ConnectionPtr connection, Server& server,
                                 ServerShared& shared, Count* controls)
    : connection_(std::move(connection)), server_(server), shared_(shared), controls_(controls) {
  connection_->set_read_handler([this](conn::Connection&) { readable(); });
}

ProtocolSession::~ProtocolSession() {
  if (counted_in_ != nullptr) counted_in_->take();
}

void ProtocolSession::count_connection(bool control) {
  counted_in_ = control ? controls_ : &shared_.counts.open;
  if (counted_in_ != nullptr) counted_in_->add(1);
  if (!control) shared_.counts.begun.add(1);
}

/// Called once per read(), before any of its messages is answered.
void ProtocolSession::count_messages() {
  if (counted_ == next_) return;
  shared_.counts.requests.add((next_ - counted_) & kSequenceMask);
  counted_ = next_;
}

/// Returns what is wrong with the messages that end in `bytes`, "" if nothing is.
std::string ProtocolSession::take_bytes(std::span<const char> bytes) {
  while (const auto message = parser_.next(bytes))
    if (std::string wrong = take(*message); !wrong.empty()) return wrong;
  return parser_.error();
}

void ProtocolSession::readable() {
  std::string wrong;
  ssize_t size;
  if (in_place_) {
    const conn::View view = connection_->peek();
    size = view.size != 0 ? static_cast<ssize_t>(view.size) : errno == 0 ? 0 : -1;
    for (int i = 0; i < view.count && wrong.empty(); ++i) {
      const iovec& piece = view.pieces[static_cast<std::size_t>(i)];
      wrong = take_bytes({static_cast<const char*>(piece.iov_base), piece.iov_len});
    }
    if (size > 0) connection_->consume(view.size);
  } else {
    size = connection_->read(shared_.room.data(), shared_.room.size());
    if (size > 0) wrong = take_bytes({shared_.room.data(), static_cast<std::size_t>(size)});
  }
  if (size < 0 && errno == EAGAIN) return;
  if (size == 0 && parser_.midway()) return server_.end(*connection_, "closed within a message");
  if (size <= 0) return server_.end(*connection_, reason_of(*connection_, size));
  count_messages();
  if (wrong.empty()) return pump();
  std::string last;  // anything else still to be sent is dropped
  append_text(last, Kind::kError, 0, wrong);
  if (outbox_.between_messages()) connection_->write(last.data(), last.size());
  // close() delivers it and meanwhile discards what the peer sends.
  server_.end(*connection_, wrong);
}

void ProtocolSession::pump() {
  // After this many writes in a row, other connections get served.
  for (int i = 0; i < 4; ++i) {
    if (sending_) outbox_.add_data(outbox_.sent() + 4096 - outbox_.end());
    acknowledge_if_due();
    if (outbox_.empty()) break;
    outbox_.gather(shared_.payload, shared_.batch);
    const auto vectors = shared_.batch.vectors();
    const ssize_t size = connection_->writev(vectors.data(), static_cast<int>(vectors.size()));
    if (size < 0 && errno != EAGAIN) return server_.end(*connection_, connection_->last_error());
    outbox_.advance(size < 0 ? 0 : static_cast<std::size_t>(size));
    if (size < 0 || static_cast<std::size_t>(size) < shared_.batch.size()) break;
  }
  // The last of these writes may have sent everything; no further call would then send a due
  // acknowledgement.
  acknowledge_if_due();
  const bool more = sending_ || !outbox_.empty();
  if (more == connection_->has_write_handler()) return;
  if (more)
    connection_->set_write_handler([this](conn::Connection&) { pump(); });
  else
    connection_->set_write_handler(nullptr);
}

std::string ProtocolSession::take(const Message& message) {
  if (!greeted_) {
    return message.kind == Kind::kHello ? take_hello(message)
                                        : fmt::format("{} before a hello", to_string(message.kind));
  }
  // A peer that queries without reading the answers must not make us buffer them without limit.
  constexpr std::size_t kMostUnsent = 64 << 10;
  if (outbox_.text_bytes() > kMostUnsent) return "too many queries";
  switch (message.kind) {
    case Kind::kRequest:
    case Kind::kData:
      return take_data(message);
    case Kind::kEnd:
      return take_end(message);
    case Kind::kStats:
      tell_costs(message);
      return {};
    default:
      return fmt::format("{} is not for a server", to_string(message.kind));
  }
}

std::string ProtocolSession::take_hello(const Message& message) {
  const Fields hello = Fields::parse(message.text);
  if (hello.number("protocol") != 1) {
    return fmt::format("the client speaks protocol {}, this server 1", hello.text("protocol"));
  }
  const std::uint64_t size = hello.number("reply-size").value_or(0);
  if (size < kHeaderSize || size > kMostSize)
    return fmt::format("a reply of {} bytes; {} to {} are allowed", size, kHeaderSize, kMostSize);
  const bool verify = hello.text("verify") != "no";
  if (!verify) parser_.trust_data();
  const std::string mode = hello.text("mode");
  const bool stream = mode == "stream";
  both_ways_ = hello.flag("both-ways");
  in_place_ = hello.flag("in-place");
  expected_ = stream ? Kind::kData : Kind::kRequest;
  next_ = hello.number("first").value_or(0) & kSequenceMask;
  sent_before_ = counted_ = next_;
  shared_.payload.reserve(size);
  outbox_.set_data(stream ? Kind::kData : Kind::kReply, size, verify, next_);
  greeted_ = true;
  count_connection(mode == "control");
  outbox_.add_text(Kind::kHelloReply, message.sequence, Fields().to_string());
  return {};
}

std::string ProtocolSession::take_data(const Message& message) {
  if (message.kind != expected_)
    return fmt::format("{} instead of {}", to_string(message.kind), to_string(expected_));
  if (message.sequence != next_)
    return fmt::format("{} {} instead of {}", to_string(message.kind), message.sequence, next_);
  next_ = (next_ + 1) & kSequenceMask;
  if (message.kind == Kind::kRequest) {
    outbox_.add_data(1);
    return {};
  }
  if (ending_) return "data after the end";
  ++taken_;
  taken_bytes_ += message.size;
  sending_ = both_ways_;
  return {};
}

std::string ProtocolSession::take_end(const Message& message) {
  if (expected_ != Kind::kData) return "an end without a stream";
  if (ending_) return "an end after the end";
  ending_ = true;
  sending_ = false;
  // A stream with a fixed count has the same count in both directions.
  const bool as_many = both_ways_ && Fields::parse(message.text).flag("as-many");
  outbox_.end_data(as_many ? sent_before_ + taken_ : 0);
  return {};
}

void ProtocolSession::acknowledge_if_due() {
  if (!ending_ || outbox_.sent() != outbox_.end()) return;
  Fields ack;
  ack.set("messages", taken_);
  ack.set("bytes", taken_bytes_);
  ack.set("sent", outbox_.sent() - sent_before_);
  shared_.counts.requests.add(outbox_.sent() - sent_before_);
  outbox_.add_text(Kind::kAck, 0, ack.to_string());
  taken_ = taken_bytes_ = 0;
  sent_before_ = outbox_.sent();
  ending_ = false;
}

void ProtocolSession::tell_costs(const Message& message) {
  // Values that were not asked for are not read: reading them would add to the next answer's cost.
  const Fields query = Fields::parse(message.text);
  const ServerFacts& known = shared_.facts;
  Fields answer;
  if (const auto first = query.number("loops-from")) {
    LoopFacts::store(known.loops, *first, answer);
  } else {
    Usage usage = query.flag("memory") ? known.meter->everything() : known.meter->work();
    if (shared_.only_loop != nullptr) usage.add_loop(shared_.only_loop->times());
    usage.store(answer);
  }
  if (query.flag("facts")) {
    Facts facts = Facts::of_process(known.options);
    facts.add_way(*connection_);
    facts.store(answer);
    answer.set("no-system-calls", known.meter->why_no_calls());
  }
  outbox_.add_text(Kind::kStatsReply, message.sequence, answer.to_string());
}

}  // namespace perf
