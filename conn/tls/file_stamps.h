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

/// What stat(2) returned for some files at one time. A later FileStamps of the same files differs
/// if one of them was written or replaced meanwhile, or if a symbolic link was set to another file,
/// since links are followed. A change in a folder is noticed only if its list of entries changes.
class FileStamps {
 public:
  FileStamps() = default;  ///< no files
  /// Reads the state of each file with stat(2). That a file does not exist is one of the possible
  /// states.
  explicit FileStamps(const std::vector<std::string>& files);
  bool operator==(const FileStamps&) const = default;

  /// Whether no file was written within the last `span`, so that whoever writes them has probably
  /// finished. A time of last change that lies in the future counts as long ago.
  bool quiet_for(ae::Duration span) const;
  /// Throws Error if one of the files is neither a regular file nor a folder. Such a file must not
  /// be read on a loop's thread: opening a pipe may block for ever, and a device may have no end.
  void refuse_special() const;
  /// Returns a text that is equal for equal objects, and differs for different ones.
  std::string text() const;

 private:
  struct Stamp {
    std::uint64_t device = 0, inode = 0;
    std::int64_t size = -1;  // -1: there is no such file
    // Times in ns since 1970 of the last change of the contents, and of the contents or the inode.
    std::int64_t written = 0, changed = 0;
    bool operator==(const Stamp&) const = default;
  };
  std::vector<Stamp> stamps_;
  // The first of the files that is neither a regular file nor a folder; "": none.
  std::string special_;
};

}}}  // namespace conn::tls
