// SPDX-License-Identifier: BSD-3-Clause
// The C interface over ae::EpollLoop and conn::Registry: each function catches what the library
// throws, keeps its sentence for aeconn_error() and sets errno. A connection's handle is the
// Connection itself.

#include "c/aeconn.h"

#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "ae/epoll_loop.h"
#include "ae/loop_group.h"
#include "conn/kit/coded_error.h"
#include "conn/kit/interruption.h"
#include "conn/listener_group.h"
#include "conn/metrics.h"
#include "conn/redial.h"
#include "conn/transports/transports.h"

struct aeconn_loop {
  aeconn_loop() : owned(std::make_unique<ae::EpollLoop>()), loop(*owned) {}
  explicit aeconn_loop(ae::EpollLoop& of_a_group) : loop(of_a_group) {}
  std::unique_ptr<ae::EpollLoop> owned;                 // null: a group's
  std::thread::id thread = std::this_thread::get_id();  // of a group's
  ae::EpollLoop& loop;
};

struct aeconn_listener {
  conn::ListenerPtr listener;
  std::vector<std::string> urls;
};

struct aeconn_memory {
  std::unique_ptr<conn::Memory> memory;
};

struct aeconn_group {
  // Each is made on its thread, and none while another thread looks: before `group` is there.
  std::vector<std::unique_ptr<aeconn_loop>> loops;
  std::unique_ptr<ae::LoopGroup> group;
};

struct aeconn_redial {
  aeconn_redial_handlers handlers;
  void* context;
  conn::Redial::Proved proved;
  std::unique_ptr<conn::Redial> redial;
};

namespace {

using conn::Connection;
using conn::ConnectionPtr;

thread_local std::string last_error;

/// Keeps what goes wrong for this thread. Never throws: without memory the old sentence goes.
int failed(int err, std::string_view sentence) noexcept {
  try {
    last_error.assign(sentence);
  } catch (const std::bad_alloc&) {
    last_error.clear();
  }
  errno = err;
  return -1;
}

/// 0 where there is none; EIO for what no errno explains.
int number_of(const std::error_code& code) noexcept {
  if (!code) return 0;
  if (code.category() == std::generic_category() || code.category() == std::system_category())
    return code.value();
  const std::error_condition condition = code.default_error_condition();
  return condition.category() == std::generic_category() ? condition.value() : EIO;
}

/// What is being caught, as errno and sentence.
int caught() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return failed(ENOMEM, "out of memory");
  } catch (const ae::LoopError& error) {
    return failed(EINVAL, error.what());
  } catch (const std::system_error& error) {
    return failed(number_of(error.code()), error.what());
  } catch (const conn::CodedError& error) {
    const int err = number_of(error.code());
    return failed(err != 0 ? err : EINVAL, error.what());
  } catch (const conn::Error& error) {
    return failed(EINVAL, error.what());
  } catch (const std::exception& error) {
    return failed(ECANCELED, error.what());
  } catch (...) {
    return failed(ECANCELED, "an exception that is no std::exception");
  }
}

/// Runs `body`; -1, or null, where it throws.
template <class Body>
auto guarded(Body&& body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    if constexpr (std::is_pointer_v<decltype(body())>) {
      caught();
      return nullptr;
    } else {
      return static_cast<decltype(body())>(caught());
    }
  }
}

template <class Result = int>
Result no_handle() noexcept {
  failed(EINVAL, "a handle, a text or a function is NULL");
  if constexpr (std::is_pointer_v<Result>)
    return nullptr;
  else
    return static_cast<Result>(-1);
}

Connection* of(aeconn_conn* conn) noexcept { return reinterpret_cast<Connection*>(conn); }
const Connection* of(const aeconn_conn* conn) noexcept {
  return reinterpret_cast<const Connection*>(conn);
}
aeconn_conn* handle(Connection* connection) noexcept {
  return reinterpret_cast<aeconn_conn*>(connection);
}

/// Of the process: what its loops share (tickets, settings) is shared. Never destroyed, since a
/// connection may outlive main().
conn::Registry& registry() {
  static auto* const all = new conn::Registry(conn::all_transports());
  return *all;
}

