// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The inline functions of ConnectionBase, which count the bytes of each read and write of a
// connection. For the library's own sources; the header is not installed, since it contains probes.

#include <cstddef>

#include "ae/abi.h"
#include "conn/core/connection_base.h"
#include "conn/kit/probes.h"
#include "conn/loop_counters.h"

namespace conn { inline namespace AECONN_ABI {

inline void ConnectionBase::count_read(std::size_t size) noexcept {
  AECONN_PROBE(read, id_, size);
  bytes_read_ += size;
  if (counters_ != nullptr) [[likely]]
    counters_->bytes_read += size;
}

inline void ConnectionBase::count_written(std::size_t size) noexcept {
  AECONN_PROBE(write, id_, size);
  bytes_written_ += size;
  if (counters_ != nullptr) [[likely]]
    counters_->bytes_written += size;
}

inline ssize_t ConnectionBase::finish_read(ssize_t n) noexcept {
  if (n <= 0) [[unlikely]]
    return read_nothing(n);
  count_read(static_cast<std::size_t>(n));
  return n;
}

inline ssize_t ConnectionBase::finish_write(ssize_t n, std::size_t asked) noexcept {
  if (n != static_cast<ssize_t>(asked)) [[unlikely]]
    return wrote_less(n);
  count_written(asked);
  return n;
}

}}  // namespace conn
