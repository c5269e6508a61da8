// SPDX-License-Identifier: BSD-3-Clause
#include "cli_client.h"

#include <fmt/format.h>

#include <cerrno>
#include <random>

#include "conn/connection_type.h"
#include "conn/endpoint.h"
#include "programs/service/standard_streams.h"

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

/// Returns the transport's own error text, such as that the server refused the certificate.
std::string CliClient::explain(int error) const {
  const std::string& text = connection_->last_error();
  return text.empty() ? conn::errno_text(error) : text;
}

conn::Error CliClient::connection_ended() const {
  return conn::Error("The server at " + url_ + " closed the connection" +
                     (failure_.empty() ? "" : ": " + failure_));
}

/// Throws if the reply is a TLS alert, with which a TLS server answers plain text.
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

// --- --pipe --------------------------------------------------------------------------------------

namespace {

struct PipeCount {
  std::size_t replies = 0, errors = 0;
  std::string last;  ///< the text that the last reply repeats
  std::string why;   ///< the reason why that reply will not come
  bool finished = false;

  bool over() const { return finished || !why.empty(); }

  void take(CliClient& client) {
    for (Reply reply; !over() && client.poll(reply);) {
      if (reply.type == Reply::Type::kPush) continue;
      if (reply.type == Reply::Type::kBulk && reply.text == last) {
        finished = true;
        return;
      }
      ++replies;
      if (reply.type != Reply::Type::kError) continue;
      ++errors;
      service::print(conn::printable(reply.text) + '\n');
      if (reply.text.starts_with("NOAUTH")) why = "the server asks for a password (-a)";
    }
  }
};

}  // namespace

bool run_pipe(CliClient& client, ae::Duration patience) {
  constexpr std::size_t kMostUnsent = 1 << 20;
  PipeCount count;
  // The text of the ECHO is random, so that no value in the data is mistaken for it.
  std::random_device random;
  for (int i = 0; i < 5; ++i) count.last += fmt::format("{:08x}", random());
  const auto over = [&] { return count.over() || client.ended(); };
  const auto wait = [&] {
    if (!client.step(patience))
      throw conn::Error(fmt::format("the server has been silent for {} s; errors: {}, replies: {}",
                                    std::chrono::duration<double>(patience).count(), count.errors,
                                    count.replies));
    count.take(client);
  };

  std::vector<char> chunk(64 * 1024);
  while (!over()) {
    const std::size_t size = service::read_input(chunk.data(), chunk.size());
    if (size == 0) break;
    client.send({chunk.data(), size});
    client.step(false);
    count.take(client);
    while (client.unsent() > kMostUnsent && !over()) wait();
  }
  if (!over()) {
    // The line end completes an inline command at the end of the input that lacks one, as redis-cli
    // does.
    std::string mark = "\r\n";
    append_request(mark, {"ECHO", count.last});
    client.send(mark);
  }
  while (client.unsent() > 0 && !over()) wait();
  if (!over()) service::print("Everything is sent; the last reply is awaited.\n");
  while (!over()) wait();
  if (count.finished)
    service::print("The last reply is here.\n");
  else
    service::complain("kv-cli", count.why.empty() ? "the server closed the connection" : count.why);
  service::print(fmt::format("errors: {}, replies: {}\n", count.errors, count.replies));
  return count.finished && count.errors == 0;
}

}  // namespace kv