/// Negative: no limit.
ae::Duration limit(int64_t nanoseconds) noexcept {
  return nanoseconds < 0 ? ae::Duration::max() : ae::Duration(nanoseconds);
}

Connection::Handler handler(aeconn_conn_fn fn, void* context) {
  if (fn == nullptr) return {};
  return [fn, context](Connection& connection) { fn(context, handle(&connection)); };
}

conn::AcceptHandler accept_handler(aeconn_accept_fn fn, void* context) {
  return [fn, context](ConnectionPtr connection) { fn(context, handle(connection.release())); };
}

constexpr int64_t kLongest = 365LL * 24 * 3600 * 1'000'000'000;  // of a redial's times

static_assert(int{AECONN_REDIAL_STOPPED} == static_cast<int>(conn::Redial::Phase::kStopped) &&
              int{AECONN_REDIAL_DIALLING} == static_cast<int>(conn::Redial::Phase::kDialling));

conn::Redial::Handlers handlers_of(aeconn_redial* redial) {
  const aeconn_redial_handlers& its = redial->handlers;
  void* const context = redial->context;
  conn::Redial::Handlers all;
  if (its.up != nullptr) {
    all.up = [redial, context, up = its.up](Connection& connection) {
      up(context, redial, handle(&connection));
    };
  }
  if (its.down != nullptr) {
    all.down = [redial, context, down = its.down](Connection& connection,
                                                  const conn::Redial::Loss& loss) {
      const aeconn_redial_loss told{loss.why.text.c_str(), number_of(loss.why.code),
                                    loss.moved ? 1 : 0, loss.unconfirmed};
      down(context, redial, handle(&connection), &told);
    };
  }
  if (its.prove != nullptr) {
    all.prove = [redial, context, prove = its.prove](Connection& connection,
                                                     conn::Redial::Proved proved) {
      redial->proved = std::move(proved);
      prove(context, redial, handle(&connection));
    };
  }
  if (its.changed != nullptr)
    all.changed = [redial, context, changed = its.changed] { changed(context, redial); };
  return all;
}

aeconn_listener* made(conn::ListenerPtr listener) {
  auto result = std::make_unique<aeconn_listener>(aeconn_listener{std::move(listener), {}});
  for (const conn::Endpoint& each : result->listener->endpoints())
    result->urls.push_back(each.to_string());
  return result.release();
}

/// As snprintf(3).
std::size_t copy_out(std::string_view text, char* to, std::size_t size) noexcept {
  if (size != 0 && to != nullptr) {
    const std::size_t fits = std::min(text.size(), size - 1);
    std::memcpy(to, text.data(), fits);
    to[fits] = '\0';
  }
  return text.size();
}

/// A path is a whole: a peer may bind a Unix socket to a name that looks like a host and a port.
std::size_t address(const Connection& its, const std::string& text, char* host, std::size_t size,
                    std::uint16_t* port) {
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  const bool is_path = its.type().name().ends_with("unix") ||
                       (getsockname(its.fd(), reinterpret_cast<sockaddr*>(&local), &length) == 0 &&
                        local.ss_family == AF_UNIX);
  const conn::Address parts = is_path ? conn::Address{text, 0} : conn::split_address(text);
  if (port != nullptr) *port = parts.port;
  return copy_out(parts.host, host, size);
}

void tell(const std::vector<conn::NotTaken>& not_taken, aeconn_fact_fn fn, void* context) {
  for (const conn::NotTaken& each : not_taken)
    fn(context, each.scheme.c_str(), each.why.text.c_str());
}

constexpr std::size_t kMostLoops = 4096;

/// Whether this thread is one that the group would have to wait for.
bool on_its_thread(const aeconn_group& group) noexcept {
  return std::any_of(group.loops.begin(), group.loops.end(),
                     [](const auto& loop) { return loop->thread == std::this_thread::get_id(); });
}

ae::Mask mask_of(int directions) noexcept {
  return static_cast<ae::Mask>(directions & (AECONN_READABLE | AECONN_WRITABLE));
}
static_assert(int{AECONN_READABLE} == int{ae::kReadable} &&
              int{AECONN_WRITABLE} == int{ae::kWritable});

}  // namespace

