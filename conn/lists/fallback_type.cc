// SPDX-License-Identifier: BSD-3-Clause
#include "conn/fallback_type.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ae/once.h"
#include "conn/core/connection_set.h"
#include "conn/core/make_connection.h"
#include "conn/kit/defaults.h"
#include "conn/lists/list_carrier.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

using namespace std::chrono_literals;

constexpr int kPortTries = 16;
constexpr const char* kShortCut = "shm-path";

Endpoint of_scheme(const Endpoint& place, const std::string& scheme) {
  Endpoint one = place;
  one.scheme = scheme;
  one.options = {};
  return one;
}

const OptionRow* option_of(const Candidate& candidate, std::string_view key) noexcept {
  return candidate.type != nullptr ? candidate.type->find_option(key) : nullptr;
}

/// Returns whether the candidate uses a Unix socket of its own (option shm-path) instead of the
/// hosts and the port in the URL.
bool is_short_cut(const Candidate& candidate) { return candidate.to.options.has(kShortCut); }

/// Returns the error message for an option that only an earlier version had, from the first
/// transport that had the option; empty if none had it.
std::string gone_from(const std::vector<Candidate>& candidates, std::string_view key) {
  for (const Candidate& candidate : candidates)
    if (const OptionTable* const table =
            candidate.type != nullptr ? candidate.type->option_table() : nullptr)
      if (std::string why = table->gone(key); !why.empty()) return why;
  return {};
}

/// Returns the mutex of configure(), which all lists share.
ae::Mutex& changing() {
  return ae::once([] { return ae::Mutex(); });
}

FallbackType::Times times_of(const Options& options) {
  OptionReader read(list_options(), options);
  return {read.duration("fallback-delay"), read.duration("connect-timeout")};
}

/// The listener of a list of schemes such as rdma|tcp: listens at one endpoint over several
/// transports.
class FallbackListener final : public Listener {
 public:
  FallbackListener(const FallbackType& type, std::vector<ListenerPtr> listeners,
                   std::vector<Skipped> not_served)
      : type_(type), listeners_(std::move(listeners)), not_served_(std::move(not_served)) {}

  const ConnectionType& type() const noexcept override { return type_; }
  std::vector<Endpoint> endpoints() const override {
    std::vector<Endpoint> all;
    for (const ListenerPtr& each : listeners_) {
      for (Endpoint& endpoint : each->endpoints()) all.push_back(std::move(endpoint));
    }
    return all;
  }
  void pause() override {
    for (const ListenerPtr& each : listeners_) each->pause();
  }
  void hold_back() override {
    for (const ListenerPtr& each : listeners_) each->hold_back();
  }
  void resume() override {
    for (const ListenerPtr& each : listeners_) each->resume();
  }
  void on_refused(const RefusedHandler& handler) override {
    for (const ListenerPtr& each : listeners_) each->on_refused(handler);
  }
  std::vector<Skipped> not_served() const override { return not_served_; }

 private:
  const FallbackType& type_;
  const std::vector<ListenerPtr> listeners_;
  const std::vector<Skipped> not_served_;
};

}  // namespace

const OptionTable& list_options() {
  return ae::once([] {
    constexpr ae::Duration kLongest = 24h;
    constexpr OptionSide kConnecting = OptionSide::kConnecting;
    return OptionTable(
        "a list of schemes",
        {{"",
          {OptionRow::duration("fallback-delay", kConnecting, 250ms, ae::Duration::zero(), kLongest,
                               "head start of each candidate before the next begins beside it"),
           OptionRow::duration("connect-timeout", kConnecting, defaults::kConnectTimeout, 1ms,
                               kLongest, "for all candidates together")}}});
  });
}

FallbackType::FallbackType(std::string name, std::vector<Candidate> candidates,
                           const FallbackHandler& report)
    : name_(std::move(name)),
      candidates_(std::move(candidates)),
      report_(report),
      table_(list_options()) {}

Capabilities FallbackType::capabilities() const noexcept {
  Capabilities all{.half_close = true,
                   .rebind = true,
                   .descriptor = true,
                   .integrity = true,
                   .in_place = true,
                   .reset = true,
                   .reuseport = false};
  for (const Candidate& candidate : candidates_) {
    if (candidate.type == nullptr) continue;
    const Capabilities one = candidate.type->capabilities();
    all.half_close = all.half_close && one.half_close;
    all.rebind = all.rebind && one.rebind;
    all.descriptor = all.descriptor && one.descriptor;
    all.integrity = all.integrity && one.integrity;
    all.in_place = all.in_place && one.in_place;
    all.reset = all.reset && one.reset;
  }
  return all;
}

const OptionRow* FallbackType::find_option(std::string_view key) const noexcept {
  if (const OptionRow* const own = table_.find(key)) return own;
  for (const Candidate& candidate : candidates_)
    if (const OptionRow* const row = option_of(candidate, key)) return row;
  return nullptr;
}

