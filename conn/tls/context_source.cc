// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/context_source.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "ae/core/fork.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

// Maximum number of slots, one for each set of endpoint options. A slot is kept after its last
// connection has ended, because its context has the TLS sessions that the next connection can
// resume. Beyond this number, the least recently used slots that are not in use are dropped, so
// that a program that connects with ever new options does not use ever more memory.
constexpr std::size_t kMostSlots = 1024;

/// Returns `endpoint` without the options that belong to each connection. The remaining ones
/// determine a context. Lists of schemes and Redial give each attempt to connect another
/// connect-timeout.
Options of_context(const Options& endpoint) {
  Options options;
  for (const auto& [key, value] : endpoint.values())
    if (key != "server-name" && key != "connect-timeout") options.set(key, value);
  return options;
}

}  // namespace

/// After files could not be used, reload() does not read them again for this long. The loops of a
/// group notice a change of the files within this time of each other, so only the first of them
/// reads the files. It must be shorter than the pause after which a listener tries again.
constexpr std::chrono::milliseconds kPause(500);

struct ContextTable::Slot final : ContextSource {
  Slot(ContextTable& its_table, Options of_endpoint)
      : table(its_table), options(std::move(of_endpoint)) {}
  std::shared_ptr<const Context> get() const override {
    const std::lock_guard lock(mutex);
    return context;
  }
  Reloaded reload(const FileStamps& now) const override { return table.reload(*this, now); }
  bool is_to_report(const std::string& failure) const override {
    const std::lock_guard lock(table.mutex_);
    if (failure == reported) return false;
    reported = failure;
    return true;
  }
  /// Returns statistics of the session cache of this slot's server context; zeros if that context
  /// has not been made.
  Sessions sessions() const noexcept {
    const std::shared_ptr<const Context> its = get();
    SSL_CTX* const server = its->made_server();
    if (server == nullptr) return {};
    return {static_cast<std::uint64_t>(SSL_CTX_sess_number(server)),
            static_cast<std::uint64_t>(SSL_CTX_sess_cache_full(server))};
  }
  /// Returns whether connections use the present context. Those of clients hold the context alone,
  /// and not this object.
  bool has_connections() const {
    const std::lock_guard lock(mutex);
    return context.use_count() > 1;
  }
  ContextTable& table;
  const Options options;
  // The state of the files when reload() last failed to use them, and the time from which it may
  // try them again. Guarded by the table's lock.
  mutable FileStamps unusable;
  mutable std::chrono::steady_clock::time_point try_again{};
  // Text of the failure that a listener has reported since the files were last usable; "": none.
  // Guarded by the table's lock.
  mutable std::string reported;
  bool serves = false;  // true if listeners use this slot; guarded by the table's lock
  // true if expect_clients() was called; guarded by the table's lock
  mutable bool dials = false;
  // value of the table's counter uses_ when this slot was last used; guarded by its lock
  std::uint64_t last_used = 0;
  mutable ae::Mutex mutex;
  mutable std::shared_ptr<const Context> context;
};

std::shared_ptr<const Context> ContextTable::make(const Options& type, const Options& endpoint,
                                                  std::shared_ptr<TrustCache> trust) const {
  return std::make_shared<const Context>(parse_settings(type.merged_with(endpoint)), pass_phrase_,
                                         std::move(trust));
}

void ContextTable::configure(const Options& options) {
  const std::lock_guard lock(mutex_);
  configure_locked(options);
}

void ContextTable::configure_again() {
  const std::lock_guard lock(mutex_);
  configure_locked(options_);
}

void ContextTable::expect_clients(const ContextSource& source) {
  const std::lock_guard lock(mutex_);
  static_cast<const Slot&>(source).dials = true;
}

void ContextTable::configure_locked(const Options& options) {
  struct Renewed {
    std::shared_ptr<Slot> slot;
    std::shared_ptr<const Context> context;
    bool serves, dials;
  };
  Options its = options;
  auto trust = std::make_shared<TrustCache>();
  const std::shared_ptr<const Context> plain = make(options, {}, trust);
  plain->load();
  std::vector<Renewed> renewed;
  Slots slots;
  for (const auto& [key, slot] : slots_) {
    const bool held = slot.use_count() > 1;
    // Drops slots of endpoint options that neither a connection nor a listener uses now.
    if (!slot->options.empty() && !held) continue;
    renewed.push_back({slot, slot->options.empty() ? plain : make(options, slot->options, trust),
                       held && slot->serves, held && slot->dials});
    renewed.back().context->load();
    if (renewed.back().serves) (void)renewed.back().context->server();
    if (renewed.back().dials) (void)renewed.back().context->client();
    slots.emplace(key, slot);
  }
  // No statement from here on throws, so configure() changes either everything or nothing.
  for (const auto& [key, slot] : slots_) dropped_before_ += slot->sessions().dropped;
  options_ = std::move(its);
  trust_ = std::move(trust);
  slots_.swap(slots);
  for (Renewed& one : renewed) {
    one.slot->serves = one.serves;
    one.slot->dials = one.dials;
    one.slot->unusable = {};
    one.slot->reported.clear();
    const std::lock_guard slot_lock(one.slot->mutex);
    one.slot->context.swap(one.context);
  }
}

