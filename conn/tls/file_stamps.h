// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Tells whether the files that the options of TLS name have changed since they were read (option
// reload=auto).

#include <cstdint>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/tls/settings.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Returns the names of all files and folders that are read for `settings`: certificates, keys,
/// pass phrase, trusted certificates, revocation lists and DH parameters.
std::vector<std::string> files_of(const Settings& settings);

/// What stat(2) said of some files at one time. A later FileStamps of the same files differs if one
/// of them was written or replaced meanwhile, or if a symbolic link was set to another file, since
/// links are followed. Of a folder only its list of entries counts.
class FileStamps {
 public:
  FileStamps() = default;  ///< no files
  /// Asks the kernel for each of `files`. One that does not exist is a state like any other.
  explicit FileStamps(const std::vector<std::string>& files);
  bool operator==(const FileStamps&) const = default;

  /// Whether no file was written within the last `span`, so that whoever writes them has probably
  /// finished. A time of last change that lies in the future counts as long ago.
  bool quiet_for(ae::Duration span) const;
  /// Throws Error if one is neither a file nor a folder. It must not be read on a loop: to open a
  /// pipe may wait for ever, and a device may have no end.
  void refuse_special() const;
  /// Returns text that is equal for equal stamps alone.
  std::string text() const;

 private:
  struct Stamp {
    std::uint64_t device = 0, inode = 0;
    std::int64_t size = -1;                 // -1: there is no such file
    std::int64_t written = 0, changed = 0;  // ns since 1970: the contents; the inode as well
    bool operator==(const Stamp&) const = default;
  };
  std::vector<Stamp> stamps_;
  std::string special_;  // the first one that is neither a file nor a folder
};

}}}  // namespace conn::tls
