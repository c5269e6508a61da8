// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

bool Reader::is_due(const Stream& stream) const noexcept {
  if (stream.peer_end().input_over()) return true;
  if (!stream.inbound().has_unread()) return false;
  return together_ == 1 || stream.inbound().unread_bytes() >= together_ ||
         stream.inbound().is_full();
}

int Reader::show(const Stream& stream, bool ended, std::size_t together, View& view) {
  const std::uint64_t unread = stream.inbound().unread_bytes();
  std::array<std::span<const std::byte>, 2> pieces;
  const std::size_t count = stream.inbound().peek(pieces);
  const bool have_come = unread >= together;
  // Fails if `together` bytes have arrived but are not contiguous, or if that many cannot arrive
  // before some unread bytes are read.
  if (have_come ? pieces[0].size() < together : !ended && stream.inbound().is_full()) {
    errno = EMSGSIZE;
    return -1;
  }
  if (!have_come && !ended) wait_for(together);
  std::size_t left = std::max(left_, together);
  for (std::size_t i = 0; i < count && left != 0; ++i) {
    const std::size_t size = std::min(left, pieces[i].size());
    view.pieces[i] = {const_cast<std::byte*>(pieces[i].data()), size};
    view.count = static_cast<int>(i) + 1;
    view.size += size;
    left -= size;
  }
  view.stable = false;
  view.last = ended && view.size == unread;
  shown_ = view.size;
  viewed_ = has_view_ = true;
  return 1;
}

}}}  // namespace conn::rdma
