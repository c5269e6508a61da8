// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Announces changes of files by a descriptor that becomes readable, with inotify(7). Files that are
// replaced, links that are set to others anywhere on the path, and folders that vanish and return
// are noticed, since folders are watched and not files.

#include <set>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class FileWatch {
 public:
  /// Watches nothing yet. Throws Error if the kernel gives no descriptor.
  FileWatch();
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;
  ~FileWatch();

  /// Readable once something may have changed, until drain() is called. Owned by this object.
  int fd() const noexcept { return fd_; }
  /// Returns whether this object was made in the parent of this process, before fork(). Its
  /// descriptor is then the parent's too: a child that called follow() or drain() would take the
  /// parent's events.
  bool inherited() const noexcept { return made_here_.inherited(); }
  /// Watches `files` from now on and no others. Must be called again after each change, because
  /// paths may then lead to other folders. A change after this call is announced. Throws Error if
  /// a folder may not be watched.
  void follow(const std::vector<std::string>& files);
  /// Reads all events. Returns false if no watched folder has caused any of them.
  bool drain() noexcept;

 private:
  bool follow_one(const std::string& file, std::set<int>& used);
  bool watch(const std::string& folder, bool entries, std::set<int>& used);

  int fd_;
  std::set<int> watched_;  // inotify's numbers of the watched folders
  const ae::MadeHere made_here_;
};

}}}  // namespace conn::tls
