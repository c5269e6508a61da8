// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A queue pair whose driver is a function of the test.

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>

namespace testing {

/// Takes as many requests in all as the test says, and answers an error to the others.
class PostSendDriver : public ibv_qp {
 public:
  PostSendDriver() : ibv_qp{} {
    context = &table_;
    table_.ops.post_send = post;
  }
  PostSendDriver(const PostSendDriver&) = delete;
  PostSendDriver& operator=(const PostSendDriver&) = delete;
  virtual ~PostSendDriver() = default;

  std::size_t takes = 1000;
  int answer = ENOMEM;  ///< to the first request that is not taken
  bool names = true;    ///< whether the answer names that request
  int doorbells = 0;    ///< calls

 protected:
  virtual void take(const ibv_send_wr& work) = 0;

 private:
  static int post(ibv_qp* base, ibv_send_wr* work, ibv_send_wr** bad) {
    auto& self = *static_cast<PostSendDriver*>(base);
    ++self.doorbells;
    for (; work != nullptr; work = work->next) {
      if (self.taken_ == self.takes) {
        if (self.names) *bad = work;
        return self.answer;
      }
      ++self.taken_;
      self.take(*work);
    }
    return 0;
  }
  ibv_context table_{};
  std::size_t taken_ = 0;
};

}  // namespace testing
