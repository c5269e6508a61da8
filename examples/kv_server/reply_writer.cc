// SPDX-License-Identifier: BSD-3-Clause
#include "reply_writer.h"

#include <algorithm>
#include <string>

namespace kv {

void ReplyWriter::simple(std::string_view text) {
  out_.append("+");
  out_.append(text);
  out_.append("\r\n");
}

void ReplyWriter::error(std::string_view text) {
  ++errors_;
  std::string line(text);
  for (char& c : line) {
    if (c == '\r' || c == '\n') c = ' ';
  }
  out_.append("-");
  out_.append(line);
  out_.append("\r\n");
}

void ReplyWriter::refer(Entry& entry) {
  if (out_.size() > limit_) {
    overflowed_ = true;
    return;
  }
  header('$', entry.value_size);
  references_->add(out_.size(), &entry);
  limit_ = limit_ == static_cast<std::size_t>(-1)
               ? limit_
               : limit_ - std::min<std::size_t>(limit_, entry.value_size);
  out_.append("\r\n");
}

void ReplyWriter::verbatim(std::string_view text) {
  if (version_ < 3) return bulk(text);
  header('=', static_cast<std::int64_t>(text.size() + 4));
  out_.append("txt:");
  out_.append(text);
  out_.append("\r\n");
}

}  // namespace kv
