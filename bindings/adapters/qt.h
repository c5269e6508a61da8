// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs an ae::EpollLoop below Qt's event loop (Qt 5 and 6). adapters/guest.h has the rules,
// docs/adapters.md has an example program. Header only, without moc: link the program with QtCore.
// If a handler runs an event loop of its own, as QDialog::exec() does, that loop serves nested
// iterations (ae/epoll_loop.h).

#include <QtCore/QEvent>
#include <QtCore/QSocketNotifier>
#include <memory>
#include <utility>

#include "adapters/guest.h"
#include "ae/abi.h"

namespace adapters { inline namespace AECONN_ABI { namespace qt {

/// While it exists, the event loop of this thread also runs `loop`. Create it where the thread has
/// a QCoreApplication or a QEventLoop to run.
class Attachment {
 public:
  /// Throws std::system_error if no descriptor is available.
  explicit Attachment(ae::EpollLoop& loop, Caught caught = {})
      : notifier_(
            std::make_unique<Notifier>(std::make_shared<detail::Guest>(loop, std::move(caught)))) {}
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;
  ~Attachment() {
    notifier_->setEnabled(false);
    // Deferred, because the notifier may be the one whose slot is running now.
    notifier_.release()->deleteLater();
  }

 private:
  // prepare() is not called for the signal aboutToBlock, because Qt does not emit it on a GLib main
  // loop.
  class Notifier final : public QSocketNotifier {
   public:
    explicit Notifier(std::shared_ptr<detail::Guest> guest)
        : QSocketNotifier(guest->descriptor(), QSocketNotifier::Read), guest_(std::move(guest)) {}

   protected:
    bool event(QEvent* event) override {
      if (event->type() != QEvent::SockAct) return QSocketNotifier::event(event);
      if (isEnabled()) guest_->dispatch();
      return true;
    }

   private:
    const std::shared_ptr<detail::Guest> guest_;
  };

  std::unique_ptr<Notifier> notifier_;
};

}}}  // namespace adapters::qt
