// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Shared by hiredis.h and libvalkey.h: the contexts of the two libraries differ only in their
// names. Programs include one of those two headers.

#include <sys/time.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/connection.h"
#include "conn/endpoint.h"
#include "conn/registry.h"

namespace adapters { inline namespace AECONN_ABI { namespace resp {

/// The registry and the loop with which a context connects. Both must outlive the context's last
/// operation.
struct Origin {
  const conn::Registry* registry;
  ae::EventLoop* loop;
};

/// Stored in privctx of a context: the connection and, for an asynchronous context, the events that
/// the library wants. `Api` maps the names of the library.
template <class Api>
class Session {
 public:
  using Context = typename Api::Context;
  using AsyncContext = typename Api::AsyncContext;
  using Options = typename Api::Options;
  using Functions = typename Api::Functions;

  /// Returns a context with descriptor `fd`, connected or with its error set; null if out of
  /// memory.
  static Context* open(Origin origin, const std::string& url, const Options* options, int fd) {
    Options mine = user_fd(options, fd);
    Context* context = Api::make(&mine);
    if (context == nullptr || context->err != 0) return context;
    use_ours(*context);
    (void)establish(*context, origin, url);
    return context;
  }

  /// Like open() for an asynchronous context, which is still connecting on return.
  static AsyncContext* open_async(Origin origin, const std::string& url, const Options* options) {
    Options mine = user_fd(options, -1);
    AsyncContext* async = Api::make_async(&mine);
    if (async == nullptr || async->err != 0) return async;
    use_ours(async->c);
    if (Session* session = attach(async->c, origin, url)) {
      session->async_ = async;
      session->take_events();
      session->begin();
    }
    copy_error(*async);
    return async;
  }

  /// Connects, replacing an earlier connection. Returns false if it failed; the context's error is
  /// then set.
  static bool establish(Context& context, Origin origin, const std::string& url) {
    Session* session = attach(context, origin, url);
    if (session == nullptr) return false;
    session->guarded([&] {
      const conn::Endpoint to = session->endpoint(true);
      const ae::Duration limit =
          is_set(context.connect_timeout)
              ? duration(*context.connect_timeout)
              : to.options.duration("connect-timeout", std::chrono::seconds(5),
                                    std::chrono::milliseconds(1), std::chrono::hours(1));
      if (!session->connection_->connect_blocking(to, limit))
        set_error(context, Api::kErrorIo, session->connection_->last_error());
    });
    if (context.err != 0) {
      context.flags &= ~Api::kConnected;
      return false;
    }
    context.flags |= Api::kConnected;
    return true;
  }

  /// Returns the session of a context; null for a context that was not created by this header.
  static Session* of(const Context& context) noexcept {
    return context.funcs == &table() ? static_cast<Session*>(context.privctx) : nullptr;
  }
  conn::Connection* connection() const noexcept { return connection_.get(); }
  Origin origin() const noexcept { return origin_; }
  const std::string& url() const noexcept { return url_; }

  // --- what the library calls --------------------------------------------------------------------
  static void close(Context* context) {
    if (Session* session = of(*context)) session->connection_.reset();
    if constexpr (requires { context->funcs->close; }) {
      // Closes the context's own fd.
      if (library_table()->close != nullptr) library_table()->close(context);
    }
  }
  static void free_session(void* session) { delete static_cast<Session*>(session); }

  static ssize_t read(Context* context, char* buffer, std::size_t size) {
    Session* session = of(*context);
    if (session == nullptr || !session->connection_) return unconnected(*context);
    for (;;) {
      const ssize_t n = session->connection_->read(buffer, size);
      if (n > 0) return n;
      if (n == 0) return session->ended(*context);
      if (const int wait = session->wait_after(*context, ae::kReadable); wait <= 0) return wait;
    }
  }

  /// Shows unread bytes in place, for a library that parses them there; ended by shown_done().
  static ssize_t show(Context* context, char** bytes) {
    Session* session = of(*context);
    if (session == nullptr || !session->connection_) return unconnected(*context);
    for (;;) {
      const conn::View view = session->connection_->peek();
      if (view.size != 0) {
        *bytes = static_cast<char*>(view.pieces[0].iov_base);
        session->shown_ = view.pieces[0].iov_len;
        return static_cast<ssize_t>(session->shown_);
      }
      if (errno == 0) return session->ended(*context);
      if (const int wait = session->wait_after(*context, ae::kReadable); wait <= 0) return wait;
    }
  }
  static ssize_t shown_done(Context* context) {
    Session* session = of(*context);
    if (session != nullptr && session->shown_ != 0) {
      session->connection_->consume(session->shown_);
      session->shown_ = 0;
    }
    return Api::kOk;
  }

  static ssize_t write(Context* context) {
    Session* session = of(*context);
    if (session == nullptr || !session->connection_) return unconnected(*context);
    const char* bytes = context->obuf;
    const std::size_t size = Api::buffered(*context);
    std::size_t sent = 0;
    while (sent < size) {
      const ssize_t n = session->connection_->write(bytes + sent, size - sent);
      if (n > 0) {
        sent += static_cast<std::size_t>(n);
        continue;
      }
      if (n == 0) errno = EAGAIN;
      const int wait = session->wait_after(*context, ae::kWritable);
      if (wait < 0) return -1;
      if (wait == 0) break;
    }
    // A blocking context has no loop running that would flush later.
    if ((context->flags & Api::kBlock) != 0) session->connection_->flush();
    return static_cast<ssize_t>(sent);
  }

