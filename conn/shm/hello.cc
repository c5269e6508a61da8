// SPDX-License-Identifier: BSD-3-Clause
#include "conn/shm/hello.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "conn/kit/retry_after.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {
namespace {

constexpr std::string_view kMagic("aeshm\r\n\1", 8);  // the last byte: the protocol's major version
// Number of the layout of the shared memory, which also tells the byte order of its control fields.
constexpr std::uint32_t kLayout =
    std::endian::native == std::endian::little ? 0x08040201 : 0x08040202;
// Offsets in bytes of the fields of a hello (the client's message); kLength is in an answer, too.
constexpr std::size_t kLength = 10, kMust = 12, kLayoutAt = 20, kClientRing = 24, kServerRing = 28,
                      kDevice = 32, kInode = 40, kHelloText = 48;
// A bit of the field at kMust, which lists features that the server must support. This bit: the
// text of the hello (the client's message) is a destination, which the server must check.
constexpr std::uint32_t kHasDestination = 1;
constexpr std::size_t kStatus = 12, kRetryAfter = 20, kAnswerText = 24;

template <class T>
void put(std::string& message, std::size_t at, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    message[at + i] = static_cast<char>(value >> (8 * i) & 0xff);
}

template <class T>
T get(std::string_view message, std::size_t at) noexcept {
  T value = 0;
  for (std::size_t i = sizeof value; i-- != 0;)
    value = static_cast<T>(value << 8 | static_cast<unsigned char>(message[at + i]));
  return value;
}

std::string begin(std::string_view text, std::size_t text_at) {
  text = text.substr(0, kMostMessage - kHeader);
  std::string message(kMagic);
  message.resize(kHeader);
  put(message, kLength, static_cast<std::uint16_t>(kHeader + text.size()));
  put(message, text_at, static_cast<std::uint16_t>(text.size()));
  return message.append(text);
}

}  // namespace

std::string encode(const Hello& hello) {
  const Destination& to = hello.destination;
  std::string message = begin(to.text, kHelloText);
  put(message, kMust, to.text.empty() ? 0 : kHasDestination);
  put(message, kDevice, to.device);
  put(message, kInode, to.inode);
  put(message, kLayoutAt, kLayout);
  put(message, kClientRing, hello.client_ring);
  put(message, kServerRing, hello.server_ring);
  return message;
}

std::string encode(const Answer& answer) {
  std::string message = begin(answer.text, kAnswerText);
  put(message, kStatus, answer.status);
  put(message, kRetryAfter, static_cast<std::uint32_t>(retry_after_in(answer.text).count()));
  return message;
}

bool may_begin(std::string_view bytes) noexcept {
  const std::string_view all = kMagic.substr(0, kMagic.size() - 1);
  return bytes.substr(0, all.size()) == all.substr(0, bytes.size());
}

std::size_t message_length(std::string_view header) noexcept {
  const std::size_t length = get<std::uint16_t>(header, kLength);
  return length < kHeader || length > kMostMessage ? 0 : length;
}

Answer decode(std::string_view message, std::uint64_t most_ring, Hello& hello) {
  if (!message.starts_with(kMagic))
    return {Answer::kVersion, "this server speaks version 1 of shm"};
  const auto must = get<std::uint32_t>(message, kMust);
  if ((must & ~kHasDestination) != 0)
    return {Answer::kVersion, "the client needs a feature that this server does not have"};
  if (get<std::uint32_t>(message, kLayoutAt) != kLayout)
    return {Answer::kVersion, "the client has another layout of memory"};
  const std::size_t text = get<std::uint16_t>(message, kHelloText);
  if (kHeader + text > message.size())
    return {Answer::kRule, "the hello's text is longer than the hello"};
  if ((must & kHasDestination) != 0) {
    Destination& to = hello.destination;
    if (!is_destination(message.substr(kHeader, text)))
      return {Answer::kRule, "the hello's destination is not one"};
    to = {std::string(message.substr(kHeader, text)), get<std::uint64_t>(message, kDevice),
          get<std::uint64_t>(message, kInode)};
  }
  hello.client_ring = get<std::uint32_t>(message, kClientRing);
  hello.server_ring = get<std::uint32_t>(message, kServerRing);
  for (const std::uint32_t ring : {hello.client_ring, hello.server_ring}) {
    if (!is_ring_size(ring)) return {Answer::kSize, "a ring has a power of two from 64k to 1g"};
    if (ring > most_ring)
      return {Answer::kSize,
              "rings have at most " + std::to_string(most_ring) + " bytes here (option max-ring)"};
  }
  return {};
}

bool decode(std::string_view message, Answer& answer) {
  const std::size_t text = get<std::uint16_t>(message, kAnswerText);
  if (!message.starts_with(kMagic) || kHeader + text > message.size()) return false;
  answer.status = get<std::uint32_t>(message, kStatus);
  answer.text = message.substr(kHeader, text);
  return true;
}

Receipt::~Receipt() {
  if (made_here_.inherited()) return;  // a child of fork() only closes its copies of descriptors
  for (tcp::Fd& each : memories_) {
    if (!each) continue;
    const int fd = each.release();
    tcp::close_aside({&fd, 1});
  }
}

/// Keeps those of the passed descriptors that are of shared memory, and has the others closed by
/// another thread. Returns whether all were kept.
bool Receipt::keep(const tcp::Passed& passed) noexcept {
  bool all = true;
  for (std::size_t i = 0; i < passed.count; ++i) {
    const int fd = passed.descriptors[i];
    // Only a memfd has seals. F_GET_SEALS does not call the file's own file system, which might be
    // the peer's (FUSE) and block this thread.
    if (count_ < memories_.size() && fcntl(fd, F_GET_SEALS) >= 0) {
      memories_[count_++] = tcp::Fd(fd);
    } else {
      tcp::close_aside({&fd, 1});
      all = false;
    }
  }
  return all;
}

Receipt::Step Receipt::receive(int socket) noexcept {
  for (;;) {
    const std::size_t length = size_ < kHeader ? kHeader : message_length(message());
    if (length == 0) return Step::kForeign;
    if (size_ >= length) return Step::kDone;
    tcp::Passed passed;
    // The message is only peeked at. If it is refused, it stays in the socket, and the descriptors
    // in it are closed with the socket, which does not block this thread.
    const ssize_t n = tcp::peek_with(socket, bytes_.data() + size_, length - size_, passed);
    // An honest peer sends a message and its descriptors in one call. Descriptors without the rest
    // of the message break a rule: the peer could make this process keep them open.
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return count_ == 0 ? Step::kMore : Step::kForeign;
    if (n < 0) return Step::kEnded;
    if (!keep(passed)) return Step::kForeign;
    if (passed.more)
      return passed.count < tcp::Passed::kMost ? Step::kNoDescriptors : Step::kForeign;
    if (n == 0) return Step::kEnded;
    // recv() drops the message's references to the passed memory. memories_ has further references,
    // so the pages of the memory are not freed here, which could block this thread for long.
    const ssize_t taken =
        ::recv(socket, bytes_.data() + size_, static_cast<std::size_t>(n), MSG_DONTWAIT);
    if (taken <= 0) return Step::kEnded;
    size_ += static_cast<std::size_t>(taken);
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
