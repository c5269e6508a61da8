// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/awaited_headers.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <new>
#include <utility>

#include "conn/tcp/passed_descriptors.h"
#include "conn/url/coded_failure.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {
namespace {

// Number of bytes that one call looks at; the PROXY headers that proxies really send are shorter.
constexpr std::size_t kPiece = 512;
constexpr std::string_view kUnreadable = "cannot be read";
// A deadline may pass while a handler of the program runs, which itself runs the loop (a nested
// iteration). The sockets are then checked again after this time.
constexpr ae::Duration kWhileBusy = std::chrono::milliseconds(10);

}  // namespace

void AwaitedHeaders::add(Accepted socket) {
  if (waiting_.size() >= most_)
    fail(waiting_.begin(), EBUSY,
         "has not arrived, and more connections wait for theirs than option backlog allows");
  Place place;
  try {
    waiting_.push_back({std::move(socket), std::chrono::steady_clock::now() + timeout_});
    place = std::prev(waiting_.end());
  } catch (const std::bad_alloc&) {
    return owner_.header_lost();
  }
  // If the oldest socket was closed to make room, the handler told of it may have paused the
  // listener. Otherwise the header is read now, since most proxies send it at once.
  if (loop_ == nullptr || !read(place)) return;
  try {
    watch(place);
    set_timer();
  } catch (const std::bad_alloc&) {
    take(place).fd.reset();
    owner_.header_lost();
  }
}

void AwaitedHeaders::watch(Place place) {
  loop_->add_file_event(place->socket.fd.get(), ae::kReadable | ae::kTrusted,
                        [this, place](int, ae::Mask) {
                          if (!owner_.busy()) (void)read(place);
                        });
  place->watched = true;
}

void AwaitedHeaders::watch(ae::EventLoop& loop) {
  if (loop_ != nullptr) return;
  loop_ = &loop;
  try {
    for (Place place = waiting_.begin(); place != waiting_.end(); ++place) watch(place);
    set_timer();
  } catch (const std::bad_alloc&) {
    unwatch();
    throw;
  }
}

void AwaitedHeaders::unwatch() noexcept {
  if (loop_ == nullptr) return;
  for (Waiting& each : waiting_)
    if (std::exchange(each.watched, false))
      loop_->remove_file_event(each.socket.fd.get(), ae::kReadable);
  if (timer_ != 0) loop_->remove_time_event(std::exchange(timer_, 0));
  loop_ = nullptr;
}

void AwaitedHeaders::clear() noexcept {
  unwatch();
  waiting_.clear();
}

Accepted AwaitedHeaders::take(Place place) noexcept {
  if (place->watched) loop_->remove_file_event(place->socket.fd.get(), ae::kReadable);
  Accepted socket = std::move(place->socket);
  waiting_.erase(place);
  return socket;
}

/// Closes the socket and reports why. `problem` continues the sentence "its PROXY protocol header".
/// In a child of fork() only closes its copy of a socket that its parent has accepted.
void AwaitedHeaders::fail(Place place, int err, std::string_view problem) {
  const bool inherited = place->made_here.inherited();
  Accepted socket = take(place);
  socket.fd.reset();
  if (inherited) return;
  owner_.header_failed(coded_failure({err, std::generic_category()}, [&] {
    std::string text = socket.peer.to_string();
    if (text.empty()) text = "a client";  // a Unix socket without a name
    text.append(": its PROXY protocol header ").append(problem);
    if (problem == kUnreadable) text.append(": ").append(errno_text(err));
    return text;
  }));
}

/// Reads what has arrived of the socket's header, and no byte after the header. Returns whether the
/// socket still waits for its header; if not, it was passed on or closed, and handlers may have
/// run.
bool AwaitedHeaders::read(Place place) {
  if (place->made_here.inherited()) return fail(place, 0, {}), false;
  const int fd = place->socket.fd.get();
  ProxyHeaderReader& header = place->header;
  const auto failed = [&](int err, std::string_view problem) {
    fail(place, err, problem);
    return false;
  };
  std::array<std::byte, kPiece> bytes;
  for (;;) {
    // Only the bytes themselves tell where the PROXY header ends. So the unread bytes are first
    // looked at with MSG_PEEK, which leaves them in the socket; then the bytes of the header are
    // read, and no others.
    bool came = false;
    const ssize_t seen = place->socket.fd.passes_descriptors()
                             ? peek_without(fd, bytes.data(), bytes.size(), came)
                             : ::recv(fd, bytes.data(), bytes.size(), MSG_PEEK);
    if (came) return failed(EPROTO, "comes with descriptors");
    if (seen < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
    if (seen < 0) return failed(errno, kUnreadable);
    if (seen == 0) return failed(ECONNRESET, "is incomplete: the connection was closed");
    const std::size_t taken = header.read({bytes.data(), static_cast<std::size_t>(seen)});
    if (header.status() == ProxyHeaderReader::Status::kMalformed)
      return failed(EPROTO, header.problem());
    if (::recv(fd, bytes.data(), taken, 0) != static_cast<ssize_t>(taken))
      return failed(errno, kUnreadable);
    if (header.status() == ProxyHeaderReader::Status::kComplete) break;
    if (static_cast<std::size_t>(seen) < bytes.size()) return true;
  }
  place->socket.client = header.client();
  owner_.header_arrived(take(place));
  return false;
}

void AwaitedHeaders::set_timer() {
  if (loop_ == nullptr || timer_ != 0 || waiting_.empty()) return;
  ae::TimePoint when = waiting_.front().deadline;
  if (owner_.busy()) when = std::max(when, std::chrono::steady_clock::now() + kWhileBusy);
  timer_ = loop_->add_time_event(when, [this] {
    timer_ = 0;
    expire();
    return ae::kNoMore;
  });
}

void AwaitedHeaders::expire() {
  // the destructor sets the timer again, even if a handler throws
  struct Then {
    AwaitedHeaders& headers;
    ~Then() {
      try {
        headers.set_timer();
      } catch (const std::bad_alloc&) {
        // If memory runs out, the timer is not set; the next socket that waits tries again.
      }
    }
  } then{*this};
  for (bool first = true; loop_ != nullptr && !waiting_.empty() && !owner_.busy(); first = false) {
    if (!first && !loop_->has_time()) return;  // the timer set by ~Then() calls this function again
    const Place oldest = waiting_.begin();
    if (oldest->deadline > std::chrono::steady_clock::now()) return;
    // The loop itself may be late: a header that has arrived meanwhile is accepted.
    if (read(oldest)) fail(oldest, ETIMEDOUT, "has not arrived in time");
  }
}

}}}  // namespace conn::tcp
