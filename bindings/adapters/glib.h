// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs an ae::EpollLoop below GLib's main loop. adapters/guest.h has the rules, docs/adapters.md
// has an example program. Header only: link the program with glib-2.0. If a handler runs a main
// loop of its own, that serves nested iterations (ae/epoll_loop.h).

#include <glib-unix.h>
#include <glib.h>

#include <memory>
#include <new>
#include <utility>

#include "adapters/guest.h"
#include "ae/abi.h"

namespace adapters { inline namespace AECONN_ABI { namespace glib {

/// While it exists, `host` also runs `loop`. If `host` is null: the thread's default context, or
/// the global one.
class Attachment {
 public:
  /// Throws std::system_error if no descriptor is available.
  Attachment(ae::EpollLoop& loop, GMainContext* host, Caught caught = {},
             int priority = G_PRIORITY_DEFAULT)
      : guest_(std::make_shared<detail::Guest>(loop, std::move(caught))) {
    static GSourceFuncs functions = {prepare, check, dispatch, finalize, nullptr, nullptr};
    const int descriptor = guest_->descriptor();
    source_ = g_source_new(&functions, sizeof(Source));
    auto* ours = reinterpret_cast<Source*>(source_);
    new (&ours->guest) std::shared_ptr<detail::Guest>(guest_);
    ours->tag = g_source_add_unix_fd(source_, descriptor, G_IO_IN);
    g_source_set_priority(source_, priority);
    g_source_set_can_recurse(source_, TRUE);
    g_source_set_name(source_, "aeconn");
    g_source_attach(source_, host != nullptr ? host : g_main_context_get_thread_default());
  }
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;
  ~Attachment() {
    guest_->end_prepare();
    g_source_destroy(source_);
    g_source_unref(source_);
  }

 private:
  struct Source {
    GSource base;
    std::shared_ptr<detail::Guest> guest;
    gpointer tag;
  };
  static Source* ours(GSource* source) { return reinterpret_cast<Source*>(source); }

  static gboolean prepare(GSource* source, gint* timeout) {
    *timeout = -1;
    return ours(source)->guest->prepare() ? FALSE : TRUE;
  }
  static gboolean check(GSource* source) {
    return g_source_query_unix_fd(source, ours(source)->tag) != 0 ? TRUE : FALSE;
  }
  static gboolean dispatch(GSource* source, GSourceFunc, gpointer) {
    ours(source)->guest->dispatch();
    return G_SOURCE_CONTINUE;
  }
  static void finalize(GSource* source) { std::destroy_at(&ours(source)->guest); }

  std::shared_ptr<detail::Guest> guest_;
  GSource* source_;
};

}}}  // namespace adapters::glib
