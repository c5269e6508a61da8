// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The private data of a connection request or of its answer: a hello or a resume message.

#include <algorithm>
#include <cstddef>
#include <span>

#include "ae/abi.h"
#include "conn/rdma/protocol/resume_message.h"
#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class PrivateData {
 public:
  /// Copies `data`, which must be at most as long as the longest hello or resume message
  /// (sizeof(ResumeBytes)).
  explicit PrivateData(std::span<const std::byte> data) noexcept : size_(data.size()) {
    std::copy(data.begin(), data.end(), bytes_.begin());
  }
  std::span<const std::byte> data() const noexcept { return std::span(bytes_).first(size_); }

 private:
  static_assert(sizeof(ResumeBytes) >= Hello::kAnswerSize);
  ResumeBytes bytes_{};
  std::size_t size_;
};

}}}  // namespace conn::rdma
