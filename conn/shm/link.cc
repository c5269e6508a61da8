// SPDX-License-Identifier: BSD-3-Clause
#include "conn/shm/link.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "conn/tcp/passed_descriptors.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

void Link::set(Fd socket, const SocketAddress& peer, ChannelPtr channel) noexcept {
  ConnectedSocket::set(std::move(socket), peer);
  channel_ = std::move(channel);
}

void Link::end(bool properly) noexcept {
  if (!descriptor()) return;
  if (!made_here_.inherited()) {
    if (properly) {
      reader().close();
      writer().finish();
    }
    // Closing alone would not reach the peer while a child of fork() has a copy of the descriptor.
    ::shutdown(descriptor().get(), SHUT_RDWR);
  }
  descriptor().reset();
}

bool Link::look() noexcept {
  const bool was_writable = writable();
  const bool news = channel_->reader.look();
  channel_->writer.look();
  return news || writable() != was_writable || ended_;
}

const char* Link::broken() const noexcept {
  if (sends_descriptors_) return "it sends descriptors";
  // An honest peer sends one bell (a byte that wakes this side) for each request of this side, one
  // when it ends its stream, and one when it stops reading.
  if (had_ > reader().wishes() + writer().wishes() + 2)
    return "it rings more often than it was asked to";
  return reader().broken() != nullptr ? reader().broken() : writer().broken();
}

bool Link::ring() noexcept {
  const char bell = 0;
  ssize_t n;
  do n = ::send(descriptor().get(), &bell, sizeof bell, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (n < 0 && errno == EINTR);
  owes_bell_ = n < 0 && (errno == ENOMEM || errno == ENOBUFS);
  if (n > 0) ++sent_;
  return n > 0;
}

std::size_t Link::take_bells() noexcept {
  std::array<char, 256> bells;
  const iovec room{bells.data(), bells.size()};
  ssize_t n;
  do n = tcp::receive_without(descriptor().get(), &room, 1, MSG_DONTWAIT, sends_descriptors_);
  while (n < 0 && errno == EINTR);
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) ended_ = true;
  if (n <= 0) return 0;
  had_ += static_cast<std::uint64_t>(n);
  return static_cast<std::size_t>(n);
}

void Link::wish(bool reading, bool writing) noexcept {
  if (reading) reader().wish();
  if (writing) writer().wish();
}

void Link::unwish() noexcept {
  reader().unwish();
  writer().unwish();
}

std::vector<std::pair<std::string, std::string>> Link::info() const {
  const int socket = ConnectedSocket::fd();
  if (socket < 0) return {};
  std::vector<std::pair<std::string, std::string>> facts;
  tcp::add_credentials(socket, facts);
  facts.emplace_back("ring-in", std::to_string(reader().size()));
  facts.emplace_back("ring-out", std::to_string(writer().size()));
  if (!made_here_.inherited()) {  // a child of fork() does not have the shared memory
    facts.emplace_back("unsent", std::to_string(writer().unread()));
    facts.emplace_back("unread", std::to_string(reader().unread()));
    facts.emplace_back("room", std::to_string(writer().room()));
  }
  facts.emplace_back("bells-sent", std::to_string(sent_));
  facts.emplace_back("bells-had", std::to_string(had_));
  return facts;
}

}}}  // namespace conn::shm
