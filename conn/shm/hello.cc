// SPDX-License-Identifier: BSD-3-Clause
#include "conn/shm/hello.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "conn/kit/retry_after.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {
namespace {

constexpr std::string_view kMagic("aeshm\r\n\1", 8);  // the last byte is the major version
// Says the order of bytes in the words of memory, their width, and the size of their page.
constexpr std::uint32_t kLayout = 0x08040201;
// Where a message has which field.
constexpr std::size_t kLength = 10, kMust = 12, kLayoutAt = 20, kClientRing = 24, kServerRing = 28,
                      kHelloText = 48;
constexpr std::size_t kStatus = 12, kRetryAfter = 20, kAnswerText = 24;

void put(std::string& message, std::size_t at, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i)
    message[at + i] = static_cast<char>(value >> (8 * i) & 0xff);
}

std::uint32_t get(std::string_view message, std::size_t at, std::size_t bytes) noexcept {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i)
    value |= std::uint32_t{static_cast<unsigned char>(message[at + i])} << (8 * i);
  return value;
}

std::string begin(std::string_view text, std::size_t text_at) {
  text = text.substr(0, kMostMessage - kHeader);
  std::string message(kMagic);
  message.resize(kHeader);
  put(message, kLength, kHeader + text.size(), 2);
  put(message, text_at, text.size(), 2);
  return message.append(text);
}

/// Takes the descriptors out of a received message. Returns false, and closes those for which there
/// is no place, if there are more than fit.
bool take(msghdr& message, std::array<tcp::Fd, 2>& into, std::size_t& count) noexcept {
  bool fits = (message.msg_flags & MSG_CTRUNC) == 0;
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t sent = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < sent; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(each) + i * sizeof fd, sizeof fd);
      tcp::Fd owner(fd);
      if (count < into.size())
        into[count++] = std::move(owner);
      else
        fits = false;
    }
  }
  return fits;
}

}  // namespace

std::string encode(const Hello& hello) {
  std::string message = begin("", kHelloText);
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
  if (get(message, kMust, 4) != 0)
    return {Answer::kVersion, "the client needs a feature that this server does not have"};
  if (get(message, kLayoutAt, 4) != kLayout)
    return {Answer::kVersion, "the client has another layout of memory (a 32-bit process?)"};
  if (kHeader + get(message, kHelloText, 2) > message.size())
    return {Answer::kRule, "the hello's text is longer than the hello"};
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

Receipt::Step Receipt::receive(int socket) noexcept {
  for (;;) {
    const std::size_t length = size_ < kHeader ? kHeader : message_length(message());
    if (length == 0) return Step::kForeign;
    if (size_ >= length) return Step::kDone;
    iovec into{bytes_.data() + size_, length - size_};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control;
    msghdr received{};
    received.msg_iov = &into;
    received.msg_iovlen = 1;
    received.msg_control = control.data();
    received.msg_controllen = control.size();
    const ssize_t n = ::recvmsg(socket, &received, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK ? Step::kMore : Step::kEnded;
    }
    if (!take(received, descriptors_, count_)) return Step::kForeign;
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
