// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A file to write, or standard output for "-", whose failures are not overlooked.

#include <cerrno>
#include <fstream>
#include <iostream>
#include <string>

#include "conn/error.h"

namespace perf {

class OutputFile {
 public:
  /// Throws conn::Error if it cannot be written.
  explicit OutputFile(const std::string& path) : path_(path) {
    if (path == "-") return;
    file_.open(path);
    if (!file_) throw conn::Error("cannot write " + path + ": " + conn::errno_text(errno));
  }
  std::ostream& stream() { return path_ == "-" ? std::cout : file_; }
  void finish() {
    if (!stream().flush())
      throw conn::Error("cannot write " + path_ + ": " + conn::errno_text(errno));
  }

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace perf
