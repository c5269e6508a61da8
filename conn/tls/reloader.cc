// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/reloader.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

namespace {

constexpr ae::Duration kFirstPause = std::chrono::seconds(1), kLastPause = std::chrono::minutes(1);
constexpr const char* kOldOnesStay = "TLS files not read again, the old ones stay: ";

}  // namespace

/// Returns whether this process watches the files of `context`, or must not. In a child of fork(),
/// the watch of the parent is replaced by one of its own.
bool Reloader::follows(const std::shared_ptr<const Context>& context) const noexcept {
  return followed_.lock() == context && !(watch_ && watch_->inherited());
}

void Reloader::follow(const std::shared_ptr<const Context>& context) {
  if (follows(context)) return;
  if (context->settings().reload == Settings::Reload::kNo) {
    stop();
  } else {
    watch(*context);
    // The files may have changed after they were read and before the watch began.
    check_soon();
  }
  followed_ = context;
}

void Reloader::begin(const std::shared_ptr<const Context>& context) {
  follow(context);
  if (watch_) check_at_once(*context);
}

void Reloader::try_to_follow(const std::shared_ptr<const Context>& context) {
  if (follows(context)) return;
  try {
    follow(context);
  } catch (const std::exception& error) {
    followed_ = context;  // failed() plans a check, which tries to watch the files again
    return failed("TLS files are not watched: ", error);
  }
  if (watch_) check_at_once(*context);
}

/// Reads the files again at once if they have changed since `context` read them, unless they have
/// changed within the last kQuiet. Called when watching begins, because nobody has watched the
/// files until now: a listener may open with a context that was made earlier, and it learns of
/// configure() only when its next connection arrives, perhaps long after. Without this its first
/// connections would get old certificates.
void Reloader::check_at_once(const Context& context) {
  try {
    FileStamps now(files_of(context.settings()));
    if (!now.quiet_for(ContextSource::kQuiet)) return;  // follow() has planned a check
    seen_ = std::move(now);
  } catch (const std::bad_alloc&) {
    return;
  }
  if (timer_ != 0) shared_.loop().remove_time_event(std::exchange(timer_, 0));
  retries_ = false;
  check();
}

void Reloader::watch(const Context& context) {
  if (watch_ && watch_->inherited()) unwatch();
  if (!watch_) {
    watch_.emplace();
    try {
      shared_.loop().add_file_event(watch_->fd(), ae::kReadable | ae::kTrusted,
                                    [this](int, ae::Mask) {
                                      if (watch_->inherited())
                                        return try_to_follow(contexts_.get());
                                      if (watch_->drain()) check_soon();
                                    });
    } catch (const std::exception&) {
      watch_.reset();
      throw;
    }
  }
  watch_->follow(files_of(context.settings()));
}

void Reloader::stop() noexcept {
  if (timer_ != 0) shared_.loop().remove_time_event(timer_);
  timer_ = 0;
  unwatch();
}

void Reloader::unwatch() noexcept {
  if (watch_) shared_.loop().remove_file_event(watch_->fd(), ae::kReadable);
  watch_.reset();
}

/// Plans a check of the files after `time`. If there is no memory for the timer, no check is
/// planned until the next change.
void Reloader::check_in(ae::Duration time) {
  try {
    timer_ = shared_.loop().add_time_event(time, [this] {
      timer_ = 0;
      check();
      return ae::kNoMore;
    });
  } catch (const std::bad_alloc&) {
  }
}

void Reloader::check_soon() {
  if (timer_ != 0 && !retries_) return;
  if (timer_ != 0) shared_.loop().remove_time_event(std::exchange(timer_, 0));
  retries_ = false;
  check_in(ContextSource::kQuiet);
}

/// Reads the files again if they have changed since they were read, but not since the last check:
/// so a certificate and its key, or a long file, are read only once they are written completely. If
/// they have changed since the last check, plans another one.
void Reloader::check() {
  const std::shared_ptr<const Context> context = contexts_.get();
  if (context->settings().reload == Settings::Reload::kNo) return;
  try {
    watch(*context);
    FileStamps now(files_of(context->settings()));
    const bool stable = now == seen_ || now == context->stamps();
    seen_ = std::move(now);
    if (!stable) return check_in(ContextSource::kQuiet);
    retries_ = false;
    reload();
  } catch (const std::exception& error) {
    failed(kOldOnesStay, error);
  }
}

/// Reads the files, which are as the last check saw them (seen_). If they cannot be used, each loop
/// that notices it tries again later, not only the loop that has read them, because that loop may
/// end first. Only one of the loops reports the failure.
void Reloader::reload() {
  try {
    switch (contexts_.reload(seen_)) {
      case ContextSource::Reloaded::kUnusable:
        return try_later();
      case ContextSource::Reloaded::kReplaced:
        ++shared_.counters.reloads;
        break;
      case ContextSource::Reloaded::kNothing:
        break;
    }
    pause_ = ae::Duration::zero();
    reported_.clear();
  } catch (const Error& error) {
    try_later();
    std::string text = kOldOnesStay + std::string(error.what());
    if (contexts_.is_to_report(text)) report(std::move(text));
  }
}

void Reloader::try_later() {
  pause_ = std::clamp(2 * pause_, kFirstPause, kLastPause);
  if (timer_ != 0) return;
  retries_ = true;
  check_in(pause_);
}

/// Plans another check of the files, and reports the failure unless it is the one reported last.
void Reloader::failed(const char* what, const std::exception& error) {
  try_later();
  std::string text = what + std::string(error.what());
  if (text == reported_) return;
  reported_ = text;
  report(std::move(text));
}

/// Reports `text` to the acceptor's handler for refusals, which may stop this object.
void Reloader::report(std::string text) {
  ++shared_.counters.reload_failures;
  acceptor_.refused({std::make_error_code(std::errc::invalid_argument), std::move(text)});
}

}}}  // namespace conn::tls
