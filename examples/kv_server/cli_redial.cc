// SPDX-License-Identifier: BSD-3-Clause
#include "cli_redial.h"

#include <cerrno>
#include <utility>

#include "programs/service/standard_streams.h"

namespace kv {
namespace {

void tell(const std::string& text) { service::complain("kv-cli", text); }

}  // namespace

CliRedial::CliRedial(ae::EventLoop& loop, const conn::Registry& registry, Plan plan)
    : loop_(loop),
      plan_(std::move(plan)),
      redial_(registry, loop, conn::Endpoint::parse(plan_.url),
              {.up = [this](conn::Connection& connection) { up(connection); },
               .down = [this](conn::Connection&, const conn::Redial::Loss& loss) { down(loss); },
               .prove = [this](conn::Connection& connection,
                               const conn::Redial::Proved& proved) { prove(connection, proved); },
               .changed = [this] { changed(); }}) {
  for (const auto& each : plan_.greeting) append_request(greeting_, each);
  append_request(greeting_, {"PING"});
  append_request(request_,
                 plan_.command.empty() ? std::vector<std::string>{"PING"} : plan_.command);
}

bool CliRedial::run() {
  if (plan_.repeat != 0) loop_.run();
  redial_.stop();
  return all_good_;
}

/// Sends the requests that each new connection begins with, such as AUTH and HELLO if the options
/// ask for them, and a PING. Calls proved(true) when all are answered, and proved(false) at an
/// error.
void CliRedial::prove(conn::Connection& connection, const conn::Redial::Proved& proved) {
  parser_ = {};
  input_.clear();
  parsed_ = 0;
  greetings_left_ = plan_.greeting.size() + 1;
  if (connection.write(greeting_.data(), greeting_.size()) !=
      static_cast<ssize_t>(greeting_.size()))
    return proved(false);
  connection.set_read_handler([this, proved](conn::Connection& from) {
    for (Reply reply; read(from, reply);) {
      if (reply.type == Reply::Type::kPush) continue;
      if (reply.type == Reply::Type::kError) {
        tell("the server refuses: " + reply.text);
        from.set_read_handler(nullptr);
        return proved(false);
      }
      if (--greetings_left_ > 0) continue;
      from.set_read_handler(nullptr);
      return proved(true);
    }
  });
}

void CliRedial::up(conn::Connection& connection) {
  told_.clear();
  tell("connected: " + redial_.describe() + ", " + std::string(connection.type().name()) + " to " +
       connection.peer_address());
  connection.set_read_handler([this](conn::Connection& from) { read_answer(from); });
  send_next(connection);
}

/// Prints each kind of failure once, and not for each attempt.
void CliRedial::changed() {
  if (redial_.phase() != conn::Redial::Phase::kWaiting) return;
  const conn::Failure& why = redial_.last_failure();
  if (!why || why.code == told_) return;
  told_ = why.code;
  tell("not connected: " + why.text);
}

void CliRedial::down(const conn::Redial::Loss& loss) {
  told_ = loss.why.code;
  tell("connection lost: " + loss.why.text + "; " + std::to_string(loss.unconfirmed) +
       " bytes not confirmed");
  if (!std::exchange(waits_, false)) return;
  // The server may have executed the request or not.
  service::print("(error) no answer: the connection was lost\n");
  all_good_ = false;
  if (sent_ == plan_.repeat) loop_.stop();
}

void CliRedial::send_next(conn::Connection& connection) {
  if (sent_ == plan_.repeat) return loop_.stop();
  const ssize_t taken = connection.write(request_.data(), request_.size());
  if (taken < 0 && errno != EAGAIN) return;  // down() is called next
  if (taken != static_cast<ssize_t>(request_.size())) {
    redial_.drop("there is no room for the request");
    return;
  }
  waits_ = true;
  ++sent_;
}

void CliRedial::read_answer(conn::Connection& connection) {
  for (Reply reply; read(connection, reply);) {
    if (reply.type == Reply::Type::kPush || !waits_) continue;
    waits_ = false;
    redial_.confirm(request_.size());
    service::print(format_reply(reply) + '\n');
    all_good_ = all_good_ && reply.type != Reply::Type::kError;
    send_next(connection);
  }
}

/// Takes the next reply if it was received.
bool CliRedial::read(conn::Connection& connection, Reply& reply) {
  for (;;) {
    std::size_t used = 0;
    const auto result = parser_.next(std::string_view(input_).substr(parsed_), used);
    parsed_ += used;
    if (result == ReplyParser::Result::kError) {
      redial_.drop("bad reply: " + parser_.error());
      return false;
    }
    if (result == ReplyParser::Result::kReply) {
      reply = std::move(parser_.reply());
      return true;
    }
    input_.erase(0, std::exchange(parsed_, 0));
    char buffer[16 * 1024];
    const ssize_t size = connection.read(buffer, sizeof buffer);
    if (size <= 0) return false;
    input_.append(buffer, static_cast<std::size_t>(size));
  }
}

}  // namespace kv
