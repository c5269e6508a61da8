// SPDX-License-Identifier: BSD-3-Clause
// The server on this library; see settings.h. AECONN_LOOP names the event loop: libev or epoll.

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ae/loop_names.h"
#include "conn/transports/transports.h"
#include "frames.h"
#include "settings.h"

namespace {

using peers::Settings;

class Server;

class Session {
 public:
  Session(Server& server, conn::ConnectionPtr peer) : server_(server), peer_(std::move(peer)) {
    peer_->set_read_handler([this](conn::Connection&) { read(); });
  }

 private:
  void read();
  void write();
  void end(ssize_t result);

  Server& server_;
  const conn::ConnectionPtr peer_;
  std::vector<std::byte> kept_;    // the beginning of a request
  std::vector<std::byte> unsent_;  // replies that the connection did not accept, from sent_ on
  std::size_t sent_ = 0;
};

class Server {
 public:
  explicit Server(const Settings& settings) : set(settings) {}
  void add(conn::ConnectionPtr peer) {
    auto session = std::make_unique<Session>(*this, std::move(peer));
    Session* const key = session.get();
    sessions_.emplace(key, std::move(session));
  }
  void remove(Session* session) { sessions_.erase(session); }

  const Settings& set;
  peers::Input input;  // of all sessions

 private:
  std::unordered_map<Session*, std::unique_ptr<Session>> sessions_;
};

void Session::read() {
  peers::Input& input = server_.input;
  input.restore(kept_);
  const std::span space = input.space(peers::kReadSize);
  const ssize_t size = peer_->read(space.data(), space.size());
  if (size > 0) input.received(static_cast<std::size_t>(size));
  std::span<const std::byte> output;
  try {
    output = server_.set.frames ? input.answer_all(server_.set.work) : input.take_all();
  } catch (const std::length_error&) {
    return server_.remove(this);
  }
  input.save(kept_);
  if (size <= 0) return end(size);
  if (output.empty()) return;
  const ssize_t sent = peer_->write(output.data(), output.size());
  if (sent == static_cast<ssize_t>(output.size())) return;
  if (sent < 0 && errno != EAGAIN) return server_.remove(this);
  const std::span rest = output.subspan(static_cast<std::size_t>(std::max<ssize_t>(sent, 0)));
  unsent_.assign(rest.begin(), rest.end());
  sent_ = 0;
  peer_->set_read_handler(nullptr);  // a client that does not read is not read
  peer_->set_write_handler([this](conn::Connection&) { write(); });
}

void Session::write() {
  const ssize_t size = peer_->write(unsent_.data() + sent_, unsent_.size() - sent_);
  if (size < 0 && errno != EAGAIN) return server_.remove(this);
  if (size > 0) sent_ += static_cast<std::size_t>(size);
  if (sent_ != unsent_.size()) return;
  peer_->set_write_handler(nullptr);
  peer_->set_read_handler([this](conn::Connection&) { read(); });
}

void Session::end(ssize_t result) {
  if (result == 0 || errno != EAGAIN) server_.remove(this);
}

void serve(const Settings& set) {
  const conn::Registry registry = conn::all_transports();
  const char* const loop_name = std::getenv("AECONN_LOOP");
  const auto loop = ae::loops_named(loop_name != nullptr ? loop_name : "libev")(0);
  Server server(set);
  const std::string tls = set.tls ? "?cert=" + set.certificate + "&key=" + set.key : "";
  const conn::ListenerPtr listener = registry.listen(
      *loop, set.url + tls, [&](conn::ConnectionPtr peer) { server.add(std::move(peer)); });
  peers::announce(set);
  loop->run();
}

}  // namespace

int main(int argc, char** argv) { return peers::run(argc, argv, serve); }
