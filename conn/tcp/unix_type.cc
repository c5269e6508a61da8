// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/unix_type.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <thread>

#include "conn/error.h"
#include "conn/tcp/passed_descriptors.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {
namespace {

using namespace std::chrono_literals;

/// Locks the folder of the socket file `path`, so that two servers that start at once do not take
/// each other's new socket for a stale one: each holds the lock from checking the old socket until
/// its own listens. Returns an empty Fd if the folder cannot be locked; it is then used without a
/// lock.
Fd lock_folder(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int tries = 0; fd && flock(fd.get(), LOCK_EX | LOCK_NB) != 0; ++tries) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || tries == 200) return {};
    std::this_thread::sleep_for(5ms);
  }
  return fd;
}

/// Returns why the existing file `path` cannot be replaced by a new socket; no failure if the file
/// is gone or is a socket without a listener.
Failure why_not_stale(const std::string& path, const SocketAddress& address) {
  const auto unknown = [] { return Failure({errno, std::generic_category()}, errno_text(errno)); };
  const auto in_use = [](const char* how) {
    return Failure(std::make_error_code(std::errc::address_in_use), how);
  };
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return errno == ENOENT ? Failure() : unknown();
  if (!S_ISSOCK(info.st_mode)) return in_use("the path exists and is not a socket");
  const Fd probe = open_socket(AF_UNIX);
  if (!probe) return unknown();
  if (::connect(probe.get(), address.get(), address.size) == 0) {
    return in_use("another process listens on this socket");
  }
  switch (errno) {
    case ECONNREFUSED:
      return {};  // no listener: the socket file is stale and may be replaced
    case ENOENT:
      return {};  // the file was removed meanwhile, so nothing is in the way
    case EAGAIN:
      // EAGAIN means that the listener's backlog is full
      return in_use("another process listens on this socket");
    case EPROTOTYPE:
      return in_use("another process uses this socket (for datagrams)");
    default:
      return unknown();
  }
}

/// Opens the new socket file to change its group and mode. Returns 0 or the errno value of the
/// failure.
int open_file(const std::string& path, Fd& file) noexcept {
  // If others can write to the folder, the path may by now be another file or a link to one, and
  // may be replaced at any time. So the file is opened, which does not follow a link, and what was
  // opened is checked and changed.
  file = Fd(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0) return errno;
  return S_ISSOCK(info.st_mode) ? 0 : EEXIST;
}

/// Gives the open socket file the permissions `mode`. Returns 0 or the errno value of the failure.
int set_mode(const Fd& file, const std::string& path, int mode) noexcept {
  std::array<char, 32> same{};
  (void)std::snprintf(same.data(), same.size(), "/proc/self/fd/%d", file.get());
  if (fchmodat(AT_FDCWD, same.data(), static_cast<mode_t>(mode), 0) == 0) return 0;
  // Without /proc there is only the path.
  if (errno == ENOENT && ::chmod(path.c_str(), static_cast<mode_t>(mode)) == 0) return 0;
  return errno;
}

/// Gives the open file the group of option group. Until listen() is called, nobody can connect,
/// whatever the file's mode. Returns 0 or the errno value of the failure.
int set_group(const Fd& file, gid_t group) noexcept {
  const int result = fchownat(file.get(), "", static_cast<uid_t>(-1), group, AT_EMPTY_PATH);
  return result == 0 ? 0 : errno;
}

/// Returns a function that removes the socket file when listening ends, if the file is still the
/// one that bind() created. In a forked child the function does nothing, since the parent still
/// listens.
std::function<void()> remover(const std::string& path) {
  struct stat made {};
  if (lstat(path.c_str(), &made) != 0) return nullptr;
  return [path, device = made.st_dev, inode = made.st_ino, owner = getpid()] {
    struct stat now {};
    if (getpid() != owner || lstat(path.c_str(), &now) != 0) return;
    if (S_ISSOCK(now.st_mode) && now.st_dev == device && now.st_ino == inode) {
      ::unlink(path.c_str());
    }
  };
}

}  // namespace

void UnixType::check_address(const Endpoint& endpoint) const {
  if (!endpoint.hosts.empty()) throw Error("a unix endpoint has a path and no host");
  (void)unix_address(endpoint.path);
}

std::vector<SocketType::Bound> UnixType::bind(const Endpoint& endpoint,
                                              const Settings& settings) const {
  const std::string& path = endpoint.path;
  const auto refuse = [&](int err, const std::string& why) {
    throw Error(std::error_code(err, std::generic_category()),
                endpoint.to_string() + ": listen on " + path + ": " + why);
  };
  const auto fail = [&](int err) { refuse(err, errno_text(err)); };
  const SocketAddress address = unix_address(path);
  const bool abstract = is_abstract(path);
  if (abstract && (settings.mode >= 0 || settings.group)) {
    refuse(EINVAL,
           "an abstract name is no file and has neither mode nor group; leave mode= and "
           "group= out, or use a path");
  }
  Fd fd = open_socket(AF_UNIX);
  if (!fd) fail(errno);
  apply(settings, fd.get(), AF_UNIX);
  if (!takes_descriptors()) refuse_descriptors(fd.get());
  const auto bound = [&](std::function<void()> remove) {
    Endpoint real;
    real.scheme = endpoint.scheme;
    real.path = path;
    std::vector<Bound> sockets;
    sockets.push_back({std::move(fd), std::move(real), std::move(remove)});
    return sockets;
  };
  if (abstract) {
    if (::bind(fd.get(), address.get(), address.size) != 0) {
      if (errno == EADDRINUSE) refuse(errno, "another process uses this abstract name");
      fail(errno);
    }
    if (::listen(fd.get(), settings.backlog) != 0) fail(errno);
    return bound(nullptr);
  }
  // bind() creates the socket file with the mode of the socket's descriptor, less the umask.
  // Setting that mode first means that the file's mode is never wider than requested, not even
  // before set_mode().
  if (settings.mode >= 0) (void)fchmod(fd.get(), static_cast<mode_t>(settings.mode));

  const Fd lock = lock_folder(path);
  int err = ::bind(fd.get(), address.get(), address.size) == 0 ? 0 : errno;
  if (err == EADDRINUSE) {
    if (const Failure why = why_not_stale(path, address)) refuse(why.code.value(), why.text);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail(errno);
    err = ::bind(fd.get(), address.get(), address.size) == 0 ? 0 : errno;
  }
  if (err != 0) fail(err);
  const auto undo = [&](const std::string& what, const char* hint) {
    ::unlink(path.c_str());
    refuse(err, "set its " + what + ": " + errno_text(err) + (err == EPERM ? hint : ""));
  };
  Fd file;
  if (settings.group || settings.mode >= 0) err = open_file(path, file);
  // The group is set before the mode: chown(2) may take permissions away.
  if (settings.group && (err != 0 || (err = set_group(file, *settings.group)) != 0))
    undo("group to " + std::to_string(*settings.group),
         "; the process must belong to the group or have CAP_CHOWN");
  if (settings.mode >= 0 && (err != 0 || (err = set_mode(file, path, settings.mode)) != 0))
    undo("mode", "");
  std::function<void()> remove = remover(path);
  if (::listen(fd.get(), settings.backlog) != 0) {
    err = errno;
    if (remove) remove();
    fail(err);
  }
  return bound(std::move(remove));
}

}}}  // namespace conn::tcp