  /// The functions of a context; Api::complete() adds those that only one library has.
  static const Functions& table() {
    static const Functions ours = make_table();
    return ours;
  }

  static void set_error(Context& context, int kind, const std::string& text) noexcept {
    context.err = kind;
    std::snprintf(context.errstr, sizeof context.errstr, "%s", text.c_str());
  }

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  Session(Context& context, Origin origin, std::string url)
      : context_(context), origin_(origin), url_(std::move(url)) {}
  ~Session() { leave_loop(); }

  static Options user_fd(const Options* options, int fd) {
    Options mine = options != nullptr ? *options : Options{};
    mine.type = Api::kUserFd;
    mine.endpoint.fd = fd;
    return mine;
  }

  static const Functions*& library_table() noexcept {
    static const Functions* theirs = nullptr;  // one table for all contexts, in static storage
    return theirs;
  }
  static void use_ours(Context& context) {
    static const Functions* const theirs = library_table() = context.funcs;
    (void)theirs;
    context.funcs = &table();
  }
  static Functions make_table() {
    Functions ours = *library_table();
    ours.free_privctx = &Session::free_session;
    ours.read = &Session::read;
    ours.write = &Session::write;
    if constexpr (requires { ours.close; }) ours.close = &Session::close;
    Api::complete(ours);
    return ours;
  }

  /// Creates a session without a connection. Returns null, with the context's error set, if out of
  /// memory.
  static Session* attach(Context& context, Origin origin, const std::string& url) noexcept {
    delete static_cast<Session*>(context.privctx);
    context.privctx = nullptr;
    try {
      auto* session = new Session(context, origin, url);
      context.privctx = session;
      return session;
    } catch (const std::bad_alloc&) {
      set_error(context, Api::kErrorMemory, "out of memory");
      return nullptr;
    }
  }

  /// Runs `body` and catches its exceptions, which must not pass through a C library.
  template <class Body>
  void guarded(Body body) noexcept {
    try {
      body();
    } catch (const conn::Error& error) {
      set_error(context_, Api::kErrorOther, error.what());
    } catch (const std::bad_alloc&) {
      set_error(context_, Api::kErrorMemory, "out of memory");
    }
  }

  /// Parses the URL and also creates the connection.
  conn::Endpoint endpoint(bool blocking) {
    conn::Endpoint to = conn::Endpoint::parse(url_);
    const conn::ConnectionType& type = origin_.registry->require(to.scheme);
    // A peer that uses this library treats a client as dead if it promised keepalives and is
    // silent. A blocking context cannot send keepalives between two commands.
    const std::vector<std::string> schemes = to.schemes();  // any of them may be used
    const bool over_rdma = std::any_of(schemes.begin(), schemes.end(), [](const auto& each) {
      return std::string_view(each).ends_with("rdma");
    });
    if (blocking && over_rdma && !to.options.has("keepalive")) to.options.set("keepalive", "0");
    type.check(to);
    connection_ = type.create(*origin_.loop);
    return to;
  }
  std::string place() const { return url_.substr(0, url_.find('?')); }

  // --- times -------------------------------------------------------------------------------------
  static bool is_set(const timeval* time) noexcept {
    return time != nullptr && (time->tv_sec != 0 || time->tv_usec != 0);
  }
  static ae::Duration duration(const timeval& time) noexcept {
    if (time.tv_sec >= kLongest.count()) return kLongest;  // avoids overflow in nanoseconds
    return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  }
  static std::string in_words(const timeval* time) {
    char text[48];
    std::snprintf(text, sizeof text, "%.6g s",
                  static_cast<double>(time->tv_sec) + static_cast<double>(time->tv_usec) / 1e6);
    return text;
  }
  static constexpr std::chrono::seconds kLongest = std::chrono::hours(24 * 365);

  // --- reading and writing -----------------------------------------------------------------------
  static ssize_t unconnected(Context& context) {
    if (context.err == 0) set_error(context, Api::kErrorIo, "the context is not connected");
    return -1;
  }
  ssize_t ended(Context& context) {
    set_error(context, Api::kErrorEnd, place() + " has closed the connection");
    return -1;
  }
  /// To be called after a call has failed with errno. Returns 1 to try again; 0 for later
  /// (non-blocking context); -1 if the context's error is set.
  int wait_after(Context& context, ae::Mask direction) {
    if (errno == EINTR) return 1;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      const int failure = errno;
      set_error(context, Api::kErrorIo,
                connection_->last_error().empty() ? conn::errno_text(failure)
                                                  : connection_->last_error());
      return -1;
    }
    if ((context.flags & Api::kBlock) == 0) return 0;
    const timeval* limit = context.command_timeout;
    if (connection_->sync_wait(direction, is_set(limit) ? duration(*limit) : kLongest)) return 1;
    if (!is_set(limit)) return 1;
    set_error(context, Api::kErrorTimeout,
              place() +
                  (direction == ae::kReadable ? ": no reply within " : ": takes nothing for ") +
                  in_words(limit));
    return -1;
  }

