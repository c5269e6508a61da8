// SPDX-License-Identifier: BSD-3-Clause
#include "drop_ins/redis/errand.h"

#include <cerrno>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace aeconn_redis {
namespace {

struct Errand {
  std::mutex mutex;
  std::condition_variable changed;
  void* buffer;
  std::size_t size;
  ssize_t result = -1;
  int error = EAGAIN;
  std::string why;
  bool over = false;  // completed or timed out: nobody waits, and the buffer is invalid
};

/// Runs on the loop's thread. Returns false if no data is available yet.
bool run(Errand& errand, conn::Connection& peer) {
  const std::lock_guard lock(errand.mutex);
  if (errand.over) return true;
  errand.result = peer.read(errand.buffer, errand.size);
  errand.error = errno;
  if (errand.result < 0 && errand.error == EAGAIN) return false;
  errand.why = peer.last_error();
  errand.over = true;
  errand.changed.notify_one();
  return true;
}

void begin(const std::shared_ptr<Errand>& errand, ServerConnection* c) {
  {
    const std::lock_guard lock(errand->mutex);
    if (errand->over) return;  // the connection may be destroyed as well
  }
  conn::Connection* peer = connection_of(c);
  if (peer == nullptr || run(*errand, *peer)) return;
  peer->set_read_handler([errand](conn::Connection& readable) {
    if (run(*errand, readable)) readable.set_read_handler(nullptr);
  });
}

}  // namespace

ssize_t read_elsewhere(ServerConnection* c, void* buffer, std::size_t size, ae::Duration time_limit,
                       std::string& why) {
  const auto errand = std::make_shared<Errand>();
  errand->buffer = buffer;
  errand->size = size;
  Host::poster().post([errand, c] { begin(errand, c); });  // without a loop, the wait times out
  std::unique_lock lock(errand->mutex);
  errand->changed.wait_for(lock, time_limit, [&] { return errand->over; });
  errand->over = true;
  if (!errand->why.empty()) why = errand->why;
  errno = errand->error;
  return errand->result;
}

ssize_t readline_elsewhere(ServerConnection* c, char* line, std::size_t size,
                           ae::Duration time_limit, std::string& why) {
  const auto until = std::chrono::steady_clock::now() + time_limit;
  std::size_t length = 0;
  while (length + 1 < size) {
    const ssize_t n =
        read_elsewhere(c, line + length, 1, until - std::chrono::steady_clock::now(), why);
    if (n < 0 && errno == EAGAIN) errno = ETIMEDOUT;
    if (n == 0) errno = ECONNRESET;
    if (n <= 0) return -1;
    if (line[length] == '\n') {
      if (length != 0 && line[length - 1] == '\r') --length;
      line[length] = 0;
      return static_cast<ssize_t>(length);
    }
    ++length;
  }
  errno = EMSGSIZE;
  return -1;
}

}  // namespace aeconn_redis
