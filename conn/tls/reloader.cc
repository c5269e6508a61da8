// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/reloader.h"

#include <new>
#include <string>

namespace conn { inline namespace AECONN_ABI { namespace tls {

void Reloader::follow(const std::shared_ptr<const Context>& context) {
  if (followed_.lock() == context) return;
  followed_ = context;
  if (context->settings().reload == Settings::Reload::kNo) return stop();
  if (!watch_) {
    watch_.emplace();
    shared_.loop().add_file_event(watch_->fd(), ae::kReadable | ae::kTrusted,
                                  [this](int, ae::Mask) {
                                    if (watch_->drain()) check_soon();
                                  });
  }
  watch_->follow(files_of(context->settings()));
  // The files may have changed after they were read and before they were watched.
  check_soon();
}

void Reloader::try_to_follow(const std::shared_ptr<const Context>& context) {
  try {
    follow(context);
  } catch (const std::exception& error) {
    report("TLS files are not watched: ", error);
  }
}

void Reloader::stop() noexcept {
  if (timer_ != 0) shared_.loop().remove_time_event(timer_);
  timer_ = 0;
  if (watch_) shared_.loop().remove_file_event(watch_->fd(), ae::kReadable);
  watch_.reset();
}

/// Plans a check. Without memory for the time event it is dropped: the next change plans another.
void Reloader::check_soon() {
  try {
    if (timer_ == 0)
      timer_ = shared_.loop().add_time_event(ContextSource::kQuiet, [this] { return check(); });
  } catch (const std::bad_alloc&) {
  }
}

/// Reads the files again if they have changed and are the same since the last check, so that a
/// certificate and its key, or a long file, are read once they are written completely.
ae::Duration Reloader::check() {
  const std::shared_ptr<const Context> context = contexts_.get();
  if (context->settings().reload == Settings::Reload::kNo) {
    timer_ = 0;
    return ae::kNoMore;
  }
  const std::vector<std::string> files = files_of(context->settings());
  try {
    watch_->follow(files);
    FileStamps now(files);
    const bool stable = now == seen_ || now == context->stamps();
    seen_ = std::move(now);
    if (!stable) return ContextSource::kQuiet;
    timer_ = 0;
    if (contexts_.reload(seen_)) ++shared_.counters.reloads;
  } catch (const std::exception& error) {
    timer_ = 0;
    report("TLS files not read again, the old ones stay: ", error);
  }
  return ae::kNoMore;
}

/// Reports a failure. The handler may stop this object.
void Reloader::report(const char* what, const std::exception& error) {
  ++shared_.counters.reload_failures;
  refused_.tell(
      {std::make_error_code(std::errc::invalid_argument), what + std::string(error.what())});
}

}}}  // namespace conn::tls
