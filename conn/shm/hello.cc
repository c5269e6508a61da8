// SPDX-License-Identifier: BSD-3-Clause
#include "conn/shm/hello.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <exception>
#include <span>
#include <thread>
#include <vector>

#include "conn/kit/retry_after.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {
namespace {

constexpr std::string_view kMagic("aeshm\r\n\1", 8);  // the last byte is the major version
// Names the layout of memory, and the order of bytes in its words.
constexpr std::uint32_t kLayout =
    std::endian::native == std::endian::little ? 0x08040201 : 0x08040202;
// Where a message has which field.
constexpr std::size_t kLength = 10, kMust = 12, kLayoutAt = 20, kClientRing = 24, kServerRing = 28,
                      kDevice = 32, kInode = 40, kHelloText = 48;
// Features in kMust: the text of the hello is a destination, which the server must compare.
constexpr std::uint32_t kHasDestination = 1;
constexpr std::size_t kStatus = 12, kRetryAfter = 20, kAnswerText = 24;

void put(std::string& message, std::size_t at, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i)
    message[at + i] = static_cast<char>(value >> (8 * i) & 0xff);
}

std::uint64_t get_long(std::string_view message, std::size_t at, std::size_t bytes = 8) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i)
    value |= std::uint64_t{static_cast<unsigned char>(message[at + i])} << (8 * i);
  return value;
}

std::uint32_t get(std::string_view message, std::size_t at, std::size_t bytes) noexcept {
  return static_cast<std::uint32_t>(get_long(message, at, bytes));
}

std::string begin(std::string_view text, std::size_t text_at) {
  text = text.substr(0, kMostMessage - kHeader);
  std::string message(kMagic);
  message.resize(kHeader);
  put(message, kLength, kHeader + text.size(), 2);
  put(message, text_at, text.size(), 2);
  return message.append(text);
}

/// Closes descriptors of a peer that are no memory. A thread does it, since close(2) of a socket
/// waits as long as its SO_LINGER says, and that of a file on FUSE for a process of the peer.
void close_elsewhere(std::span<const int> descriptors) noexcept {
  try {
    std::vector<int> all(descriptors.begin(), descriptors.end());
    std::thread([all = std::move(all)] {
      for (const int fd : all) ::close(fd);
    }).detach();
  } catch (const std::exception&) {  // neither memory nor threads are left
    for (const int fd : descriptors) ::close(fd);
  }
}

}  // namespace

std::string encode(const Hello& hello) {
  const Destination& to = hello.destination;
  std::string message = begin(to.text, kHelloText);
  put(message, kMust, to.text.empty() ? 0 : kHasDestination, 4);
  put(message, kDevice, to.device, 8);
  put(message, kInode, to.inode, 8);
  put(message, kLayoutAt, kLayout, 4);
  put(message, kClientRing, hello.client_ring, 4);
  put(message, kServerRing, hello.server_ring, 4);
  return message;
}

std::string encode(const Answer& answer) {
  std::string message = begin(answer.text, kAnswerText);
  put(message, kStatus, answer.status, 4);
  put(message, kRetryAfter, static_cast<std::uint64_t>(retry_after_in(answer.text).count()), 4);
  return message;
}

bool may_begin(std::string_view bytes) noexcept {
  const std::string_view all = kMagic.substr(0, kMagic.size() - 1);
  return bytes.substr(0, all.size()) == all.substr(0, bytes.size());
}

std::size_t message_length(std::string_view header) noexcept {
  const std::size_t length = get(header, kLength, 2);
  return length < kHeader || length > kMostMessage ? 0 : length;
}