std::vector<Candidate> FallbackType::candidates_for(const Endpoint& endpoint) const {
  std::vector<Candidate> chosen;
  for (const std::string& scheme : endpoint.schemes()) {
    const auto found =
        std::find_if(candidates_.begin(), candidates_.end(),
                     [&](const Candidate& candidate) { return candidate.scheme == scheme; });
    if (found == candidates_.end())
      throw Error(endpoint.to_string() + ": this is not a " + name_ + " endpoint");
    chosen.push_back(*found);
    chosen.back().to = of_scheme(endpoint, scheme);
  }
  // If a transport of the list is not available, options that no other transport knows are ignored,
  // because the missing transport might know them.
  const bool forgiving = std::any_of(chosen.begin(), chosen.end(), [](const Candidate& candidate) {
    return candidate.type == nullptr;
  });
  for (const auto& [key, value] : endpoint.options.values()) {
    if (table_.has(key)) continue;
    bool known = false;
    for (Candidate& candidate : chosen) {
      if (option_of(candidate, key) == nullptr) continue;
      candidate.to.options.set(key, value);
      known = true;
    }
    if (known) continue;
    if (const std::string gone = gone_from(chosen, key); !gone.empty())
      throw Error(endpoint.to_string() + ": " + gone);
    if (!forgiving)
      throw Error(endpoint.to_string() + ": none of " + name_ + " has an option " + key);
  }
  for (const Candidate& candidate : chosen) {
    if (candidate.type != nullptr) candidate.type->check(candidate.to);
  }
  return chosen;
}

FallbackType::Times FallbackType::times(const Endpoint& endpoint) const {
  const std::lock_guard lock(mutex_);
  try {
    return times_of(options_.merged_with(endpoint.options));
  } catch (const Error& error) {
    throw Error(error.code(), endpoint.to_string() + ": " + error.what());
  }
}

void FallbackType::configure(const Options& options) {
  Options own;
  std::vector<Options> others(candidates_.size());
  Endpoint probe;
  if (options.has(kShortCut)) throw Error(name_ + ": option " + kShortCut + " belongs in a URL");
  if (carries_path(name_)) {
    probe.path = "/";
  } else {
    probe.hosts.push_back({"localhost", false});
    probe.port = 1;
  }
  probe.scheme = name_;
  probe.options = options;
  if (find_option(kShortCut) != nullptr) probe.options.set(kShortCut, "/");
  // Checks the options, so that an invalid option throws before anything is changed.
  (void)candidates_for(probe);
  for (const auto& [key, value] : options.values()) {
    if (table_.has(key)) own.set(key, value);
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (option_of(candidates_[i], key) != nullptr) others[i].set(key, value);
    }
  }
  (void)times_of(own);
  // Options that passed the check above may still be refused by types that read files. No other
  // type must change then.
  std::vector<std::size_t> simple;
  {
    // Each change locks its type, hence only one list at a time makes changes: another list may
    // have the same types in another order.
    const std::lock_guard one_list(changing());
    std::vector<std::unique_ptr<OptionsChange>> changes;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (candidates_[i].type == nullptr) continue;
      if (auto change = static_cast<Transport&>(*candidates_[i].type).change(others[i])) {
        changes.push_back(std::move(change));
      } else {
        simple.push_back(i);
      }
    }
    make_changes(changes);
  }
  // Without these locks: a program's own transport may use a type that has changed.
  for (const std::size_t i : simple) candidates_[i].type->configure(others[i]);
  const std::lock_guard lock(mutex_);
  options_ = std::move(own);
}

void FallbackType::check(const Endpoint& endpoint) const {
  (void)times(endpoint);
  (void)candidates_for(endpoint);
}

void FallbackType::prepare(const Endpoint& endpoint) const {
  (void)times(endpoint);
  for (const Candidate& candidate : candidates_for(endpoint))
    if (candidate.type != nullptr) candidate.type->prepare(candidate.to);
}

void FallbackType::prepare_client(const Endpoint& endpoint) const {
  (void)times(endpoint);
  for (const Candidate& candidate : candidates_for(endpoint))
    if (candidate.type != nullptr) candidate.type->prepare_client(candidate.to);
}

ListenerPtr FallbackType::listen(ae::EventLoop& loop, const Endpoint& endpoint,
                                 AcceptHandler accepted) const {
  check(endpoint);
  const auto shared = std::make_shared<const AcceptHandler>(std::move(accepted));
  std::vector<ListenerPtr> listeners;
  std::vector<Skipped> missing = listen_on_each(
      endpoint,
      [&](const Candidate& candidate, const Endpoint& at) {
        listeners.push_back(candidate.type->listen(
            loop, at, [shared](ConnectionPtr arrival) { (*shared)(std::move(arrival)); }));
        return listeners.back()->endpoints();
      },
      [&] { listeners.clear(); });
  return std::make_unique<FallbackListener>(*this, std::move(listeners), std::move(missing));
}

