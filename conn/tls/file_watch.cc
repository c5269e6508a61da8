// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/file_watch.h"

#include <limits.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <string_view>
#include <system_error>

#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

// Events that are watched for every folder on the path of a file: the folder itself is removed or
// moved.
constexpr std::uint32_t kSelf = IN_DELETE_SELF | IN_MOVE_SELF;
// Events that are also watched for a folder in which the next part of the path is a file or a link,
// or does not exist yet. IN_MODIFY is not among them: a file that is written in place counts as
// changed once its writer closes it.
constexpr std::uint32_t kEntries =
    IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB;
// Most links that Linux follows on one path (path_resolution(7)).
constexpr int kMostLinks = 40;
// How many times a path is followed again because a folder vanished in the meantime.
constexpr int kTries = 10;

[[noreturn]] void refuse(const std::string& what, int error, const char* limit) {
  std::string text = "option reload=auto: " + what + ": " + std::generic_category().message(error);
  if (limit != nullptr) text.append("; raise the limit ").append(limit);
  throw Error({error, std::generic_category()}, text);
}

void push_front(std::deque<std::string>& parts, std::string_view path) {
  std::deque<std::string> first;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    if (end != 0 && path.substr(0, end) != ".") first.emplace_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  parts.insert(parts.begin(), first.begin(), first.end());
}

/// Returns what the link `name` leads to; empty if it is gone.
std::string target_of(const std::string& name) {
  std::array<char, PATH_MAX> target;
  const ssize_t size = ::readlink(name.c_str(), target.data(), target.size());
  return {target.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

std::string start_of(std::string_view path) { return path.starts_with('/') ? "/" : "."; }

}  // namespace

FileWatch::FileWatch() : fd_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  if (fd_ < 0)
    refuse("watch files", errno,
           errno == EMFILE ? "fs.inotify.max_user_instances or ulimit -n" : nullptr);
}

FileWatch::~FileWatch() { ::close(fd_); }

void FileWatch::follow(const std::vector<std::string>& files) {
  std::set<int> used;
  for (const std::string& file : files)
    for (int tries = 0; tries < kTries && !follow_one(file, used);) ++tries;
  for (const int old : watched_)
    // inotify_rm_watch() fails, without harm, for a folder that has been removed.
    if (!used.contains(old)) (void)::inotify_rm_watch(fd_, old);
  watched_ = std::move(used);
}

/// Follows the path of `file`, as the kernel does. Watches each folder before looking up the next
/// part of the path in it, so that a change after the look-up is announced. Returns false if a
/// folder vanished before it was watched.
bool FileWatch::follow_one(const std::string& file, std::set<int>& used) {
  std::deque<std::string> parts;
  push_front(parts, file);
  std::string folder = start_of(file);
  int links = 0;
  while (!parts.empty()) {
    const std::string name = (folder == "/" ? "" : folder) + "/" + parts.front();
    parts.pop_front();
    if (!watch(folder, parts.empty(), used)) return false;
    struct stat info {};
    if (::lstat(name.c_str(), &info) != 0 || S_ISLNK(info.st_mode)) {
      if (!watch(folder, true, used)) return false;
      // If the file does not exist, an event of its folder will announce that it was created.
      if (::lstat(name.c_str(), &info) != 0) return true;
    }
    if (!S_ISLNK(info.st_mode)) {
      if (parts.empty()) return !S_ISDIR(info.st_mode) || watch(name, true, used);
      folder = name;
      continue;
    }
    const std::string target = target_of(name);
    if (target.empty()) return false;
    if (++links > kMostLinks) return true;
    if (target.starts_with('/')) folder = "/";
    push_front(parts, target);
  }
  return true;
}

/// Watches `folder` for events of the folder itself, with `entries` also for changes of its
/// entries. Adds inotify's number of the folder to `used`. Returns false if there is no such
/// folder.
bool FileWatch::watch(const std::string& folder, bool entries, std::set<int>& used) {
  const std::uint32_t mask = kSelf | (entries ? kEntries : 0);
  const int number = ::inotify_add_watch(fd_, folder.c_str(), mask | IN_ONLYDIR | IN_MASK_ADD);
  if (number >= 0) {
    used.insert(number);
    return true;
  }
  if (errno == ENOENT || errno == ENOTDIR) return false;
  // EACCES: the process may pass through this folder but not list it, so it cannot be watched. That
  // matters only if its entries must be watched.
  if (errno == EACCES && !entries) return true;
  refuse("watch the folder " + folder, errno,
         errno == ENOSPC ? "fs.inotify.max_user_watches" : nullptr);
}

bool FileWatch::drain() noexcept {
  alignas(inotify_event) std::array<char, 4096> buffer;
  bool any = false;
  for (;;) {
    const ssize_t size = ::read(fd_, buffer.data(), buffer.size());
    if (size <= 0) return any;
    for (std::size_t at = 0; at < static_cast<std::size_t>(size);) {
      inotify_event event;
      std::memcpy(&event, buffer.data() + at, sizeof event);
      // IN_IGNORED only reports that a folder is no longer watched.
      any = any || event.mask != IN_IGNORED;
      at += sizeof event + event.len;
    }
  }
}

}}}  // namespace conn::tls
