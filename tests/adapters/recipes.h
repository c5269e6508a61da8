// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The recipes of docs/adapters.md, unchanged: each runs a host's loop with an EpollLoop within it,
// and rethrows exceptions of the library's handlers. Included after tests/adapters/loop_hosts.h.

#if defined(HOST_LIBUV)

void serve(ae::EpollLoop& loop, uv_loop_t* host) {
  std::exception_ptr thrown;
  const adapters::libuv::Attachment attached(loop, host, [&](std::exception_ptr what) {
    thrown = what;
    uv_stop(host);
  });
  uv_run(host, UV_RUN_DEFAULT);
  if (thrown) std::rethrow_exception(thrown);
}
inline void recipe(ae::EpollLoop& loop, Host& host) { serve(loop, &host.loop); }

#elif defined(HOST_LIBEVENT)

void serve(ae::EpollLoop& loop, event_base* host) {
  std::exception_ptr thrown;
  const adapters::libevent::Attachment attached(loop, host, [&](std::exception_ptr what) {
    thrown = what;
    event_base_loopbreak(host);
  });
  event_base_dispatch(host);
  if (thrown) std::rethrow_exception(thrown);
}
inline void recipe(ae::EpollLoop& loop, Host& host) { serve(loop, host.base); }

#elif defined(HOST_GLIB)

void serve(ae::EpollLoop& loop, GMainLoop* host) {
  std::exception_ptr thrown;
  const adapters::glib::Attachment attached(loop, g_main_loop_get_context(host),
                                            [&](std::exception_ptr what) {
                                              thrown = what;
                                              g_main_loop_quit(host);
                                            });
  g_main_loop_run(host);
  if (thrown) std::rethrow_exception(thrown);
}
inline void recipe(ae::EpollLoop& loop, Host& host) { serve(loop, host.loop); }

#elif defined(HOST_QT)

void serve(ae::EpollLoop& loop) {
  std::exception_ptr thrown;
  const adapters::qt::Attachment attached(loop, [&](std::exception_ptr what) {
    thrown = what;
    QCoreApplication::exit(1);
  });
  QCoreApplication::exec();
  if (thrown) std::rethrow_exception(thrown);
}
inline void recipe(ae::EpollLoop& loop, Host&) { serve(loop); }

#elif defined(HOST_SD_EVENT)

void serve(ae::EpollLoop& loop, sd_event* host) {
  std::exception_ptr thrown;
  const adapters::sd_event::Attachment attached(loop, host, [&](std::exception_ptr what) {
    thrown = what;
    sd_event_exit(host, 1);
  });
  sd_event_loop(host);
  if (thrown) std::rethrow_exception(thrown);
}
inline void recipe(ae::EpollLoop& loop, Host& host) { serve(loop, host.event); }

#elif defined(HOST_ASIO)

void serve(ae::EpollLoop& loop, net::io_context& host) {
  const adapters::asio::Attachment attached(loop, host.get_executor());
  host.run();  // what a handler throws comes out here
}
inline void recipe(ae::EpollLoop& loop, Host& host) { serve(loop, host.context); }

#else

inline void recipe(ae::EpollLoop& loop, Host& host) {
  std::exception_ptr thrown;
  host.attach(loop, [&](std::exception_ptr what) {
    thrown = what;
    host.stop();
  });
  host.run();
  if (thrown) std::rethrow_exception(thrown);
}

#endif