ContextSource::Reloaded ContextTable::reload(const Slot& slot, const FileStamps& now) {
  using enum ContextSource::Reloaded;
  const std::lock_guard lock(mutex_);
  if (slot.get()->stamps() == now) {
    slot.reported.clear();
    return kNothing;
  }
  if (slot.unusable == now && std::chrono::steady_clock::now() < slot.try_again) return kUnusable;
  std::shared_ptr<const Context> next = make(options_, slot.options, trust_);
  try {
    now.refuse_special();
    next->load();
    if (slot.serves) (void)next->server();
    if (slot.dials) (void)next->client();
  } catch (const Error&) {
    slot.unusable = now;
    slot.try_again = std::chrono::steady_clock::now() + kPause;
    throw;
  }
  slot.unusable = {};
  slot.reported.clear();
  dropped_before_ += slot.sessions().dropped;
  const std::lock_guard slot_lock(slot.mutex);
  slot.context.swap(next);
  return kReplaced;
}

void ContextTable::set_pass_phrase(std::string_view phrase) {
  const std::lock_guard lock(mutex_);
  pass_phrase_ = Secret(phrase);
}

Options ContextTable::merged(const Options& endpoint) const {
  const std::lock_guard lock(mutex_);
  return options_.merged_with(endpoint);
}

std::shared_ptr<const ContextSource> ContextTable::source(const Options& of_endpoint, bool serves) {
  const Options endpoint = of_context(of_endpoint);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Slot> slot;
  if (const auto found = slots_.find(endpoint.values()); found != slots_.end()) {
    slot = found->second;
  } else {
    slot = std::make_shared<Slot>(*this, endpoint);
    slot->context = make(options_, endpoint, trust_);
    if (slots_.size() >= kMostSlots) forget_unused();
    slots_.emplace(endpoint.values(), slot);
  }
  slot->last_used = ++uses_;
  if (serves) {
    (void)slot->get()->server();
    slot->serves = true;
  }
  return slot;
}

ContextTable::Sessions ContextTable::sessions() const {
  const std::lock_guard lock(mutex_);
  Sessions all{.dropped = dropped_before_};
  for (const auto& [key, slot] : slots_) {
    const Sessions its = slot->sessions();
    all.kept += its.kept;
    all.dropped += its.dropped;
  }
  return all;
}

std::int64_t ContextTable::certificates_end() const {
  const std::lock_guard lock(mutex_);
  std::int64_t first = 0;
  for (const auto& [key, slot] : slots_) {
    // Ignores slots of endpoint options that no listener or connection uses now: they are kept only
    // for the next connection.
    if (!slot->options.empty() && slot.use_count() == 1 && !slot->has_connections()) continue;
    first = first_end(first, slot->get()->certificates_end());
  }
  return first;
}

/// Drops the least recently used of the slots that nothing uses now, so that at most three quarters
/// of kMostSlots unused slots are left; drops at least one. Dropping many at a time spreads the
/// cost of the search over many new slots.
void ContextTable::forget_unused() {
  const std::uint64_t kept = kMostSlots - kMostSlots / 4;
  std::vector<std::uint64_t> unused;
  for (const auto& [key, slot] : slots_)
    if (slot.use_count() == 1) unused.push_back(slot->last_used);
  if (unused.empty()) return;
  const std::size_t go = unused.size() > kept ? unused.size() - kept : 1;
  const auto last = unused.begin() + static_cast<std::ptrdiff_t>(go - 1);
  std::nth_element(unused.begin(), last, unused.end());
  std::erase_if(slots_, [&](const auto& entry) {
    if (entry.second.use_count() != 1 || entry.second->last_used > *last) return false;
    dropped_before_ += entry.second->sessions().dropped;
    return true;
  });
}

}}}  // namespace conn::tls
