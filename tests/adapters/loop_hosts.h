// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The hosts of tests/adapters/loops.cc: each is a struct Host with the same few functions.
// -DHOST_LIBUV, -DHOST_LIBEVENT, -DHOST_GLIB, -DHOST_QT, -DHOST_SD_EVENT or -DHOST_ASIO (with
// -DAECONN_BOOST_ASIO: Boost's) selects one; the default is poll(2), as in docs/adapters.md.
//
//   attach(loop, caught), detach()
//   run()      runs the host's loop in its own way, until stop() in one of its callbacks
//   soon(f)    runs f once from the host's loop, outside of the library's handlers
//   turn()     in a handler, if kNests: one iteration of the host's loop that does not wait
//   late       if kPrepares: a function to run once right before the host sleeps, after the
//              adapter has prepared for the sleep
//   finish()   after the last detach(); false if something is left in the host

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "ae/epoll_loop.h"

using Function = std::function<void()>;

/// Runs the function once, from a C callback that got its address.
inline void run_once(void* function) {
  const std::unique_ptr<Function> owned(static_cast<Function*>(function));
  (*owned)();
}

#if defined(HOST_LIBUV)
#include "adapters/libuv.h"

struct Host {
  static constexpr bool kNests = false, kPrepares = true;
  Host() {
    uv_loop_init(&loop);
    uv_prepare_init(&loop, &prepare);
    prepare.data = this;
    uv_unref(reinterpret_cast<uv_handle_t*>(&prepare));
    // Started before the adapter's: the last to start is the first to run.
    uv_prepare_start(&prepare, [](uv_prepare_t* handle) {
      if (const Function f = std::exchange(static_cast<Host*>(handle->data)->late, nullptr)) f();
    });
  }
  void attach(ae::EpollLoop& guest, adapters::Caught caught) {
    attachment.emplace(guest, &loop, std::move(caught));
  }
  void detach() { attachment.reset(); }
  void run() { uv_run(&loop, UV_RUN_DEFAULT); }
  void stop() { uv_stop(&loop); }
  void soon(Function function) {
    auto* const timer = new uv_timer_t;
    uv_timer_init(&loop, timer);
    timer->data = new Function(std::move(function));
    const auto ran = [](uv_timer_t* handle) {
      run_once(handle->data);
      uv_close(reinterpret_cast<uv_handle_t*>(handle),
               [](uv_handle_t* closed) { delete reinterpret_cast<uv_timer_t*>(closed); });
    };
    uv_timer_start(timer, ran, 0, 0);
  }
  void turn() {}
  bool finish() {
    uv_close(reinterpret_cast<uv_handle_t*>(&prepare), nullptr);
    uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop) == 0;
  }

  uv_loop_t loop{};
  uv_prepare_t prepare{};
  Function late;
  std::optional<adapters::libuv::Attachment> attachment;
};

#elif defined(HOST_LIBEVENT)
#include "adapters/libevent.h"

struct Host {
  static constexpr bool kNests = false, kPrepares = false;
  void attach(ae::EpollLoop& guest, adapters::Caught caught) {
    attachment.emplace(guest, base, std::move(caught));
  }
  void detach() { attachment.reset(); }
  void run() { event_base_dispatch(base); }
  void stop() { event_base_loopbreak(base); }
  void soon(Function function) {
    const timeval now{};
    event_base_once(
        base, -1, EV_TIMEOUT, [](evutil_socket_t, short, void* f) { run_once(f); },
        new Function(std::move(function)), &now);
  }
  void turn() {}
  bool finish() {
    const bool empty = event_base_get_num_events(base, EVENT_BASE_COUNT_ADDED) == 0;
    event_base_free(base);
    return empty;
  }

  event_base* const base = event_base_new();
  std::optional<adapters::libevent::Attachment> attachment;
};

#elif defined(HOST_GLIB)
#include "adapters/glib.h"

struct Host {
  static constexpr bool kNests = true, kPrepares = true;
  struct Source {
    GSource base;
    Host* host;
  };
  Host() {
    static GSourceFuncs functions = {before_sleep, nullptr, nullptr, nullptr, nullptr, nullptr};
    last = g_source_new(&functions, sizeof(Source));
    reinterpret_cast<Source*>(last)->host = this;
    g_source_set_priority(last, G_PRIORITY_LOW);
    g_source_attach(last, context);
  }
  static gboolean before_sleep(GSource* source, gint* timeout) {
    *timeout = -1;
    Host& host = *reinterpret_cast<Source*>(source)->host;
    if (std::exchange(host.awake, false)) return FALSE;
    if (const Function f = std::exchange(host.late, nullptr)) f();
    return FALSE;
  }
  void attach(ae::EpollLoop& guest, adapters::Caught caught) {
    attachment.emplace(guest, context, std::move(caught));
  }
  void detach() { attachment.reset(); }
  void run() { g_main_loop_run(loop); }
  void stop() {
    g_main_loop_quit(loop);
    awake = true;
  }
  void soon(Function function) {
    GSource* const idle = g_idle_source_new();
    const auto ran = [](gpointer f) -> gboolean {
      run_once(f);
      return G_SOURCE_REMOVE;
    };
    g_source_set_callback(idle, ran, new Function(std::move(function)), nullptr);
    g_source_attach(idle, context);
    g_source_unref(idle);
  }
  void turn() { g_main_context_iteration(context, FALSE); }
  bool finish() {
    g_source_destroy(last);
    g_source_unref(last);
    const bool empty = g_main_context_pending(context) == FALSE;
    g_main_loop_unref(loop);
    g_main_context_unref(context);
    return empty;
  }

