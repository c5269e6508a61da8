// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A process that can open nothing for a while.

#include <sys/resource.h>

namespace testing {

/// While an instance exists, this process can make no descriptor; those that it has still work.
class NoNewDescriptors {
 public:
  NoNewDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{3, before_.rlim_max};  // 0 to 2 are open
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoNewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoNewDescriptors(const NoNewDescriptors&) = delete;
  NoNewDescriptors& operator=(const NoNewDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace testing
