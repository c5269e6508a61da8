// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/context_source.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "ae/core/fork.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

// Maximum number of slots; each keeps the context for one set of endpoint options. A slot is kept
// after its last connection has ended, because its context has the TLS sessions that the next
// connection can resume. Beyond this number, the least recently used slots that are not in use are
// dropped, so that a program that connects with ever new options does not use ever more memory.
constexpr std::size_t kMostSlots = 1024;

/// Returns `endpoint` without the options that belong to each connection; the others determine a
/// context. connect-timeout is left out because lists of schemes and Redial give each attempt to
/// connect another one.
Options of_context(const Options& endpoint) {
  Options options;
  for (const auto& [key, value] : endpoint.values())
    if (key != "server-name" && key != "connect-timeout") options.set(key, value);
  return options;
}

/// Makes a context from the options of the type and of an endpoint. Reads no file.
std::shared_ptr<const Context> make(const Options& type, const Options& endpoint,
                                    const Secret& pass_phrase, std::shared_ptr<TrustCache> trust) {
  return std::make_shared<const Context>(parse_settings(type.merged_with(endpoint)), pass_phrase,
                                         std::move(trust));
}

/// Reads all files that `context` needs now: those that its options name; with `server` or
/// `client`, also what that role takes from elsewhere, such as the system's trusted certificates.
void read_files(const Context& context, bool server, bool client) {
  context.load();
  if (server) (void)context.server();
  if (client) (void)context.client();
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
  /// Returns statistics of the TLS session cache of the server context for this slot's options;
  /// zeros if that context has not been made.
  Sessions sessions() const noexcept {
    const std::shared_ptr<const Context> its = get();
    SSL_CTX* const server = its->made_server();
    if (server == nullptr) return {};
    return {static_cast<std::uint64_t>(SSL_CTX_sess_number(server)),
            static_cast<std::uint64_t>(SSL_CTX_sess_cache_full(server))};
  }
  /// Returns whether connections use the present context. Asks the context and not this slot,
  /// because client connections hold only the context.
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
  // Whether listeners use this slot; whether prepare_clients() was called for it. Set when the
  // present context has read the files of servers or of clients. Guarded by the table's lock.
  mutable bool serves = false, dials = false;
  // value of the table's counter uses_ when this slot was last used; guarded by the table's lock
  std::uint64_t last_used = 0;
  mutable ae::Mutex mutex;
  mutable std::shared_ptr<const Context> context;
};

/// One call of configure(): makes all contexts anew and puts them in place. While files are read
/// without mutex_, other threads may add slots or begin to use them in another role, so that
/// apply() may find that a slot lacks something; prepare() then makes only what is missing.
struct ContextTable::Renewal final : OptionsChange {
  struct Made {
    std::shared_ptr<const Context> context;
    bool server = false, client = false;  // roles whose files the context has read
  };
  /// The context that a slot needs, and the roles (server, client) in which the slot is used.
  struct Wanted {
    Options endpoint;
    bool server, client;
  };
  /// Without `wanted` the options are those of the last configure().
  Renewal(ContextTable& its_table, const Options* wanted)
      : table(its_table), order(table.configuring_) {
    const std::lock_guard lock(table.mutex_);
    options = wanted != nullptr ? *wanted : table.options_;
    pass_phrase = table.pass_phrase_;
  }
  void prepare() override {
    for (const Wanted& one : missing) make_one(one);
  }
  bool apply(const std::function<bool()>& others) override { return table.replace(*this, others); }
  void make_one(const Wanted& wanted) {
    Made& one = contexts[wanted.endpoint.values()];
    if (!one.context) one.context = make(options, wanted.endpoint, pass_phrase, trust);
    read_files(*one.context, wanted.server, wanted.client);
    one.server = one.server || wanted.server;
    one.client = one.client || wanted.client;
  }
  ContextTable& table;
  const std::unique_lock<ae::Mutex> order;
  Options options;
  Secret pass_phrase;
  std::shared_ptr<TrustCache> trust = std::make_shared<TrustCache>();
  // The contexts made, by the same keys as the table's slots. Refers to no slot, because a slot
  // that is referred to counts as in use.
  std::map<Slots::key_type, Made> contexts;
  std::vector<Wanted> missing{Wanted{}};  // at first the context without endpoint options
};

void ContextTable::configure(const Options& options) { make_change(change(options)); }

void ContextTable::configure_again() { make_change(std::make_unique<Renewal>(*this, nullptr)); }

std::unique_ptr<OptionsChange> ContextTable::change(const Options& options) {
  return std::make_unique<Renewal>(*this, &options);
}

