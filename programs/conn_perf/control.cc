// SPDX-License-Identifier: BSD-3-Clause
#include "control.h"

#include <fmt/format.h>

namespace perf {

Control::Control(ClientShared& shared, const conn::Endpoint& to, ae::Duration patience)
    : patience_(patience), connection_(shared.registry.create(shared.loop, to)) {
  if (!connection_->connect_blocking(to, patience)) throw Failed(connection_->last_error());
  Fields hello;
  hello.set("protocol", std::uint64_t{1});
  hello.set("mode", "control");
  hello.set("reply-size", std::uint64_t{kHeaderSize});
  exchange(Kind::kHello, hello.to_string(), Kind::kHelloReply);
  const Fields answer = exchange(Kind::kStats, "facts=yes\n", Kind::kStatsReply);
  facts_ = Facts::load(answer);
  why_no_calls_ = answer.text("no-system-calls");
}

Usage Control::work() { return Usage::load(exchange(Kind::kStats, "", Kind::kStatsReply)); }

Usage Control::everything() {
  return Usage::load(exchange(Kind::kStats, "memory=yes\n", Kind::kStatsReply));
}

std::vector<LoopFacts> Control::loops() {
  std::vector<LoopFacts> all;
  for (;;) {
    const std::size_t had = all.size();
    Fields query;
    query.set("loops-from", std::uint64_t{had});
    const Fields answer = exchange(Kind::kStats, query.to_string(), Kind::kStatsReply);
    if (all.size() == LoopFacts::load(answer, all)) return all;
    if (all.size() == had) return {};
  }
}

/// Blocks: nothing is being measured during an exchange.
Fields Control::exchange(Kind kind, std::string_view text, Kind answer) {
  const auto fail = [this](const std::string& reason) {
    throw Failed(fmt::format("{} does not answer as a conn-perf server: {}",
                             connection_->peer_address(), reason));
  };
  std::string bytes;
  append_text(bytes, kind, 0, text);
  if (connection_->sync_write(bytes.data(), bytes.size(), patience_) < 0)
    fail(connection_->last_error());
  char header[kHeaderSize];
  std::vector<char> rest;
  const auto read = [&](char* to, std::size_t size) {
    const ssize_t got = connection_->sync_read(to, size, patience_);
    if (got == static_cast<ssize_t>(size)) return;
    fail(got >= 0 ? "it closed the connection" : conn::errno_text(errno));
  };
  read(header, sizeof header);
  const std::size_t length = Header::decode(header).length;
  std::span<const char> all(header);
  std::optional<Message> message = parser_.next(all);
  if (!message && parser_.error().empty()) {
    rest.resize(length - kHeaderSize);
    read(rest.data(), rest.size());
    all = rest;
    message = parser_.next(all);
  }
  if (!message) fail(parser_.error());
  if (message->kind == Kind::kError) fail(fmt::format("it says: {}", message->text));
  if (message->kind != answer) fail(fmt::format("unexpected {}", to_string(message->kind)));
  return Fields::parse(message->text);
}

}  // namespace perf
