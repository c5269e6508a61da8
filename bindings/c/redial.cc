// SPDX-License-Identifier: BSD-3-Clause
// The C interface of conn::Redial: a connection that is re-established.

#include <algorithm>

#include "c/internal.h"
#include "conn/redial.h"

using namespace aeconn_c;

struct aeconn_redial {
  aeconn_redial_handlers handlers;
  void* context;
  conn::Redial::Proved proved;
  std::unique_ptr<conn::Redial> redial;
};

namespace {

// Limit of each duration in aeconn_redial_settings.
constexpr int64_t kLongest = 365LL * 24 * 3600 * 1'000'000'000;

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

}  // namespace

extern "C" {

// --- a connection that is re-established ---------------------------------------------------------

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

void aeconn_redial_free(aeconn_redial* redial) {
  const NoCancel held;
  delete redial;
}

aeconn_redial_phase aeconn_redial_get_phase(const aeconn_redial* redial) {
  if (redial == nullptr) return AECONN_REDIAL_STOPPED;
  return static_cast<aeconn_redial_phase>(redial->redial->phase());
}

aeconn_conn* aeconn_redial_connection(const aeconn_redial* redial) {
  return redial == nullptr ? nullptr : handle(redial->redial->connection());
}

void aeconn_redial_proved(aeconn_redial* redial, int answered) {
  if (redial == nullptr) return;
  // The function is moved out first, because the call may begin the next probe, or free the redial.
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
