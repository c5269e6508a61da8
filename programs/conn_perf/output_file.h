// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// An output file, or standard output for "-", that reports write errors.

#include <cerrno>
#include <fstream>
#include <string>
#include <string_view>

#include "conn/error.h"
#include "programs/service/standard_streams.h"

namespace perf {

class OutputFile {
 public:
  /// Opens the file. Throws conn::Error if it cannot be written.
  explicit OutputFile(const std::string& path) : path_(path) {
    if (path == "-") return;
    file_.open(path);
    if (!file_) throw conn::Error("cannot write " + path + ": " + conn::errno_text(errno));
  }
  void write(std::string_view text) {
    if (path_ == "-")
      service::print(text);
    else
      file_ << text;
  }
  void finish() {
    if (path_ != "-" && !file_.flush())
      throw conn::Error("cannot write " + path_ + ": " + conn::errno_text(errno));
  }

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace perf
