// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ae::EpollLoop below Qt's event loop (Qt 5 and 6): adapters/guest.h has the rules,
// docs/adapters.md a program. Header only, without moc: link the program with QtCore. An event loop
// that a handler runs meanwhile, as QDialog::exec() does, serves nested turns (ae/epoll_loop.h).

#include <QtCore/QEvent>
#include <QtCore/QSocketNotifier>
#include <memory>
#include <utility>

#include "adapters/guest.h"
#include "ae/abi.h"

namespace adapters { inline namespace AECONN_ABI { namespace qt {

/// While it lives, the event loop of this thread turns `loop`, too. Make it where the thread has a
/// QCoreApplication, or a QEventLoop, to turn.
class Attachment {
 public:
  /// Throws std::system_error if there is no descriptor for it.
  explicit Attachment(ae::EpollLoop& loop, Caught caught = {})
      : notifier_(
            std::make_unique<Notifier>(std::make_shared<detail::Guest>(loop, std::move(caught)))) {}
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;
  ~Attachment() {
    notifier_->setEnabled(false);
    // It may be the one that is running.
    notifier_.release()->deleteLater();
  }

 private:
  // No prepare() at aboutToBlock: nobody emits that where a GLib main loop turns Qt's.
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