/// Puts the contexts of `renewal` in the place of the present ones, once `others` have returned
/// true, and returns true. If a slot in use needs one that was not made, lists all these in
/// `missing`, changes nothing and returns false.
bool ContextTable::replace(Renewal& renewal, const std::function<bool()>& others) {
  struct Replaced {
    Slot& slot;
    std::shared_ptr<const Context>& context;
    bool serves, dials;
  };
  // Declared before the lock, so that the lock is released before their contents are destroyed.
  Slots slots;
  std::vector<Replaced> replaced;
  const std::lock_guard lock(mutex_);
  renewal.missing.clear();
  for (const auto& [key, slot] : slots_) {
    const bool held = slot.use_count() > 1;
    // Drops slots (contexts kept for some endpoint options) that no connection or listener uses
    // now.
    if (!slot->options.empty() && !held) continue;
    const bool serves = held && slot->serves, dials = held && slot->dials;
    Renewal::Made& made = renewal.contexts[key];
    if (!made.context || (serves && !made.server) || (dials && !made.client))
      renewal.missing.push_back({slot->options, serves, dials});
    replaced.push_back({*slot, made.context, serves, dials});
    slots.emplace(key, slot);
  }
  if (!renewal.missing.empty() || !others()) return false;
  // No statement from here on throws, so configure() changes either everything or nothing.
  for (const auto& [key, slot] : slots_) dropped_before_ += slot->sessions().dropped;
  std::swap(options_, renewal.options);
  trust_.swap(renewal.trust);
  slots_.swap(slots);
  for (const Replaced& one : replaced) {
    one.slot.serves = one.serves;
    one.slot.dials = one.dials;
    one.slot.unusable = {};
    one.slot.reported.clear();
    const std::lock_guard slot_lock(one.slot.mutex);
    one.slot.context.swap(one.context);
  }
  return true;
}

ContextSource::Reloaded ContextTable::reload(const Slot& slot, const FileStamps& now) {
  using enum ContextSource::Reloaded;
  const std::lock_guard order(configuring_);
  std::shared_ptr<const Context> next;
  bool serves = false, dials = false;
  {
    const std::lock_guard lock(mutex_);
    if (slot.get()->stamps() == now) {
      slot.reported.clear();
      return kNothing;
    }
    if (slot.unusable == now && std::chrono::steady_clock::now() < slot.try_again) return kUnusable;
    next = make(options_, slot.options, pass_phrase_, trust_);
    serves = slot.serves;
    dials = slot.dials;
  }
  for (;;) {
    try {
      now.refuse_special();
      read_files(*next, serves, dials);
    } catch (const Error&) {
      const std::lock_guard lock(mutex_);
      slot.unusable = now;
      slot.try_again = std::chrono::steady_clock::now() + kPause;
      throw;
    }
    const std::lock_guard lock(mutex_);
    // Starts again if the slot came into use in another role (server, client) meanwhile.
    if (serves != slot.serves || dials != slot.dials) {
      serves = slot.serves;
      dials = slot.dials;
      continue;
    }
    slot.unusable = {};
    slot.reported.clear();
    dropped_before_ += slot.sessions().dropped;
    const std::lock_guard slot_lock(slot.mutex);
    slot.context.swap(next);
    return kReplaced;
  }
}

void ContextTable::set_pass_phrase(std::string_view phrase) {
  const std::lock_guard lock(mutex_);
  pass_phrase_ = Secret(phrase);
}

Options ContextTable::merged(const Options& endpoint) const {
  const std::lock_guard lock(mutex_);
  return options_.merged_with(endpoint);
}

std::shared_ptr<const ContextSource> ContextTable::source(const Options& endpoint, bool serves) {
  std::shared_ptr<Slot> slot = slot_of(of_context(endpoint));
  if (serves) read_for(Role::kServer, *slot);
  return slot;
}

void ContextTable::prepare_clients(const ContextSource& source) {
  read_for(Role::kClient, static_cast<const Slot&>(source));
}

/// Returns the slot of `endpoint`, the options that determine a context; makes it if there is none.
std::shared_ptr<ContextTable::Slot> ContextTable::slot_of(const Options& endpoint) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Slot> slot;
  if (const auto found = slots_.find(endpoint.values()); found != slots_.end()) {
    slot = found->second;
  } else {
    slot = std::make_shared<Slot>(*this, endpoint);
    slot->context = make(options_, endpoint, pass_phrase_, trust_);
    if (slots_.size() >= kMostSlots) forget_unused();
    slots_.emplace(endpoint.values(), slot);
  }
  slot->last_used = ++uses_;
  return slot;
}

/// Reads the files that `role` needs, and notes that the slot is used in this role, so that later
/// contexts of the slot read them, too. If the context was replaced meanwhile, reads those of the
/// new one.
void ContextTable::read_for(Role role, const Slot& slot) {
  for (;;) {
    const std::shared_ptr<const Context> context = slot.get();
    (void)(role == Role::kServer ? context->server() : context->client());
    const std::lock_guard lock(mutex_);
    if (slot.get() != context) continue;
    (role == Role::kServer ? slot.serves : slot.dials) = true;
    return;
  }
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
    // Ignores slots (contexts kept for some endpoint options) that no listener or connection uses
    // now: they are kept only for the next connection.
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