  // --- asynchronous contexts ---------------------------------------------------------------------
  static Session& self(void* session) noexcept { return *static_cast<Session*>(session); }
  void take_events() noexcept {
    auto& events = async_->ev;
    events.data = this;
    events.addRead = [](void* s) { self(s).want(self(s).wants_read_, true); };
    events.delRead = [](void* s) { self(s).want(self(s).wants_read_, false); };
    events.addWrite = [](void* s) { self(s).want(self(s).wants_write_, true); };
    events.delWrite = [](void* s) { self(s).want(self(s).wants_write_, false); };
    events.cleanup = [](void* s) { self(s).leave_loop(); };
    events.scheduleTimer = [](void* s, timeval time) { self(s).schedule(time); };
  }

  void begin() noexcept {
    guarded([&] {
      const conn::Endpoint to = endpoint(false);
      connection_->connect(to, [this](conn::Connection&) { connected(); });
    });
    if (context_.err == 0 && is_set(context_.connect_timeout)) schedule(*context_.connect_timeout);
  }

  void connected() {
    if (connection_->state() == conn::State::kConnected) {
      stands_ = true;
      wants_read_ = true;
      apply();
    } else {
      set_error(context_, Api::kErrorIo, connection_->last_error());
    }
    if (context_.err != 0) {
      // With an error set, handle_timeout() reports it to all pending callbacks and ends the
      // context.
      copy_error(*async_);
      Api::handle_timeout(async_);
      return;
    }
    stop_timer();
    context_.flags |= Api::kConnected;
    const bool nested = (context_.flags & Api::kInCallback) != 0;
    context_.flags |= Api::kInCallback;
    Api::tell_connected(*async_, Api::kOk);
    if (!nested) context_.flags &= ~Api::kInCallback;
    if ((context_.flags & Api::kFreeing) != 0) return Api::free_async(async_);
    // If replies are pending, the library disconnects after the last one.
    if ((context_.flags & Api::kDisconnecting) != 0 && async_->replies.head == nullptr)
      return Api::disconnect(async_);
    if (async_->replies.head != nullptr && is_set(context_.command_timeout))
      schedule(*context_.command_timeout);
  }

  void want(bool& which, bool wanted) noexcept {
    if (which == wanted) return;
    which = wanted;
    if (stands_) apply();
  }
  /// Sets or removes the connection's handlers according to what the library wants. A handler may
  /// free the context.
  void apply() noexcept {
    guarded([&] {
      if (reads_ != wants_read_) {
        conn::Connection::Handler handler;
        if (wants_read_) handler = [this](conn::Connection&) { Api::handle_read(async_); };
        connection_->set_read_handler(std::move(handler));
        reads_ = wants_read_;
      }
      if (writes_ != wants_write_) {
        conn::Connection::Handler handler;
        if (wants_write_) handler = [this](conn::Connection&) { Api::handle_write(async_); };
        connection_->set_write_handler(std::move(handler));
        writes_ = wants_write_;
      }
    });
    if (context_.err != 0) copy_error(*async_);
  }

  void schedule(const timeval& time) noexcept {
    if (!connection_ || connection_->loop() == nullptr) return;
    guarded([&] {
      if (timer_ != 0 && origin_.loop->again(timer_, duration(time))) return;
      timer_ = origin_.loop->add_time_event(duration(time), [this] {
        timer_ = 0;
        timed_out();
        return ae::kNoMore;
      });
    });
    if (context_.err != 0) copy_error(*async_);
  }
  void timed_out() {
    const bool waits = async_->replies.head != nullptr || async_->sub.replies.head != nullptr;
    if (!stands_)
      set_error(context_, Api::kErrorTimeout,
                place() + ": not connected within " + in_words(context_.connect_timeout));
    else if (waits && is_set(context_.command_timeout))
      set_error(context_, Api::kErrorTimeout,
                place() + ": no reply within " + in_words(context_.command_timeout));
    copy_error(*async_);
    Api::handle_timeout(async_);
  }
  void stop_timer() noexcept {
    if (timer_ != 0 && connection_ && connection_->loop() != nullptr)
      origin_.loop->remove_time_event(timer_);
    timer_ = 0;
  }
  void leave_loop() noexcept {
    stop_timer();
    connection_.reset();
    stands_ = false;
  }
  static void copy_error(AsyncContext& async) noexcept {
    async.err = async.c.err;
    async.errstr = async.c.errstr;
  }

  Context& context_;
  AsyncContext* async_ = nullptr;
  Origin origin_;
  std::string url_;
  conn::ConnectionPtr connection_;
  std::size_t shown_ = 0;
  ae::TimerId timer_ = 0;
  bool stands_ = false;  // whether the connection of an asynchronous context is established
  bool wants_read_ = false, wants_write_ = false;
  bool reads_ = false, writes_ = false;  // which handlers are set
};

}}}  // namespace adapters::resp
