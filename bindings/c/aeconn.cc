// SPDX-License-Identifier: BSD-3-Clause
// The C interface over ae::EpollLoop and conn::Registry: the library, loops and listeners. Groups
// of loops are in group.cc, connections in connection.cc and redial.cc; internal.h has what they
// share.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <new>

#include "ae/once.h"
#include "c/internal.h"
#include "conn/kit/interruption.h"
#include "conn/metrics.h"
#include "conn/transports/transports.h"

namespace aeconn_c {
namespace {

/// The sentences of all threads, each of which is freed when its thread ends. A thread_local object
/// with a destructor could not be used: the C library ends the process if it has no memory to
/// register the destructor, which happens when a thread reports its first failure.
class Sentences {
 public:
  Sentences() noexcept : made_(pthread_key_create(&key_, std::free) == 0) {}
  /// Stores a copy of the calling thread's sentence; without memory, an empty one.
  void set(std::string_view sentence) noexcept {
    char* const before = mine();
    char* const copy = made_ ? static_cast<char*>(std::malloc(sentence.size() + 1)) : nullptr;
    if (copy != nullptr) {
      std::memcpy(copy, sentence.data(), sentence.size());
      copy[sentence.size()] = '\0';
      if (pthread_setspecific(key_, copy) == 0) return std::free(before);
      std::free(copy);
    }
    if (before != nullptr) *before = '\0';
  }
  const char* get() const noexcept {
    const char* const sentence = mine();
    return sentence != nullptr ? sentence : "";
  }

 private:
  char* mine() const noexcept {
    return made_ ? static_cast<char*>(pthread_getspecific(key_)) : nullptr;
  }

  pthread_key_t key_{};
  const bool made_;
};

// Made when the library is loaded. A static variable of a function would have a lock that a child
// of fork() could inherit.
Sentences sentences;

int not_after_fork(const char* function) {
  return failed(ECHILD, std::string(function) +
                            " on a loop of the parent process: call aeconn_after_fork() first");
}

/// Where aeconn_note() stores contexts: the list of the loop that aeconn_collect() dispatches on
/// this thread now; null at other times.
thread_local std::vector<void*>* notes = nullptr;

}  // namespace

int failed(int err, std::string_view sentence) noexcept {
  sentences.set(sentence);
  errno = err;
  return -1;
}

int number_of(const std::error_code& code) noexcept {
  if (!code) return 0;
  if (code.category() == std::generic_category() || code.category() == std::system_category())
    return code.value();
  const std::error_condition condition = code.default_error_condition();
  return condition.category() == std::generic_category() ? condition.value() : EIO;
}

int caught() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return failed(ENOMEM, "out of memory");
  } catch (const ae::LoopError& error) {
    return failed(EINVAL, error.what());
  } catch (const std::system_error& error) {
    return failed(number_of(error.code()), error.what());
  } catch (const conn::Error& error) {
    const int err = number_of(error.code());
    return failed(err != 0 ? err : EINVAL, error.what());
  } catch (const std::exception& error) {
    return failed(ECANCELED, error.what());
  } catch (...) {
    return failed(ECANCELED, "an exception that is no std::exception");
  }
}

conn::Registry& registry() {
  return ae::once([] { return conn::Registry(conn::all_transports()); });
}

std::size_t copy_out(std::string_view text, char* to, std::size_t size) noexcept {
  if (size != 0 && to != nullptr) {
    const std::size_t fits = std::min(text.size(), size - 1);
    std::memcpy(to, text.data(), fits);
    to[fits] = '\0';
  }
  return text.size();
}

conn::Statistics statistics_of(ae::EpollLoop& loop, const char* scheme) {
  if (scheme != nullptr) return registry().require(scheme).statistics(loop);
  const ae::LoopTimes times = loop.times();
  return {{"busy_ns", static_cast<std::uint64_t>(times.busy.count())},
          {"spun_ns", static_cast<std::uint64_t>(times.spun.count())},
          {"slept_ns", static_cast<std::uint64_t>(times.slept.count())}};
}

