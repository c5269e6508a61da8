// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A process that can open nothing, or little, for a while.

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <vector>

namespace testing {

/// UBSan opens a pipe when it checks an object of a type for the first time, and without a
/// descriptor takes the object for a wrong one. So it sees errors of the system before.
inline void show_ubsan_an_error() {
  (void)std::system_error(EMFILE, std::generic_category(), "no descriptors");
}

/// While an instance exists, this process can make no descriptor; those that it has still work.
class NoNewDescriptors {
 public:
  /// `limit` must be at most 3, since 0 to 2 are open. With 0 poll(2) fails, too.
  explicit NoNewDescriptors(rlim_t limit = 3) {
    show_ubsan_an_error();
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{limit, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoNewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoNewDescriptors(const NoNewDescriptors&) = delete;
  NoNewDescriptors& operator=(const NoNewDescriptors&) = delete;

 private:
  rlimit before_{};
};

/// While an instance exists, this process can make no more than `count` descriptors.
class FewDescriptors {
 public:
  explicit FewDescriptors(unsigned count) {
    show_ubsan_an_error();
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few{3, before_.rlim_max};  // 0 to 2 are open
    std::vector<int> left;
    while (left.size() < count) left.push_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    for (const int fd : left) {
      few.rlim_cur = static_cast<rlim_t>(fd) + 1;
      ::close(fd);
    }
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace testing
