// SPDX-License-Identifier: BSD-3-Clause
#include "lane.h"

#include <fmt/format.h>

#include <cerrno>
#include <span>

#include "fields.h"

namespace perf {

Lane::Lane(Load& load, std::size_t number)
    : load_(load), number_(number), first_(std::uint64_t{number + 1} << 32 & kSequenceMask) {
  reset();
}

void Lane::reset() {
  const Plan& plan = load_.plan();
  connection_.reset();
  parser_ = std::make_unique<Parser>();
  if (!plan.verify) parser_->trust_data();
  outbox_ = Outbox();
  outbox_.set_data(plan.mode == Mode::kStream ? Kind::kData : Kind::kRequest, plan.size,
                   plan.verify, first_);
  greeted_ = plan.echo;
}

void Lane::open() {
  ClientShared& shared = load_.shared();
  const conn::Endpoint& to = load_.plan().endpoint;
  connection_ = shared.registry.create(shared.loop, to);
  connection_->connect(to, [this](conn::Connection&) { connected(); });
}

void Lane::connected() {
  if (connection_->state() != conn::State::kConnected) return fail(connection_->last_error());
  connection_->set_read_handler([this](conn::Connection&) { readable(); });
  if (!greeted_) say_hello();
  if (greeted_ || !hello_waits()) return ready();
  pump();
}

void Lane::say_hello() {
  const Plan& plan = load_.plan();
  Fields hello;
  hello.set("protocol", std::uint64_t{1});
  hello.set("mode", to_string(plan.mode));
  hello.set("first", first_);
  hello.set("reply-size", std::uint64_t{plan.reply_size});
  hello.set("verify", plan.verify ? "yes" : "no");
  hello.set("both-ways", plan.both_ways ? "yes" : "no");
  if (plan.in_place) hello.set("in-place", "yes");
  outbox_.add_text(Kind::kHello, 0, hello.to_string());
}

void Lane::ready() { load_.lane_opened(); }

void Lane::readable() {
  std::vector<char>& room = load_.shared().room;
  const ssize_t size = connection_->read(room.data(), room.size());
  if (size < 0 && errno == EAGAIN) return;
  if (size < 0) return fail(connection_->last_error());
  if (size == 0) {
    return fail(parser_->midway() ? "the server closed it within a message"
                                  : "the server closed it");
  }
  load_.moved();
  std::span<const char> bytes(room.data(), static_cast<std::size_t>(size));
  bool met = false;
  while (const auto message = parser_->next(bytes)) {
    const bool greeting = !greeted_;
    const std::string wrong = take_any(*message);
    if (!wrong.empty()) return fail(wrong);
    met |= greeting && greeted_;
  }
  if (!parser_->error().empty()) return fail(parser_->error());
  if (met && hello_waits()) return ready();
  taken();
}

std::string Lane::take_any(const Message& message) {
  if (message.kind == Kind::kError) return fmt::format("the server says: {}", message.text);
  if (message.kind != Kind::kHelloReply) return take(message);
  if (greeted_) return "a second hello reply";
  greeted_ = true;
  return {};
}

void Lane::pump() {
  ClientShared& shared = load_.shared();
  bool more = refill();
  for (int i = 0; more && i < 4; ++i) {  // bounded, so that other connections get served
    outbox_.gather(shared.payload, shared.batch);
    const auto vectors = shared.batch.vectors();
    const std::uint64_t now = clock_ns();
    const ssize_t size =
        load_.plan().in_place
            ? shared.from_place.write(*connection_, shared.loop, shared.payload, vectors)
            : connection_->writev(vectors.data(), static_cast<int>(vectors.size()));
    if (size < 0 && errno == EAGAIN) break;
    if (size < 0) return fail(connection_->last_error());
    load_.moved();
    outbox_.advance(static_cast<std::size_t>(size));
    handed_over(now);
    if (static_cast<std::size_t>(size) < shared.batch.size()) break;
    more = refill();
  }
  if (more == connection_->has_write_handler()) return;
  if (more)
    connection_->set_write_handler([this](conn::Connection&) { pump(); });
  else
    connection_->set_write_handler(nullptr);
}

void Lane::fail(const std::string& reason) {
  connection_.reset();
  load_.fail(number_, reason);
}

}  // namespace perf
