// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reads the files of a listener again when they change (option reload=auto), on the listener's
// loop.

#include <memory>
#include <optional>
#include <string>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/core/acceptor_base.h"
#include "conn/tls/context_source.h"
#include "conn/tls/file_stamps.h"
#include "conn/tls/file_watch.h"
#include "conn/tls/loop_state.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Watches the files of a listener and reads them again after changes. Must not be destroyed while
/// the handler for refusals of its acceptor runs.
class Reloader {
 public:
  /// Watches nothing yet. Reports files that cannot be used to the handler for refusals of
  /// `acceptor`, which must outlive this object.
  Reloader(LoopState& shared, const ContextSource& contexts, AcceptorBase& acceptor)
      : shared_(shared), contexts_(contexts), acceptor_(acceptor) {}
  Reloader(const Reloader&) = delete;
  Reloader& operator=(const Reloader&) = delete;
  ~Reloader() { stop(); }

  /// Watches the files of `context`, the source's current one, if its option reload says so. Does
  /// nothing if they are watched already. Throws Error if the files cannot be watched. If watching
  /// or reading them fails later, tries again after a pause, which grows from a second to a minute.
  void follow(const std::shared_ptr<const Context>& context);
  /// Does what follow() does. Then reads the files again if they have changed since `context` read
  /// them, unless the last change is more recent than ContextSource::kQuiet.
  void begin(const std::shared_ptr<const Context>& context);
  /// Like begin(), but reports an Error to the handler for refusals, which may stop this object.
  void try_to_follow(const std::shared_ptr<const Context>& context);
  /// Stops watching until follow() is called; must be called before the loop ends.
  void stop() noexcept;

 private:
  bool follows(const std::shared_ptr<const Context>& context) const noexcept;
  void watch(const Context& context);
  void unwatch() noexcept;
  void check_in(ae::Duration time);
  void check_soon();
  void check_at_once(const Context& context);
  void check();
  void reload();
  void try_later();
  void failed(const char* what, const std::exception& error);
  void report(std::string text);

  LoopState& shared_;
  const ContextSource& contexts_;
  AcceptorBase& acceptor_;
  std::weak_ptr<const Context> followed_;
  std::optional<FileWatch> watch_;
  FileStamps seen_;        // the state of the files at the last check
  ae::TimerId timer_ = 0;  // timer for the next check; 0: none is planned
  bool retries_ = false;   // true if the next check follows a failed one
  ae::Duration pause_{};   // the pause after the last failed check; 0: the last check did not fail
  // Text of the last failure that failed() has reported, so that it is not reported twice; "":
  // none.
  std::string reported_;
};

}}}  // namespace conn::tls
