// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/type.h"

#include <openssl/crypto.h>

#include <algorithm>

#include "ae/core/fork.h"
#include "conn/tls/context_source.h"
#include "conn/tls/loop_state.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Holds the OpenSSL contexts of a TLS type, and the type's options for the layer below.
class TlsType::Contexts {
 public:
  ContextTable table;
  Options below() const {
    const std::lock_guard lock(mutex_);
    return below_;
  }
  void set_below(Options options) {
    const std::lock_guard lock(mutex_);
    below_ = std::move(options);
  }
  /// Keeps `source`, with the files that it has read, for listeners that are opened later.
  void keep(std::shared_ptr<const ContextSource> source) {
    const std::lock_guard lock(mutex_);
    if (std::find(prepared_.begin(), prepared_.end(), source) == prepared_.end())
      prepared_.push_back(std::move(source));
  }

 private:
  mutable ae::Mutex mutex_;
  Options below_;
  std::vector<std::shared_ptr<const ContextSource>> prepared_;
};

TlsType::TlsType(const ConnectionType& below)
    : below_(below),
      name_(below.name() == "tcp" ? "tls" : "tls+" + std::string(below.name())),
      contexts_(std::make_unique<Contexts>()),
      table_(tls_options()) {
  // Threads may use TLS until the process has gone, so exit(3) must not clean OpenSSL up. No effect
  // if the program has used OpenSSL before.
  (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
}
TlsType::~TlsType() = default;

Capabilities TlsType::capabilities() const noexcept {
  Capabilities all = below_.capabilities();
  // TLS half-closes by sending close_notify, whatever the transport below can do
  all.half_close = true;
  all.integrity = true;
  // What is sent is encrypted into memory of TLS.
  all.in_place = false;
  all.reset = true;  // TLS resets by leaving out close_notify, whatever the transport below can do
  return all;
}

const OptionRow* TlsType::find_option(std::string_view key) const noexcept {
  if (const OptionRow* const own = table_.find(key)) return own;
  return below_.find_option(key);
}

void TlsType::configure(const Options& options) { make_change(change(options)); }

std::unique_ptr<OptionsChange> TlsType::change(const Options& options) {
  struct Change final : OptionsChange {
    Change(Contexts& its, Options its_below, const Options& tls)
        : contexts(its), below(std::move(its_below)), of_tls(its.table.change(tls)) {}
    void prepare() override { of_tls->prepare(); }
    bool apply(const std::function<bool()>& others) override {
      if (!of_tls->apply(others)) return false;
      contexts.set_below(std::move(below));
      return true;
    }
    Contexts& contexts;
    Options below;
    const std::unique_ptr<OptionsChange> of_tls;
  };
  Options below = split_below(options);
  if (below.has("shm-path")) throw Error(name_ + ": option shm-path belongs in a URL");
  if (!below.empty()) {  // rejects options that the layer below does not know
    Endpoint probe;
    probe.scheme = below_.name();
    if (carries_path(probe.scheme)) {
      probe.path = "/";
    } else {
      probe.hosts.push_back({"1", false});  // a valid host for every transport (vsock: a CID)
      probe.port = 1;
    }
    probe.options = below;
    below_.check(probe);
  }
  return std::make_unique<Change>(*contexts_, std::move(below), split_options(options).tls);
}

void TlsType::reload_tls() { contexts_->table.configure_again(); }

void TlsType::set_pass_phrase(std::string_view phrase) { contexts_->table.set_pass_phrase(phrase); }

std::vector<Capacity> TlsType::capacity(const Endpoint& endpoint, std::uint64_t connections) const {
  return below_.capacity(below_endpoint(endpoint), connections);
}

Endpoint TlsType::below_endpoint(const Endpoint& endpoint) const {
  Endpoint below = endpoint;
  below.scheme = below_.name();
  below.options = below_options(endpoint.options);
  return below;
}

std::string TlsType::peer_name(const Options& endpoint, const std::string& host) const {
  const std::string name =
      contexts_->table.merged(split_options(endpoint).tls).text("server-name", "");
  return name.empty() ? host : name;
}

/// Returns those of the `given` options that are for the layer below TLS. An option of both layers
/// is among them only if the layer below has it.
Options TlsType::split_below(const Options& given) const {
  const SplitOptions split = split_options(given);
  Options options;
  for (const auto& [key, value] : split.below.values())
    if (!is_of_both(key) || below_.find_option(key) != nullptr) options.set(key, value);
  return options;
}

/// Returns the type's own options for the layer below TLS, overridden and extended by those in
/// `given`.
Options TlsType::below_options(const Options& given) const {
  return contexts_->below().merged_with(split_below(given));
}

std::shared_ptr<const Context> TlsType::context_for(const Options& endpoint,
                                                    LoopState& state) const {
  const auto source = contexts_->table.source(split_options(endpoint).tls, false);
  const std::shared_ptr<const Context> context = source->get();
  if (context->settings().reload == Settings::Reload::kNo) return context;
  const FileStamps now(files_of(context->settings()));
  if (now == context->stamps() || !now.quiet_for(ContextSource::kQuiet)) return context;
  try {
    if (source->reload(now) == ContextSource::Reloaded::kReplaced) ++state.counters.reloads;
  } catch (const Error&) {
    ++state.counters.reload_failures;
  }
  return source->get();
}

void TlsType::check(const Endpoint& endpoint) const {
  Endpoint shown = endpoint;
  // Hides the pass phrase, which must not appear in logs.
  if (shown.options.has("key-pass")) shown.options.set("key-pass", "...");
  const std::string where = shown.to_string() + ": ";
  if (endpoint.scheme != name_) throw Error(where + "this is not a " + name_ + " endpoint");
  try {
    (void)parse_settings(contexts_->table.merged(split_options(endpoint.options).tls));
  } catch (const Error& error) {
    throw Error(error.code(), where + error.what());
  }
  const Endpoint below = below_endpoint(endpoint);
  if (const OptionTable* const table = below_.option_table()) {
    try {
      table->only(below.options);
    } catch (const Error& error) {
      throw Error(error.code(), where + error.what() + ", and those of tls");
    }
  }
  try {
    below_.check(below);
  } catch (const Error& error) {
    // Keeps the error text of the layer below TLS, but replaces the URL at its beginning by
    // `where`, which names the URL that the user wrote.
    std::string text = error.what();
    if (const std::string prefix = below.to_string() + ": "; text.starts_with(prefix))
      text.erase(0, prefix.size());
    throw Error(error.code(), where + text);
  }
}

void TlsType::prepare(const Endpoint& endpoint) const {
  check(endpoint);
  below_.prepare(below_endpoint(endpoint));
  contexts_->keep(source_for(endpoint.to_string(), endpoint.options));
}

void TlsType::prepare_client(const Endpoint& endpoint) const {
  check(endpoint);
  try {
    auto source = contexts_->table.source(split_options(endpoint.options).tls, false);
    contexts_->table.prepare_clients(*source);
    contexts_->keep(std::move(source));
  } catch (const Error& error) {
    throw Error(error.code(), endpoint.to_string() + ": " + error.what());
  }
}

std::shared_ptr<const ContextSource> TlsType::source_for(const std::string& where,
                                                         const Options& endpoint) const {
  try {
    return contexts_->table.source(split_options(endpoint).tls, true);
  } catch (const Error& error) {
    throw Error(error.code(), where + ": " + error.what());
  }
}

Statistics TlsType::statistics(ae::EventLoop& loop) const {
  Statistics all = Transport::statistics(loop);
  const Counters& counters = LoopState::of(*this, loop).counters;
  all.emplace_back("handshakes", counters.handshakes);
  all.emplace_back("resumed", counters.resumed);
  all.emplace_back("handshaking", counters.handshaking);
  all.emplace_back("handshake_failures", counters.handshake_failures);
  all.emplace_back("handshake_timeouts", counters.handshake_timeouts);
  all.emplace_back("handshakes_evicted", counters.evicted);
  all.emplace_back("handshake_thread_steps", counters.thread_steps);
  all.emplace_back("reloads", counters.reloads);
  all.emplace_back("reload_failures", counters.reload_failures);
  all.emplace_back("message_floods", counters.message_floods);
  all.emplace_back("bytes_gathered", counters.bytes_gathered);
  const ContextTable::Sessions sessions = contexts_->table.sessions();
  all.emplace_back("sessions", sessions.kept);
  all.emplace_back("sessions_dropped", sessions.dropped);
  all.emplace_back("certificates_end", static_cast<std::uint64_t>(std::max<std::int64_t>(
                                           0, contexts_->table.certificates_end())));
  return all;
}

}}}  // namespace conn::tls
