// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The private data of an rdma_cm connection request or of its answer: a hello (which describes the
// end that sends it) or a resume message (to continue a connection over a new network path).

#include <algorithm>
#include <cstddef>
#include <span>

#include "ae/abi.h"
#include "conn/rdma/protocol/resume_message.h"
#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class PrivateData {
 public:
  /// Copies `data`, an encoded hello or resume message of at most sizeof(ResumeBytes) bytes (the
  /// longest of these messages).
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