extern "C" {

// --- the library ---------------------------------------------------------------------------------

const char* aeconn_version() { return AECONN_VERSION; }

const char* aeconn_error() { return last_error.c_str(); }

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
  if (loop != nullptr && loop->owned != nullptr) delete loop;  // a group's is the group's
}

int aeconn_descriptor(aeconn_loop* loop) {
  if (loop == nullptr) return no_handle();
  return guarded([&] { return loop->loop.descriptor(); });
}

int aeconn_dispatch(aeconn_loop* loop) {
  if (loop == nullptr) return no_handle();
  return guarded([&] { return static_cast<int>(loop->loop.dispatch()); });
}

int aeconn_prepare(aeconn_loop* loop) {
  if (loop == nullptr) return no_handle();
  return guarded([&] { return loop->loop.prepare() ? 1 : 0; });
}

int aeconn_run(aeconn_loop* loop) {
  if (loop == nullptr) return no_handle();
  if (loop->loop.in_handler()) return failed(EDEADLK, "aeconn_run() inside a handler of its loop");
  return guarded([&] { return loop->loop.run(), 0; });
}

void aeconn_stop(aeconn_loop* loop) {
  if (loop != nullptr) loop->loop.stop();
}

int aeconn_turn(aeconn_loop* loop, int wait) {
  if (loop == nullptr) return no_handle();
  if (loop->loop.in_handler()) return failed(EDEADLK, "aeconn_turn() inside a handler of its loop");
  return guarded([&] {
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
  if (loop->loop.again(timer, ae::Duration(std::max<int64_t>(delay, 0)))) return 0;
  errno = ENOENT;
  return -1;
}

int aeconn_timer_cancel(aeconn_loop* loop, uint64_t timer) {
  if (loop == nullptr) return no_handle();
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
  if (loop != nullptr) loop->loop.remove_file_event(fd, mask_of(directions));
}

int aeconn_statistics(aeconn_loop* loop, const char* scheme, aeconn_fact_fn fn, void* context) {
  if (loop == nullptr || fn == nullptr) return no_handle();
  return guarded([&] {
    const auto tell = [&](const char* name, auto value) {
      fn(context, name, std::to_string(value).c_str());
    };
    if (scheme != nullptr) {
      for (const auto& [name, value] : registry().require(scheme).statistics(loop->loop))
        tell(name.c_str(), value);
      return 0;
    }
    const ae::LoopTimes times = loop->loop.times();
    tell("busy_ns", times.busy.count());
    tell("spun_ns", times.spun.count());
    tell("slept_ns", times.slept.count());
    return 0;
  });
}

int aeconn_metrics(aeconn_loop* loop, aeconn_text_fn fn, void* context) {
  if (loop == nullptr || fn == nullptr) return no_handle();
  return guarded([&] {
    const std::string text = conn::metrics(registry(), loop->loop);
    fn(context, text.c_str(), text.size());
    return 0;
  });
}

// --- several loops -------------------------------------------------------------------------------

aeconn_group* aeconn_group_new(size_t loops, const char* name, int pin) {
  return guarded([&] {
    if (loops == 0) {
      cpu_set_t ours;
      loops = sched_getaffinity(0, sizeof ours, &ours) == 0
                  ? static_cast<std::size_t>(std::max(CPU_COUNT(&ours), 1))
                  : 1;
    }
    if (loops > kMostLoops)
      throw conn::Error("a group of " + std::to_string(loops) +
                        " loops: " + std::to_string(kMostLoops) + " is the limit");
    auto group = std::make_unique<aeconn_group>();
    group->loops.resize(loops);
    ae::LoopGroup::Config config;
    config.loops = loops;
    if (name != nullptr) config.name = name;
    config.pin = pin != 0;
    config.make = [&all = group->loops](std::size_t index) {
      auto loop = std::make_unique<ae::EpollLoop>();
      all[index] = std::make_unique<aeconn_loop>(*loop);
      return loop;
    };
    group->group = std::make_unique<ae::LoopGroup>(std::move(config));
    return group.release();
  });
}

void aeconn_group_free(aeconn_group* group) {
  if (group == nullptr || on_its_thread(*group)) return;
  group->group.reset();  // waits, while handlers may still use the handles
  delete group;
}

size_t aeconn_group_size(const aeconn_group* group) {
  return group == nullptr ? 0 : group->loops.size();
}

int aeconn_group_post(aeconn_group* group, size_t index, aeconn_loop_fn fn, void* context) {
  if (group == nullptr || fn == nullptr) return no_handle();
  if (index >= group->loops.size()) return failed(EINVAL, "the group has no such loop");
  return guarded([&] {
    group->group->poster(index).post(
        [fn, context, loop = group->loops[index].get()] { fn(context, loop); });
    return 0;
  });
}

void aeconn_group_stop(aeconn_group* group) {
  if (group != nullptr) guarded([&] { return group->group->stop(), 0; });
}

int aeconn_group_wait(aeconn_group* group) {
  if (group == nullptr) return no_handle();
  return guarded([&] { return group->group->run(), 0; });
}

aeconn_listener* aeconn_group_listen(aeconn_group* group, const char* url, aeconn_spread spread,
                                     aeconn_group_accept_fn accepted, void* context) {
  if (group == nullptr || url == nullptr || accepted == nullptr)
    return no_handle<aeconn_listener*>();
  return guarded([&] {
    conn::Spread rule = conn::Spread::fewest();
    if (spread == AECONN_ROUND_ROBIN) rule = conn::Spread::round_robin();
    if (spread == AECONN_KERNEL) rule = conn::Spread::kernel();
    const auto make = [&](ae::EventLoop&, std::size_t index) -> conn::AcceptHandler {
      return [accepted, context, loop = group->loops[index].get()](ConnectionPtr connection) {
        accepted(context, loop, handle(connection.release()));
      };
    };
    return made(conn::listen(registry(), *group->group, url, make, std::move(rule)));
  });
}

int aeconn_listener_share(const aeconn_listener* listener, size_t index, uint64_t* open,
                          uint64_t* assigned) {
  if (listener == nullptr) return no_handle();
  return guarded([&] {
    const auto* const of_a_group =
        dynamic_cast<const conn::ListenerGroup*>(listener->listener.get());
    if (of_a_group == nullptr) return failed(EINVAL, "the listener is not one of a group");
    const std::vector<conn::ListenerGroup::Share> shares = of_a_group->shares();
    if (index >= shares.size()) return failed(EINVAL, "the group has no such loop");
    if (open != nullptr) *open = shares[index].open;
    if (assigned != nullptr) *assigned = shares[index].assigned;
    return 0;
  });
}

int aeconn_group_metrics(aeconn_group* group, aeconn_text_fn fn, void* context) {
  if (group == nullptr || fn == nullptr) return no_handle();
  return guarded([&] {
    const std::string text = conn::metrics(registry(), *group->group);
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
    return made(registry().require(scheme).adopt_listener(loop->loop, fd,
                                                          accept_handler(accepted, context), all));
  });
}

void aeconn_listener_free(aeconn_listener* listener) { delete listener; }

const char* aeconn_listener_url(const aeconn_listener* listener, size_t index) {
  if (listener == nullptr || index >= listener->urls.size()) return nullptr;
  return listener->urls[index].c_str();
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

// --- connections ---------------------------------------------------------------------------------

aeconn_conn* aeconn_connect(aeconn_loop* loop, const char* url, aeconn_conn_fn done,
                            void* context) {
  if (loop == nullptr || url == nullptr) return no_handle<aeconn_conn*>();
  return guarded([&] {
    return handle(registry().connect(loop->loop, url, handler(done, context)).release());
  });
}

aeconn_conn* aeconn_connect_wait(aeconn_loop* loop, const char* url, int64_t timeout) {
  if (loop == nullptr || url == nullptr) return no_handle<aeconn_conn*>();
  return guarded([&]() -> aeconn_conn* {
    const conn::Endpoint to = conn::Endpoint::parse(url);
    ConnectionPtr connection = registry().create(loop->loop, to);
    if (connection->connect_blocking(to, limit(timeout))) return handle(connection.release());
    const int err = errno;
    const std::string why = connection->last_error();
    connection.reset();  // which may change errno
    failed(err, why);
    return nullptr;
  });
}

aeconn_conn* aeconn_adopt(aeconn_loop* loop, const char* scheme, int fd) {
  if (loop == nullptr || scheme == nullptr) return no_handle<aeconn_conn*>();
  return guarded(
      [&] { return handle(registry().require(scheme).adopt(loop->loop, fd).release()); });
}

void aeconn_close(aeconn_conn* conn) {
  if (conn != nullptr) of(conn)->close();
}

void aeconn_abort(aeconn_conn* conn) {
  if (conn != nullptr) of(conn)->abort();
}

int aeconn_shutdown(aeconn_conn* conn, int directions) {
  if (conn == nullptr) return no_handle();
  switch (directions) {
    case AECONN_WRITABLE:
      return guarded([&] { return of(conn)->shutdown(); });
    case AECONN_READABLE | AECONN_WRITABLE:
      return guarded([&] { return of(conn)->shutdown_both(); });
    default:
      errno = EINVAL;
      return -1;
  }
}

int aeconn_on_readable(aeconn_conn* conn, aeconn_conn_fn fn, void* context) {
  if (conn == nullptr) return no_handle();
  return guarded([&] { return of(conn)->set_read_handler(handler(fn, context)), 0; });
}

int aeconn_on_writable(aeconn_conn* conn, aeconn_conn_fn fn, void* context) {
  if (conn == nullptr) return no_handle();
  return guarded([&] { return of(conn)->set_write_handler(handler(fn, context)), 0; });
}

int aeconn_on_closed(aeconn_conn* conn, aeconn_conn_fn fn, void* context) {
  if (conn == nullptr) return no_handle();
  return guarded([&] { return of(conn)->set_close_handler(handler(fn, context)), 0; });
}

// --- data ----------------------------------------------------------------------------------------

ssize_t aeconn_read(aeconn_conn* conn, void* buffer, size_t size) {
  if (conn == nullptr) return no_handle<ssize_t>();
  return guarded([&] { return of(conn)->read(buffer, size); });
}

ssize_t aeconn_write(aeconn_conn* conn, const void* buffer, size_t size) {
  if (conn == nullptr) return no_handle<ssize_t>();
  return guarded([&] { return of(conn)->write(buffer, size); });
}

ssize_t aeconn_readv(aeconn_conn* conn, const iovec* vectors, int count) {
  if (conn == nullptr) return no_handle<ssize_t>();
  return guarded([&] { return of(conn)->readv(vectors, count); });
}

ssize_t aeconn_writev(aeconn_conn* conn, const iovec* vectors, int count) {
  if (conn == nullptr) return no_handle<ssize_t>();
  return guarded([&] { return of(conn)->writev(vectors, count); });
}

void aeconn_flush(aeconn_conn* conn) {
  if (conn != nullptr) of(conn)->flush();
}

ssize_t aeconn_peek(aeconn_conn* conn, size_t together, aeconn_view* view) {
  if (conn == nullptr || view == nullptr) return no_handle<ssize_t>();
  return guarded([&] {
    const conn::View seen = of(conn)->peek(together);
    view->pieces[0] = seen.pieces[0];
    view->pieces[1] = seen.pieces[1];
    view->count = seen.count;
    view->stable = seen.stable ? 1 : 0;
    view->last = seen.last ? 1 : 0;
    view->size = seen.size;
    return seen.size == 0 && errno != 0 ? ssize_t{-1} : static_cast<ssize_t>(seen.size);
  });
}

void aeconn_consume(aeconn_conn* conn, size_t size) {
  if (conn != nullptr) of(conn)->consume(size);
}

void* aeconn_reserve(aeconn_conn* conn, size_t size, size_t* room) {
  if (conn == nullptr || room == nullptr) return no_handle<void*>();
  *room = 0;
  return guarded([&]() -> void* {
    const std::span<std::byte> got = of(conn)->reserve(size);
    *room = got.size();
    return got.empty() ? nullptr : got.data();
  });
}

void aeconn_commit(aeconn_conn* conn, size_t size) {
  if (conn != nullptr) of(conn)->commit(size);
}

ssize_t aeconn_send(aeconn_conn* conn, aeconn_outgoing* outgoing) {
  if (conn == nullptr || outgoing == nullptr) return no_handle<ssize_t>();
  return guarded([&] {
    conn::Outgoing out;
    out.bytes = {static_cast<const std::byte*>(outgoing->bytes), outgoing->size};
    if (outgoing->memory != nullptr) out.memory = outgoing->memory->memory.get();
    if (outgoing->release != nullptr) {
      out.context = outgoing;
      out.release = [](void* context, std::error_code error) noexcept {
        auto* const its = static_cast<aeconn_outgoing*>(context);
        its->release(its, error.value());
      };
    }
    return of(conn)->send(out);
  });
}

aeconn_memory* aeconn_memory_register(aeconn_loop* loop, const char* scheme, void* bytes,
                                      size_t size) {
  if (loop == nullptr || scheme == nullptr || bytes == nullptr) return no_handle<aeconn_memory*>();
  return guarded([&] {
    return new aeconn_memory{registry().require(scheme).register_memory(
        loop->loop, {static_cast<std::byte*>(bytes), size})};
  });
}

void aeconn_memory_free(aeconn_memory* memory) { delete memory; }

int aeconn_wait(aeconn_conn* conn, int direction, int64_t timeout) {
  if (conn == nullptr) return no_handle();
  if (direction != AECONN_READABLE && direction != AECONN_WRITABLE) {
    errno = EINVAL;
    return -1;
  }
  return guarded([&] { return of(conn)->sync_wait(mask_of(direction), limit(timeout)) ? 0 : -1; });
}

ssize_t aeconn_read_all(aeconn_conn* conn, void* buffer, size_t size, int64_t timeout) {
  if (conn == nullptr) return no_handle<ssize_t>();
  return guarded([&] { return of(conn)->sync_read(buffer, size, limit(timeout)); });
}

ssize_t aeconn_write_all(aeconn_conn* conn, const void* buffer, size_t size, int64_t timeout) {
  if (conn == nullptr) return no_handle<ssize_t>();
  return guarded([&] { return of(conn)->sync_write(buffer, size, limit(timeout)); });
}

ssize_t aeconn_read_line(aeconn_conn* conn, char* buffer, size_t size, int64_t timeout) {
  if (conn == nullptr) return no_handle<ssize_t>();
  return guarded([&] { return of(conn)->sync_readline(buffer, size, limit(timeout)); });
}

// --- facts ---------------------------------------------------------------------------------------

aeconn_state aeconn_get_state(const aeconn_conn* conn) {
  if (conn == nullptr) return AECONN_FAILED;
  switch (of(conn)->state()) {
    case conn::State::kNone:
      return AECONN_NEW;
    case conn::State::kConnecting:
    case conn::State::kAccepting:
      return AECONN_CONNECTING;
    case conn::State::kConnected:
      return AECONN_CONNECTED;
    case conn::State::kClosed:
      return AECONN_CLOSED;
    case conn::State::kError:
      return AECONN_FAILED;
  }
  return AECONN_FAILED;
}

const char* aeconn_last_error(const aeconn_conn* conn) {
  return conn == nullptr ? "the handle is NULL" : of(conn)->last_error().c_str();
}

int aeconn_last_errno(const aeconn_conn* conn) {
  return conn == nullptr ? EINVAL : number_of(of(conn)->error_code());
}

const char* aeconn_transport(const aeconn_conn* conn) {
  // Of the type, which lives as long as the process, and ended by NUL.
  return conn == nullptr ? "" : of(conn)->type().name().data();
}

int aeconn_fd(const aeconn_conn* conn) { return conn == nullptr ? -1 : of(conn)->fd(); }

size_t aeconn_local(const aeconn_conn* conn, char* host, size_t size, uint16_t* port) {
  if (conn == nullptr) return copy_out("", host, size);
  const ssize_t length = guarded([&] {
    return static_cast<ssize_t>(address(*of(conn), of(conn)->local_address(), host, size, port));
  });
  return length < 0 ? copy_out("", host, size) : static_cast<size_t>(length);
}

size_t aeconn_peer(const aeconn_conn* conn, char* host, size_t size, uint16_t* port) {
  if (conn == nullptr) return copy_out("", host, size);
  const ssize_t length = guarded([&] {
    return static_cast<ssize_t>(address(*of(conn), of(conn)->peer_address(), host, size, port));
  });
  return length < 0 ? copy_out("", host, size) : static_cast<size_t>(length);
}

int aeconn_is_local(const aeconn_conn* conn) {
  if (conn == nullptr) return -1;
  return guarded([&] {
    const std::optional<bool> local = of(conn)->is_local();
    return local.has_value() ? (*local ? 1 : 0) : -1;
  });
}

size_t aeconn_peer_certificate(const aeconn_conn* conn, char* pem, size_t size) {
  if (conn == nullptr) return copy_out("", pem, size);
  const ssize_t length = guarded(
      [&] { return static_cast<ssize_t>(copy_out(of(conn)->peer_certificate(), pem, size)); });
  return length < 0 ? copy_out("", pem, size) : static_cast<size_t>(length);
}

size_t aeconn_peer_user(const aeconn_conn* conn, char* user, size_t size) {
  if (conn == nullptr) return copy_out("", user, size);
  const ssize_t length =
      guarded([&] { return static_cast<ssize_t>(copy_out(of(conn)->peer_user(), user, size)); });
  return length < 0 ? copy_out("", user, size) : static_cast<size_t>(length);
}

size_t aeconn_path(const aeconn_conn* conn, char* line, size_t size) {
  if (conn == nullptr) return copy_out("", line, size);
  const ssize_t length =
      guarded([&] { return static_cast<ssize_t>(copy_out(of(conn)->path(), line, size)); });
  return length < 0 ? copy_out("", line, size) : static_cast<size_t>(length);
}

void aeconn_info(const aeconn_conn* conn, aeconn_fact_fn fn, void* context) {
  if (conn == nullptr || fn == nullptr) return;
  guarded([&] {
    for (const auto& [name, value] : of(conn)->info()) fn(context, name.c_str(), value.c_str());
    return 0;
  });
}

uint64_t aeconn_id(const aeconn_conn* conn) { return conn == nullptr ? 0 : of(conn)->id(); }

uint64_t aeconn_bytes_read(const aeconn_conn* conn) {
  return conn == nullptr ? 0 : of(conn)->bytes_read();
}

uint64_t aeconn_bytes_written(const aeconn_conn* conn) {
  return conn == nullptr ? 0 : of(conn)->bytes_written();
}

void* aeconn_user_data(const aeconn_conn* conn) {
  return conn == nullptr ? nullptr : of(conn)->private_data();
}

void aeconn_set_user_data(aeconn_conn* conn, void* data) {
  if (conn != nullptr) of(conn)->set_private_data(data);
}

int aeconn_leave(aeconn_conn* conn) {
  if (conn == nullptr) return no_handle();
  return guarded([&] { return of(conn)->leave() ? 0 : -1; });
}

int aeconn_join(aeconn_conn* conn, aeconn_loop* loop) {
  if (conn == nullptr || loop == nullptr) return no_handle();
  return guarded([&] { return of(conn)->join(loop->loop) ? 0 : -1; });
}

// --- a connection that comes back ----------------------------------------------------------------

void aeconn_redial_defaults(aeconn_redial_settings* settings) {
  if (settings == nullptr) return;
  const conn::Redial::Settings ours;
  *settings = {ours.first_pause.count(), ours.most_pause.count(), ours.attempt.count(),
               ours.proof.count(),       ours.stable.count(),     ours.prefer_again.count()};
}

aeconn_redial* aeconn_redial_new(aeconn_loop* loop, const char* url,
                                 const aeconn_redial_handlers* handlers,
                                 const aeconn_redial_settings* settings, void* context) {
  if (loop == nullptr || url == nullptr || handlers == nullptr) return no_handle<aeconn_redial*>();
  return guarded([&] {
    conn::Redial::Settings ours;
    if (settings != nullptr) {
      for (const int64_t each : {settings->first_pause, settings->most_pause, settings->attempt,
                                 settings->proof, settings->stable, settings->prefer_again}) {
        if (each < 0 || each > kLongest) throw conn::Error("a redial's times are from 0 to a year");
      }
      ours.first_pause = ae::Duration(settings->first_pause);
      ours.most_pause = ae::Duration(settings->most_pause);
      ours.attempt = ae::Duration(settings->attempt);
      ours.proof = ae::Duration(settings->proof);
      ours.stable = ae::Duration(settings->stable);
      ours.prefer_again = ae::Duration(settings->prefer_again);
    }
    auto made = std::make_unique<aeconn_redial>(aeconn_redial{*handlers, context, {}, nullptr});
    made->redial = std::make_unique<conn::Redial>(
        registry(), loop->loop, conn::Endpoint::parse(url), handlers_of(made.get()), ours);
    return made.release();
  });
}

void aeconn_redial_free(aeconn_redial* redial) { delete redial; }

aeconn_redial_phase aeconn_redial_get_phase(const aeconn_redial* redial) {
  if (redial == nullptr) return AECONN_REDIAL_STOPPED;
  return static_cast<aeconn_redial_phase>(redial->redial->phase());
}

aeconn_conn* aeconn_redial_connection(const aeconn_redial* redial) {
  return redial == nullptr ? nullptr : handle(redial->redial->connection());
}

void aeconn_redial_proved(aeconn_redial* redial, int answered) {
  if (redial == nullptr) return;
  // Taken out: what it leads to may begin the next proof, or free the redial.
  const conn::Redial::Proved told = std::exchange(redial->proved, {});
  if (told) guarded([&] { return told(answered != 0), 0; });
}

size_t aeconn_redial_describe(const aeconn_redial* redial, char* line, size_t size) {
  if (redial == nullptr) return copy_out("", line, size);
  const ssize_t length = guarded(
      [&] { return static_cast<ssize_t>(copy_out(redial->redial->describe(), line, size)); });
  return length < 0 ? copy_out("", line, size) : static_cast<size_t>(length);
}

void aeconn_redial_not_taken(const aeconn_redial* redial, aeconn_fact_fn fn, void* context) {
  if (redial != nullptr && fn != nullptr)
    guarded([&] { return tell(redial->redial->not_taken(), fn, context), 0; });
}

void aeconn_redial_confirm(aeconn_redial* redial, uint64_t bytes) {
  if (redial != nullptr) guarded([&] { return redial->redial->confirm(bytes), 0; });
}

uint64_t aeconn_redial_unconfirmed(const aeconn_redial* redial) {
  return redial == nullptr ? 0 : redial->redial->unconfirmed();
}

int aeconn_redial_drop(aeconn_redial* redial, const char* why) {
  if (redial == nullptr) return no_handle();
  return guarded([&] { return redial->redial->drop(why == nullptr ? "dropped" : why), 0; });
}

int aeconn_redial_try_now(aeconn_redial* redial) {
  if (redial == nullptr) return no_handle();
  return guarded([&] { return redial->redial->try_now(), 0; });
}

void aeconn_redial_stop(aeconn_redial* redial) {
  if (redial != nullptr) guarded([&] { return redial->redial->stop(), 0; });
}

void aeconn_redial_statistics(const aeconn_redial* redial, aeconn_fact_fn fn, void* context) {
  if (redial == nullptr || fn == nullptr) return;
  guarded([&] {
    const conn::Redial::Counters& all = redial->redial->counters();
    for (const auto& [name, value] : {std::pair{"attempts", all.attempts},
                                      {"failures", all.failures},
                                      {"connected", all.connected},
                                      {"lost", all.lost},
                                      {"moved", all.moved}})
      fn(context, name, std::to_string(value).c_str());
    return 0;
  });
}

}  // extern "C"