/// Returns the URLs of the addresses that it listens on.
static std::vector<std::string> urls_of(const conn::Listener& listener) {
  std::vector<std::string> urls;
  for (const conn::Endpoint& each : listener.endpoints()) urls.push_back(each.to_string());
  return urls;
}

aeconn_listener* made(conn::ListenerPtr listener) {
  auto result = std::make_unique<aeconn_listener>(aeconn_listener{std::move(listener), {}});
  result->urls = urls_of(*result->listener);
  return result.release();
}

}  // namespace aeconn_c

using namespace aeconn_c;

namespace {

int prepare(const char* url, void (conn::ConnectionType::*how)(const conn::Endpoint&) const) {
  if (url == nullptr) return no_handle();
  return guarded([&] {
    const conn::Endpoint endpoint = conn::Endpoint::parse(url);
    (registry().require(endpoint.scheme).*how)(endpoint);
    return 0;
  });
}

conn::AcceptHandler accept_handler(aeconn_accept_fn fn, void* context) {
  return [fn, context](ConnectionPtr connection) { fn(context, handle(connection.release())); };
}

/// Gives the loop descriptors of its own in a child of fork(). If that fails, aeconn_dispatch()
/// goes on failing: with the descriptors of the parent it would take the parent's events.
void leave_parent(aeconn_loop& loop) {
  if (!loop.made_here.inherited()) return;
  loop.loop.after_fork();
  loop.made_here.renew();
}

/// Dispatches the loop, unless an exception of the last time must be reported first. An exception
/// that comes after contexts were stored is kept until these have been returned.
void dispatch_for_collect(aeconn_loop& loop) {
  if (loop.thrown) std::rethrow_exception(std::exchange(loop.thrown, nullptr));
  try {
    loop.loop.dispatch();
  } catch (...) {
    if (loop.noted.empty()) throw;
    loop.thrown = std::current_exception();
    try {
      loop.loop.post([] {});  // makes the descriptor readable, so that the host calls again
    } catch (const std::bad_alloc&) {
      // The exception is reported when the host calls again for another reason.
    }
  }
}

/// Stores what aeconn_listener_url() returns, unless there is no memory for it.
void store_urls(const aeconn_listener& listener) noexcept {
  try {
    listener.urls = urls_of(*listener.listener);
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

extern "C" {

// --- the library ---------------------------------------------------------------------------------

const char* aeconn_version() { return AECONN_VERSION; }

const char* aeconn_error() { return sentences.get(); }

int aeconn_has_transport(const char* scheme) {
  if (scheme == nullptr) return 0;
  return guarded([&] { return (void)registry().require(scheme), 1; }) == 1 ? 1 : 0;
}

int aeconn_configure(const char* scheme, const char* options) {
  if (scheme == nullptr || options == nullptr) return no_handle();
  return guarded([&] {
    registry().require(scheme).configure(conn::Options::parse(options));
    return 0;
  });
}

int aeconn_prepare_url(const char* url) { return prepare(url, &conn::ConnectionType::prepare); }

int aeconn_prepare_client_url(const char* url) {
  return prepare(url, &conn::ConnectionType::prepare_client);
}

int aeconn_reload_tls() {
  return guarded([] {
    registry().reload_tls();
    return 0;
  });
}

int aeconn_on_fallback(aeconn_fact_fn fn, void* context) {
  return guarded([&] {
    conn::FallbackHandler told;
    if (fn != nullptr) {
      told = [fn, context](const conn::Fallback& fallback) {
        fn(context, fallback.to.c_str(), conn::describe(fallback.not_taken).c_str());
      };
    }
    registry().on_fallback(std::move(told));
    return 0;
  });
}

void aeconn_on_signal(int (*fn)(void*), void* context) { conn::Interruption::ask(fn, context); }

// --- the loop ------------------------------------------------------------------------------------

aeconn_loop* aeconn_loop_new() {
  return guarded([] { return new aeconn_loop; });
}

void aeconn_loop_free(aeconn_loop* loop) {
  const NoCancel held;
  // A group's loop is freed by its group.
  if (loop != nullptr && loop->owned != nullptr) delete loop;
}

int aeconn_descriptor(aeconn_loop* loop) {
  if (loop == nullptr) return no_handle();
  if (loop->made_here.inherited()) return not_after_fork("aeconn_descriptor()");
  return guarded([&] { return loop->loop.descriptor(); });
}

int aeconn_after_fork(aeconn_loop* loop) {
  if (loop == nullptr) return no_handle();
  return guarded([&] {
    loop->loop.after_fork();
    loop->made_here.renew();
    return 0;
  });
}

int aeconn_dispatch(aeconn_loop* loop) {
  if (loop == nullptr) return no_handle();
  if (loop->made_here.inherited()) return not_after_fork("aeconn_dispatch()");
  return guarded([&] { return static_cast<int>(loop->loop.dispatch()); });
}

void aeconn_note(void* context, aeconn_conn*) {
  if (notes != nullptr) notes->push_back(context);
}

ssize_t aeconn_collect(aeconn_loop* loop, void** contexts, size_t count) {
  if (loop == nullptr || contexts == nullptr) return no_handle<ssize_t>();
  std::vector<void*>& noted = loop->noted;
  if (loop->collected == noted.size()) {
    noted.clear();
    loop->collected = 0;
    if (loop->made_here.inherited()) return not_after_fork("aeconn_collect()");
    std::vector<void*>* const outer = std::exchange(notes, &noted);
    const int ran = guarded([&] { return dispatch_for_collect(*loop), 0; });
    notes = outer;
    if (ran < 0) return -1;
  }
  count = std::min(count, noted.size() - loop->collected);
  std::copy_n(noted.data() + loop->collected, count, contexts);
  loop->collected += count;
  return static_cast<ssize_t>(count);
}

int aeconn_prepare(aeconn_loop* loop) {
  if (loop == nullptr) return no_handle();
  if (loop->made_here.inherited()) return not_after_fork("aeconn_prepare()");
  return guarded([&] { return loop->loop.prepare() ? 1 : 0; });
}

int aeconn_run(aeconn_loop* loop) {
  if (loop == nullptr) return no_handle();
  if (loop->loop.in_handler()) return failed(EDEADLK, "aeconn_run() inside a handler of its loop");
  return guarded([&] { return leave_parent(*loop), loop->loop.run(), 0; });
}

void aeconn_stop(aeconn_loop* loop) {
  if (loop != nullptr) loop->loop.stop();
}

int aeconn_turn(aeconn_loop* loop, int wait) {
  if (loop == nullptr) return no_handle();
  if (loop->loop.in_handler()) return failed(EDEADLK, "aeconn_turn() inside a handler of its loop");
  return guarded([&] {
    leave_parent(*loop);
    const ae::Process flags = wait != 0 ? ae::kFullIteration : ae::kFullIteration | ae::kDontWait;
    return static_cast<int>(loop->loop.process_events(flags));
  });
}

int aeconn_post(aeconn_loop* loop, void (*fn)(void*), void* context) {
  if (loop == nullptr || fn == nullptr) return no_handle();
  return guarded([&] { return loop->loop.post([fn, context] { fn(context); }), 0; });
}

uint64_t aeconn_timer_start(aeconn_loop* loop, int64_t delay, aeconn_timer_fn fn, void* context) {
  if (loop == nullptr || fn == nullptr) return no_handle(), 0;
  const ae::TimerId id = guarded([&] {
    return loop->loop.add_time_event(ae::Duration(std::max<int64_t>(delay, 0)), [fn, context] {
      const int64_t next = fn(context);
      return next < 0 ? ae::kNoMore : ae::Duration(next);
    });
  });
  return id == static_cast<ae::TimerId>(-1) ? 0 : id;
}

int aeconn_timer_again(aeconn_loop* loop, uint64_t timer, int64_t delay) {
  if (loop == nullptr) return no_handle();
  const NoCancel held;
  if (loop->loop.again(timer, ae::Duration(std::max<int64_t>(delay, 0)))) return 0;
  errno = ENOENT;
  return -1;
}

int aeconn_timer_cancel(aeconn_loop* loop, uint64_t timer) {
  if (loop == nullptr) return no_handle();
  const NoCancel held;
  if (loop->loop.remove_time_event(timer)) return 0;
  errno = ENOENT;
  return -1;
}

int aeconn_watch(aeconn_loop* loop, int fd, int directions, aeconn_file_fn fn, void* context) {
  if (loop == nullptr || fn == nullptr) return no_handle();
  return guarded([&] {
    loop->loop.add_file_event(fd, mask_of(directions), [fn, context](int its, ae::Mask ready) {
      fn(context, its, static_cast<int>(ready));
    });
    return 0;
  });
}

void aeconn_unwatch(aeconn_loop* loop, int fd, int directions) {
  const NoCancel held;
  if (loop != nullptr) loop->loop.remove_file_event(fd, mask_of(directions));
}

int aeconn_statistics(aeconn_loop* loop, const char* scheme, aeconn_fact_fn fn, void* context) {
  if (loop == nullptr || fn == nullptr) return no_handle();
  return guarded([&] { return tell(statistics_of(loop->loop, scheme), fn, context), 0; });
}

int aeconn_metrics(aeconn_loop* loop, aeconn_text_fn fn, void* context) {
  if (loop == nullptr || fn == nullptr) return no_handle();
  return guarded([&] {
    const std::string text = conn::metrics(registry(), loop->loop);
    fn(context, text.c_str(), text.size());
    return 0;
  });
}

// --- listening -----------------------------------------------------------------------------------

aeconn_listener* aeconn_listen(aeconn_loop* loop, const char* url, aeconn_accept_fn accepted,
                               void* context) {
  if (loop == nullptr || url == nullptr || accepted == nullptr)
    return no_handle<aeconn_listener*>();
  return guarded(
      [&] { return made(registry().listen(loop->loop, url, accept_handler(accepted, context))); });
}

aeconn_listener* aeconn_listen_on(aeconn_loop* loop, const char* scheme, int fd,
                                  const char* options, aeconn_accept_fn accepted, void* context) {
  if (loop == nullptr || scheme == nullptr || accepted == nullptr)
    return no_handle<aeconn_listener*>();
  return guarded([&] {
    const auto all = conn::Options::parse(options == nullptr ? "" : options);
    auto result = std::make_unique<aeconn_listener>();
    result->listener = registry().require(scheme).adopt_listener(
        loop->loop, fd, accept_handler(accepted, context), all);
    // The listener owns the socket now, so that nothing may fail any more.
    store_urls(*result);
    return result.release();
  });
}

void aeconn_listener_free(aeconn_listener* listener) {
  const NoCancel held;
  delete listener;
}

const char* aeconn_listener_url(const aeconn_listener* listener, size_t index) {
  if (listener == nullptr) return nullptr;
  if (listener->urls.empty()) store_urls(*listener);
  return index < listener->urls.size() ? listener->urls[index].c_str() : nullptr;
}

void aeconn_listener_pause(aeconn_listener* listener) {
  if (listener != nullptr) guarded([&] { return listener->listener->pause(), 0; });
}

void aeconn_listener_resume(aeconn_listener* listener) {
  if (listener != nullptr) guarded([&] { return listener->listener->resume(), 0; });
}

void aeconn_listener_not_served(const aeconn_listener* listener, aeconn_fact_fn fn, void* context) {
  if (listener == nullptr || fn == nullptr) return;
  guarded([&] { return tell(listener->listener->not_served(), fn, context), 0; });
}

void aeconn_listener_on_refused(aeconn_listener* listener, aeconn_refused_fn fn, void* context) {
  if (listener == nullptr) return;
  conn::RefusedHandler told;
  if (fn != nullptr)
    told = [fn, context](const conn::Failure& why) { fn(context, why.text.c_str()); };
  guarded([&] { return listener->listener->on_refused(told), 0; });
}
}  // extern "C"