std::vector<Skipped> FallbackType::listen_on_each(
    const Endpoint& endpoint,
    const std::function<std::vector<Endpoint>(const Candidate&, const Endpoint&)>& open,
    const std::function<void()>& close) const {
  const std::vector<Candidate> candidates = candidates_for(endpoint);
  for (int attempt = 1;; ++attempt) {
    std::vector<std::optional<Skipped>> missing(candidates.size());
    Endpoint place = endpoint;  // gets the addresses that the listeners use
    place.hosts.clear();
    bool any = false, again = false;
    const auto listen = [&](std::size_t i, bool short_cut) {
      const Candidate& candidate = candidates[i];
      Endpoint at = candidate.to;
      if (short_cut) at.hosts = place.hosts;
      at.port = place.port;
      try {
        if (short_cut && !any) throw Error("no other scheme of the list listens");
        for (Endpoint& each : open(candidate, at)) {
          if (short_cut) continue;
          any = true;
          place.port = each.port;
          for (Endpoint::Host& host : each.hosts) place.hosts.push_back(std::move(host));
        }
      } catch (const Error& error) {
        // With port 0 the first transport chooses a port, which may be in use for a later
        // transport. All transports then try again with another port.
        again = again || (!short_cut && place.port != endpoint.port && attempt < kPortTries);
        missing[i] = {candidate.scheme, SkipReason::kOther, Failure(error)};
      }
    };
    for (const bool short_cut : {false, true}) {
      for (std::size_t i = 0; i < candidates.size() && !again; ++i) {
        if (candidates[i].type == nullptr)
          missing[i] = {
              candidates[i].scheme,
              SkipReason::kUnavailable,
              {std::make_error_code(std::errc::protocol_not_supported), candidates[i].unavailable}};
        else if (is_short_cut(candidates[i]) == short_cut)
          listen(i, short_cut);
      }
    }
    if (again) {
      close();
      continue;
    }
    std::vector<Skipped> all;
    for (std::optional<Skipped>& each : missing)
      if (each) all.push_back(*std::move(each));
    if (all.size() == candidates.size())
      throw Error(code_of(all), endpoint.to_string() + ": " + conn::describe(all));
    return all;
  }
}

std::vector<Capacity> FallbackType::capacity(const Endpoint& endpoint,
                                             std::uint64_t connections) const {
  check(endpoint);
  std::vector<Capacity> all;
  std::vector<Skipped> missing;
  for (const Candidate& candidate : candidates_for(endpoint)) {
    try {
      if (candidate.type == nullptr)
        throw Error(std::make_error_code(std::errc::protocol_not_supported), candidate.unavailable);
      for (Capacity& each : candidate.type->capacity(candidate.to, connections))
        all.push_back(std::move(each));
    } catch (const Error& error) {
      missing.push_back({candidate.scheme, SkipReason::kOther, Failure(error)});
    }
  }
  if (all.empty())
    throw Error(code_of(missing), endpoint.to_string() + ": " + conn::describe(missing));
  return all;
}

bool FallbackType::is_over(const ConnectionType& other) const noexcept {
  return std::any_of(candidates_.begin(), candidates_.end(), [&](const Candidate& each) {
    return each.type != nullptr && (each.type == &other || of(*each.type).is_over(other));
  });
}

bool FallbackType::has_pending_data(ae::EventLoop& loop) const {
  return std::any_of(candidates_.begin(), candidates_.end(), [&](const Candidate& each) {
    return each.type != nullptr && each.type->has_pending_data(loop);
  });
}

std::size_t FallbackType::process_pending_data(ae::EventLoop& loop) const {
  std::size_t ran = 0;
  for (const Candidate& each : candidates_)
    if (each.type != nullptr) ran += each.type->process_pending_data(loop);
  return ran;
}

void FallbackType::cleanup(ae::EventLoop& loop) const {
  for (const Candidate& each : candidates_)
    if (each.type != nullptr) each.type->cleanup(loop);
}

std::unique_ptr<Memory> FallbackType::register_memory(ae::EventLoop& loop,
                                                      std::span<std::byte> bytes) const {
  for (const Candidate& candidate : candidates_) {
    if (candidate.type != nullptr && candidate.type->capabilities().in_place)
      return candidate.type->register_memory(loop, bytes);
  }
  return Transport::register_memory(loop, bytes);
}

ConnectionPtr FallbackType::create(ae::EventLoop& loop) const {
  return make_connection<ListCarrier>(loop, *this).first;
}

void FallbackType::report(ae::EventLoop& loop, const Fallback& fallback) const {
  LoopCounters& counted = counters(loop);
  ++counted.fallbacks;
  for (const Skipped& each : fallback.not_taken)
    ++counted.not_taken[static_cast<std::size_t>(each.kind)];
  if (report_) report_(fallback);
}

Statistics FallbackType::statistics(ae::EventLoop& loop) const {
  Statistics all = Transport::statistics(loop);
  const LoopCounters& counted = counters(loop);
  all.emplace_back("fallbacks", counted.fallbacks);
  for (std::size_t i = 0; i < kSkipReasons; ++i) {
    all.emplace_back(counter_of(static_cast<SkipReason>(i)), counted.not_taken[i]);
  }
  return all;
}

}}  // namespace conn