  GMainContext* const context = g_main_context_new();
  GMainLoop* const loop = g_main_loop_new(context, FALSE);
  std::optional<adapters::glib::Attachment> attachment;
  GSource* last = nullptr;
  Function late;
  bool awake = false;  // g_main_loop_quit() wakes the context: its next iteration does not sleep
};

#elif defined(HOST_QT)
#include <QtCore/QCoreApplication>
#include <QtCore/QTimer>

#include "adapters/qt.h"

struct Host {
  static constexpr bool kNests = true, kPrepares = false;
  void attach(ae::EpollLoop& guest, adapters::Caught caught) {
    attachment.emplace(guest, std::move(caught));
  }
  void detach() { attachment.reset(); }
  static void run() { QCoreApplication::exec(); }
  static void stop() { QCoreApplication::exit(); }
  static void soon(Function function) { QTimer::singleShot(0, std::move(function)); }
  static void turn() { QCoreApplication::processEvents(); }
  static bool finish() {
    QCoreApplication::sendPostedEvents(nullptr, QEvent::DeferredDelete);
    return true;
  }

  int argc = 1;
  char name[6] = "loops";
  char* argv[2] = {name, nullptr};
  QCoreApplication application{argc, argv};
  std::optional<adapters::qt::Attachment> attachment;
};

#elif defined(HOST_SD_EVENT)
#include "adapters/sd_event.h"

struct Host {
  static constexpr bool kNests = false, kPrepares = true;
  Host() {
    sd_event_new(&event);
    const auto never = [](sd_event_source*, std::uint64_t, void*) { return 0; };
    sd_event_add_time(event, &last, CLOCK_MONOTONIC, UINT64_MAX, 0, never, this);
    sd_event_source_set_priority(last, SD_EVENT_PRIORITY_IDLE);
    sd_event_source_set_prepare(last, [](sd_event_source*, void* host) {
      if (const Function f = std::exchange(static_cast<Host*>(host)->late, nullptr)) f();
      return 0;
    });
  }
  void attach(ae::EpollLoop& guest, adapters::Caught caught) {
    attachment.emplace(guest, event, std::move(caught));
  }
  void detach() { attachment.reset(); }
  // Not by sd_event_exit(), which is final.
  void run() {
    for (stopped = false; !stopped;) sd_event_run(event, UINT64_MAX);
  }
  void stop() { stopped = true; }
  void soon(Function function) {
    const auto ran = [](sd_event_source*, void* f) { return run_once(f), 0; };
    sd_event_add_defer(event, nullptr, ran, new Function(std::move(function)));
  }
  void turn() {}
  bool finish() {
    sd_event_source_disable_unref(last);
    const bool empty = sd_event_run(event, 0) == 0;
    return sd_event_unref(event) == nullptr && empty;
  }

  sd_event* event = nullptr;
  sd_event_source* last = nullptr;
  Function late;
  bool stopped = false;
  std::optional<adapters::sd_event::Attachment> attachment;
};

#elif defined(HOST_ASIO)
#include "adapters/asio_loop.h"
#ifdef AECONN_BOOST_ASIO
namespace net = boost::asio;
#else
namespace net = asio;
#endif

struct Host {
  static constexpr bool kNests = false, kPrepares = false;
  void attach(ae::EpollLoop& guest, std::function<void(std::exception_ptr)> to) {
    caught = std::move(to);
    attachment.emplace(guest, context.get_executor());
  }
  void detach() { attachment.reset(); }
  void run() {
    for (context.restart(); !context.stopped();) try {
        context.run();
      } catch (...) {
        if (!caught) throw;
        caught(std::current_exception());
      }
  }
  void stop() { context.stop(); }
  void soon(Function function) { net::post(context, std::move(function)); }
  void turn() {}
  bool finish() {
    context.restart();
    context.run();  // returns when it has no work
    return true;
  }

  net::io_context context;
  std::function<void(std::exception_ptr)> caught;
  std::optional<adapters::asio::Attachment> attachment;
};

#else
#include <poll.h>

#include <exception>

struct Host {
  static constexpr bool kNests = true, kPrepares = false;
  void attach(ae::EpollLoop& loop, std::function<void(std::exception_ptr)> to) {
    guest = &loop;
    caught = std::move(to);
  }
  void detach() { guest = nullptr; }
  void run() {
    for (stopped = false; !stopped;) iterate(-1);
  }
  void stop() { stopped = true; }
  void soon(Function function) { functions.push_back(std::move(function)); }
  void turn() { iterate(0); }
  bool finish() { return functions.empty(); }

  void iterate(int timeout) {
    const std::vector<Function> now = std::exchange(functions, {});
    for (const Function& function : now) function();
    pollfd ours{guest != nullptr ? guest->descriptor() : -1, POLLIN, 0};
    ::poll(&ours, 1, stopped || !functions.empty() ? 0 : timeout);
    if (ours.revents == 0) return;
    try {
      guest->dispatch();
    } catch (...) {
      if (!caught) throw;
      caught(std::current_exception());
    }
  }

  ae::EpollLoop* guest = nullptr;
  std::function<void(std::exception_ptr)> caught;
  std::vector<Function> functions;
  bool stopped = false;
};
#endif
