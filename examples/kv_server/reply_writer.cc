#include "reply_writer.h"

namespace kv {

void ReplyWriter::simple(std::string_view text) {
  out_.append("+");
  out_.append(text);
  out_.append("\r\n");
}

void ReplyWriter::error(std::string_view text) {
  ++errors_;
  last_error_ = text;
  for (char& c : last_error_) {
    if (c == '\r' || c == '\n') c = ' ';
  }
  out_.append("-");
  out_.append(last_error_);
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
