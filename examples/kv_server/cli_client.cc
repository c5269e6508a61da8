// SPDX-License-Identifier: BSD-3-Clause
#include "cli_client.h"

#include <cerrno>
#include <chrono>

#include "conn/connection_type.h"
#include "conn/endpoint.h"

namespace kv {

CliClient::CliClient(ae::EventLoop& loop, const conn::Registry& registry, const std::string& url)
    : loop_(loop), url_(url) {
  const conn::Endpoint endpoint = conn::Endpoint::parse(url);
  registry.require(endpoint.scheme).check(endpoint);
  scheme_ = endpoint.scheme;
  connection_ = registry.create(loop, endpoint);
  if (!connection_->connect_blocking(endpoint, std::chrono::seconds(5))) {
    throw conn::Error("Could not connect to " + url + ": " + connection_->last_error());
  }
  connection_->set_read_handler([this](conn::Connection&) { read(); });
}

void CliClient::send(std::string_view bytes) {
  output_ += bytes;
  if (!connection_->has_write_handler()) write();
}

void CliClient::write() {
  while (unsent() > 0 && !ended_) {
    const ssize_t size = connection_->write(output_.data() + sent_, unsent());
    if (size >= 0) {
      sent_ += static_cast<std::size_t>(size);
    } else if (errno == EAGAIN) {
      break;
    } else {
      // Replies sent before the server closed can still be read; read() notices the end.
      failure_ = explain(errno);
      sent_ = output_.size();
    }
  }
  if (unsent() == 0) {
    output_.clear();
    sent_ = 0;
    connection_->set_write_handler(nullptr);
  } else if (!connection_->has_write_handler()) {
    connection_->set_write_handler([this](conn::Connection&) { write(); });
  }
}

void CliClient::read() {
  constexpr std::size_t kReadSize = 64 * 1024;
  input_.erase(0, parsed_);
  parsed_ = 0;
  const std::size_t before = input_.size();
  input_.resize(before + kReadSize);
  const ssize_t size = connection_->read(input_.data() + before, kReadSize);
  const int error = errno;
  input_.resize(before + (size > 0 ? static_cast<std::size_t>(size) : 0));
  if (size > 0 || (size < 0 && error == EAGAIN)) return;
  ended_ = true;
  if (size < 0 && failure_.empty()) failure_ = explain(error);
  connection_->set_read_handler(nullptr);
  connection_->set_write_handler(nullptr);
}

void CliClient::step(bool wait) {
  const auto flags = ae::kFullIteration;
  loop_.process_events(wait ? flags : flags | ae::kDontWait);
}

bool CliClient::step(ae::Duration patience) {
  bool late = false;
  const ae::TimerId timer = loop_.add_time_event(patience, [&late] {
    late = true;
    return ae::kNoMore;
  });
  const std::size_t unsent_before = unsent(), had = input_.size() - parsed_;
  do step(true);
  while (!late && !ended_ && unsent() == unsent_before && input_.size() - parsed_ == had);
  loop_.remove_time_event(timer);
  return !late;
}

/// The transport's own sentence, for example that the server refused the certificate.
std::string CliClient::explain(int error) const {
  const std::string& text = connection_->last_error();
  return text.empty() ? conn::errno_text(error) : text;
}

conn::Error CliClient::connection_ended() const {
  return conn::Error("The server at " + url_ + " closed the connection" +
                     (failure_.empty() ? "" : ": " + failure_));
}

/// A TLS server that receives plain text answers with an alert.
void CliClient::refuse_tls_alert() const {
  if (answered_ || scheme_.starts_with("tls") || !input_.starts_with("\x15\x03")) return;
  throw conn::Error("the server at " + url_ + " answered with TLS: use " +
                    (scheme_ == "tcp" ? "tls" : "tls+" + scheme_) + "://");
}

bool CliClient::poll(Reply& reply) {
  refuse_tls_alert();
  std::size_t used = 0;
  const auto result = parser_.next(std::string_view(input_).substr(parsed_), used);
  parsed_ += used;
  answered_ = answered_ || used > 0;
  if (result == ReplyParser::Result::kError) throw conn::Error("Bad reply: " + parser_.error());
  if (result == ReplyParser::Result::kReply) reply = std::move(parser_.reply());
  return result == ReplyParser::Result::kReply;
}

Reply CliClient::receive() {
  Reply reply;
  while (!poll(reply)) {
    if (ended_) throw connection_ended();
    step(true);
  }
  return reply;
}

Reply CliClient::call(const std::vector<std::string>& arguments) {
  std::string request;
  append_request(request, arguments);
  send(request);
  Reply reply = receive();
  while (reply.type == Reply::Type::kPush) reply = receive();
  return reply;
}

}  // namespace kv
