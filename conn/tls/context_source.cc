// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/context_source.h"

#include <utility>
#include <vector>

namespace conn::inline AECONN_ABI::tls {
namespace {

// Clients may bring ever new options; their contexts are kept for the next connection to the same
// place, with the sessions to resume, but not without end.
constexpr std::size_t kMostSlots = 64;

}  // namespace

struct ContextTable::Slot final : ContextSource {
  explicit Slot(Options of_endpoint) : options(std::move(of_endpoint)) {}
  std::shared_ptr<const Context> get() const override {
    const std::lock_guard lock(mutex);
    return context;
  }
  const Options options;
  bool serves = false;  // the table's lock guards it
  mutable std::mutex mutex;
  std::shared_ptr<const Context> context;
};

std::shared_ptr<const Context> ContextTable::make(const Options& type,
                                                  const Options& endpoint) const {
  return std::make_shared<const Context>(parse_settings(type.merged_with(endpoint)), pass_phrase_);
}

void ContextTable::configure(const Options& options) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<const Context> plain = make(options, {});
  plain->load();
  std::vector<std::pair<std::shared_ptr<Slot>, std::shared_ptr<const Context>>> renewed;
  for (const auto& [key, slot] : slots_) {
    const bool held = slot.use_count() > 1;
    if (!slot->options.empty() && !held) continue;  // a client's, of some time ago
    renewed.emplace_back(slot, slot->options.empty() ? plain : make(options, slot->options));
    renewed.back().second->load();
    if (held && slot->serves) (void)renewed.back().second->server();
  }
  options_ = options;
  slots_.clear();
  for (auto& [slot, context] : renewed) {
    slots_.emplace(slot->options.values(), slot);
    const std::lock_guard slot_lock(slot->mutex);
    slot->context = std::move(context);
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
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Slot> slot;
  if (const auto found = slots_.find(endpoint.values()); found != slots_.end()) {
    slot = found->second;
  } else {
    slot = std::make_shared<Slot>(endpoint);
    slot->context = make(options_, endpoint);
    if (slots_.size() >= kMostSlots) forget_unused();
    slots_.emplace(endpoint.values(), slot);
  }
  if (serves) {
    (void)slot->get()->server();
    slot->serves = true;
  }
  return slot;
}

ContextTable::Sessions ContextTable::sessions() const {
  const std::lock_guard lock(mutex_);
  Sessions all;
  for (const auto& [key, slot] : slots_) {
    if (!slot->serves) continue;
    SSL_CTX* const server = slot->get()->server();
    all.kept += static_cast<std::uint64_t>(SSL_CTX_sess_number(server));
    all.dropped += static_cast<std::uint64_t>(SSL_CTX_sess_cache_full(server));
  }
  return all;
}

void ContextTable::forget_unused() {
  std::erase_if(slots_, [](const auto& entry) { return entry.second.use_count() == 1; });
}

}  // namespace conn::inline AECONN_ABI::tls
