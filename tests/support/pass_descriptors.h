// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Passes descriptors over a Unix socket, and counts those that this process has.

#include <dirent.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace testing {

/// Number of descriptors that this process has open.
inline std::size_t count_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  std::size_t count = 0;
  while (const dirent* each = readdir(folder.get())) count += each->d_name[0] != '.';
  return count - 1;  // that of the folder
}

/// Waits until so many descriptors are open: those of a peer are closed by another thread.
inline bool open_descriptors_become(std::size_t count) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (count_descriptors() != count) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// Sends bytes with descriptors, in one call. Returns 0 or an errno value.
inline int pass(int socket, std::string bytes, const std::vector<int>& descriptors, int flags = 0) {
  std::vector<char> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
  iovec from{bytes.data(), bytes.size()};
  msghdr sent{};
  sent.msg_iov = &from;
  sent.msg_iovlen = 1;
  sent.msg_control = control.data();
  sent.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&sent);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
  return ::sendmsg(socket, &sent, flags | MSG_NOSIGNAL) < 0 ? errno : 0;
}

}  // namespace testing