Answer decode(std::string_view message, std::uint64_t most_ring, Hello& hello) {
  if (!message.starts_with(kMagic))
    return {Answer::kVersion, "this server speaks version 1 of shm"};
  const std::uint32_t must = get(message, kMust, 4);
  if ((must & ~kHasDestination) != 0)
    return {Answer::kVersion, "the client needs a feature that this server does not have"};
  if (get(message, kLayoutAt, 4) != kLayout)
    return {Answer::kVersion, "the client has another layout of memory"};
  const std::size_t text = get(message, kHelloText, 2);
  if (kHeader + text > message.size())
    return {Answer::kRule, "the hello's text is longer than the hello"};
  if ((must & kHasDestination) != 0) {
    Destination& to = hello.destination;
    if (!is_destination(message.substr(kHeader, text)))
      return {Answer::kRule, "the hello's destination is not one"};
    to = {std::string(message.substr(kHeader, text)), get_long(message, kDevice),
          get_long(message, kInode)};
  }
  hello.client_ring = get(message, kClientRing, 4);
  hello.server_ring = get(message, kServerRing, 4);
  for (const std::uint32_t ring : {hello.client_ring, hello.server_ring}) {
    if (!is_ring_size(ring)) return {Answer::kSize, "a ring has a power of two from 64k to 1g"};
    if (ring > most_ring)
      return {Answer::kSize,
              "rings have at most " + std::to_string(most_ring) + " bytes here (option max-ring)"};
  }
  return {};
}

bool decode(std::string_view message, Answer& answer) {
  const std::size_t text = get(message, kAnswerText, 2);
  if (!message.starts_with(kMagic) || kHeader + text > message.size()) return false;
  answer.status = get(message, kStatus, 4);
  answer.text = message.substr(kHeader, text);
  return true;
}

ssize_t receive_some(int socket, void* into, std::size_t size, Descriptors& came) noexcept {
  iovec vector{into, size};
  // Room for as many as the kernel takes in one message (SCM_MAX_FD). It would close the others in
  // this thread.
  constexpr std::size_t kMost = 253;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMost * sizeof(int))> control;
  msghdr received{};
  received.msg_iov = &vector;
  received.msg_iovlen = 1;
  received.msg_control = control.data();
  received.msg_controllen = control.size();
  ssize_t n;
  do n = ::recvmsg(socket, &received, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n < 0) return n;
  came.lost = came.lost || (received.msg_flags & MSG_CTRUNC) != 0;
  std::array<int, kMost> foreign;
  std::size_t foreigners = 0;
  for (cmsghdr* each = CMSG_FIRSTHDR(&received); each != nullptr;
       each = CMSG_NXTHDR(&received, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t sent = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < sent; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(each) + i * sizeof fd, sizeof fd);
      ++came.count;
      // Only memory has seals. The question does not reach a file system.
      if (fcntl(fd, F_GET_SEALS) < 0)
        foreign[foreigners++] = fd;
      else if (tcp::Fd owner(fd); came.kept < came.memories.size())
        came.memories[came.kept++] = std::move(owner);
    }
  }
  if (foreigners != 0) close_elsewhere({foreign.data(), foreigners});
  return n;
}

void refuse_descriptors(int socket) noexcept {
#ifndef SO_PASSRIGHTS
  constexpr int SO_PASSRIGHTS = 83;  // since Linux 6.16
#endif
  const int no = 0;
  (void)setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no);
}

Receipt::Step Receipt::receive(int socket) noexcept {
  for (;;) {
    const std::size_t length = size_ < kHeader ? kHeader : message_length(message());
    if (length == 0) return Step::kForeign;
    if (size_ >= length) return Step::kDone;
    const ssize_t n = receive_some(socket, bytes_.data() + size_, length - size_, came_);
    // One call sends a message and its descriptors. A peer that sends less keeps ours open.
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return came_.count == 0 ? Step::kMore : Step::kForeign;
    if (n < 0) return Step::kEnded;
    if (came_.lost) return Step::kNoDescriptors;
    if (came_.count != came_.kept) return Step::kForeign;
    if (n == 0) return Step::kEnded;
    size_ += static_cast<std::size_t>(n);
    if (!may_begin(message())) return Step::kForeign;
  }
}

int send_message(int socket, std::string_view message, const int* descriptors,
                 std::size_t count) noexcept {
  iovec from{const_cast<char*>(message.data()), message.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control{};
  msghdr sent{};
  sent.msg_iov = &from;
  sent.msg_iovlen = 1;
  if (count != 0) {
    sent.msg_control = control.data();
    sent.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* const header = CMSG_FIRSTHDR(&sent);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
  }
  const ssize_t n = ::sendmsg(socket, &sent, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n < 0) return errno;
  return static_cast<std::size_t>(n) == message.size() ? 0 : EMSGSIZE;
}

}}}  // namespace conn::shm
