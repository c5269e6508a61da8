// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Parts of the tests of shm: socket pairs, descriptors, memories that do not keep the rules.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "conn/shm/hello.h"
#include "conn/shm/memory.h"
#include "tests/support/catch.h"
#include "tests/support/pass_descriptors.h"
#include "tests/support/raw_socket.h"

namespace testing {

/// Two connected Unix sockets.
struct SocketPair {
  SocketPair() {
    std::array<int, 2> fds{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0) {
      one = conn::tcp::Fd(fds[0]);
      other = conn::tcp::Fd(fds[1]);
    }
  }
  conn::tcp::Fd one, other;
};

inline constexpr int kSealSize = F_SEAL_SHRINK | F_SEAL_GROW;
inline constexpr int kSealAll = kSealSize | 0x10 | F_SEAL_SEAL;  // F_SEAL_FUTURE_WRITE

/// Makes a memory of a page and a ring, as a client that may break the rules.
inline conn::tcp::Fd memory(std::size_t ring, int seals, bool filled = true) {
  conn::tcp::Fd fd(memfd_create("aeconn-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto size = static_cast<off_t>(conn::shm::kPage + ring);
  if (filled ? fallocate(fd.get(), 0, 0, size) != 0 : ftruncate(fd.get(), size) != 0) return {};
  if (seals != 0 && fcntl(fd.get(), F_ADD_SEALS, seals) != 0) return {};
  return fd;
}

/// A client that does what it likes: its memories, mapped as an attacker would, and its socket.
struct RawClient {
  explicit RawClient(const conn::Endpoint& to, std::size_t its_ring = 64 << 10)
      : socket(RawSocket::connect(to)), ring(its_ring) {
    mine = map(own);
    theirs = map(server);
    fcntl(own.get(), F_ADD_SEALS, kSealAll);
  }
  ~RawClient() {
    munmap(mine, conn::shm::kPage + ring);
    munmap(theirs, conn::shm::kPage + ring);
  }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  conn::shm::Words* map(const conn::tcp::Fd& fd) const {
    return static_cast<conn::shm::Words*>(
        mmap(nullptr, conn::shm::kPage + ring, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
  }
  /// Sends a hello that keeps the rules, with these descriptors.
  void greet(const std::vector<int>& descriptors) const {
    const auto size = static_cast<std::uint32_t>(ring);
    const std::string hello = conn::shm::encode(conn::shm::Hello{size, size});
    REQUIRE(conn::shm::send_message(socket.fd(), hello, descriptors.data(), descriptors.size()) ==
            0);
  }
  void greet() const { greet({own.get(), server.get()}); }
  /// The status of the server's answer; -1: it has closed the socket.
  int answer() {
    const std::string header = socket.receive(conn::shm::kHeader);
    if (header.size() != conn::shm::kHeader) return -1;
    const std::string all =
        header + socket.receive(static_cast<unsigned char>(header[10]) +
                                256 * static_cast<unsigned char>(header[11]) - conn::shm::kHeader);
    conn::shm::Answer read;
    REQUIRE(conn::shm::decode(all, read));
    text = read.text;
    return static_cast<int>(read.status);
  }

  RawSocket socket;
  const std::size_t ring;
  conn::tcp::Fd own = memory(ring, kSealSize), server = memory(ring, kSealSize);
  conn::shm::Words* mine = nullptr;    // what this client may write
  conn::shm::Words* theirs = nullptr;  // the server's words; still writable, as nobody can prevent
  std::string text;                    // of the answer
};

/// A child of fork() that does nothing, and has copies of this process's descriptors until this
/// object is destroyed.
class IdleChild {
 public:
  IdleChild() {
    REQUIRE(::pipe(pipe_.data()) == 0);
    child_ = fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) {
      ::close(pipe_[1]);
      char byte;
      (void)!::read(pipe_[0], &byte, 1);  // until the parent is done
      _exit(0);
    }
    ::close(pipe_[0]);
  }
  ~IdleChild() {
    ::close(pipe_[1]);
    waitpid(child_, nullptr, 0);
  }
  IdleChild(const IdleChild&) = delete;
  IdleChild& operator=(const IdleChild&) = delete;

 private:
  std::array<int, 2> pipe_{};
  pid_t child_ = -1;
};

}  // namespace testing
