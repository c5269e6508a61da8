// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Keeps the OpenSSL contexts of a TLS type, keyed by the options that endpoints add to the type's
// own. May be used from any thread.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/core/transport.h"
#include "conn/tls/context.h"
#include "conn/tls/engine/role.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Returns the current TLS context for a set of options; reloading the options replaces it.
class ContextSource {
 public:
  /// Files that change are read again once they have not changed for this long.
  static constexpr ae::Duration kQuiet = std::chrono::milliseconds(200);

  virtual ~ContextSource() = default;
  virtual std::shared_ptr<const Context> get() const = 0;
  /// What a call of reload() has done.
  enum class Reloaded {
    kNothing,   ///< the context was made from the same files
    kReplaced,  ///< the context was made anew
    /// Nothing was done, because reading the same files has failed a moment ago. A later attempt
    /// may succeed, since the reason, such as a lack of descriptors, may be gone.
    kUnusable
  };
  /// `now` is the current state of the files that the options name. If the context was made from
  /// files in another state, reads the files again and replaces the context. Throws Error, and
  /// keeps the context, if the files cannot be used.
  virtual Reloaded reload(const FileStamps& now) const = 0;
  /// Returns whether a listener must report `failure`, the text of an Error of reload(). False if a
  /// listener has already reported it and the files have not been usable since then.
  virtual bool is_to_report(const std::string& failure) const = 0;
};

/// Keeps the contexts of one TLS type. Files are read only by configure(), configure_again(),
/// prepare_clients(), source() for a listener, and ContextSource::reload(). The other calls do not
/// wait while files are read.
class ContextTable {
 public:
  /// Sets the type's options and reads all files again, also those of sources that are made
  /// meanwhile. Throws Error and changes nothing if a context that listeners or prepared clients
  /// use, or the context without endpoint options, cannot be made.
  void configure(const Options& options);
  /// The same in two steps. No other configure(), and no reload of files, begins until the returned
  /// object is destroyed.
  std::unique_ptr<OptionsChange> change(const Options& options);
  /// Reads all files again, with the options of the last configure(). Throws like it.
  void configure_again();
  void set_pass_phrase(std::string_view phrase);
  /// Returns the type's options merged with those of `endpoint`. Neither may contain options of the
  /// layer below TLS.
  Options merged(const Options& endpoint) const;
  /// Returns the source of the context for an endpoint's options. Equal options share a source,
  /// even if server-name or connect-timeout differs. `serves`: whether it is for a listener, which
  /// needs a server context now and after each configure().
  std::shared_ptr<const ContextSource> source(const Options& endpoint, bool serves);
  /// Reads the files that clients of `source` need, also the system's. As long as `source` is held,
  /// configure() and reload() read them again at once. Throws Error if they cannot be used.
  void prepare_clients(const ContextSource& source);

  /// Statistics of the TLS session caches, summed over all listeners with option resumption=cache.
  struct Sessions {
    /// `kept`: sessions in the caches now. `dropped`: sessions dropped so far because a cache had
    /// reached its limit (option session-cache).
    std::uint64_t kept = 0, dropped = 0;
  };
  Sessions sessions() const;
  /// Returns the earliest expiry time of the certificates that this end presents to its peers, in
  /// seconds since 1970; 0 if it presents none. Includes the certificates of the type's options,
  /// and those of endpoints that listeners or connections use now.
  std::int64_t certificates_end() const;

 private:
  struct Slot;
  struct Renewal;
  using Slots = std::map<std::map<std::string, std::string, std::less<>>, std::shared_ptr<Slot>>;
  bool replace(Renewal& renewal, const std::function<bool()>& others);
  ContextSource::Reloaded reload(const Slot& slot, const FileStamps& now);
  std::shared_ptr<Slot> slot_of(const Options& of_endpoint);
  void read_for(Role role, const Slot& slot);
  void forget_unused();

  // Order of locks: configuring_, then mutex_, then the mutex of a Slot. The mutexes of Context and
  // TrustCache are held while files are read: who holds mutex_ or a Slot's must not lock them. A
  // list of schemes that is configured locks those of several tables, configuring_ of each first.
  //
  // configuring_ is held by configure(), change(), configure_again() and reload() from beginning to
  // end: so each replaces contexts by newer ones. Of what connections call, only reload() waits for
  // it.
  ae::Mutex configuring_;
  // Guards the members below. Loops lock it for each connection, so no files are read under it.
  mutable ae::Mutex mutex_;
  Options options_;  // changed only under both mutexes, so either suffices to read it
  Secret pass_phrase_;
  // trusted certificates that the contexts share; replaced by each configure()
  std::shared_ptr<TrustCache> trust_ = std::make_shared<TrustCache>();
  std::uint64_t uses_ = 0;
  // sessions dropped by contexts that no longer exist, so that the statistics never fall
  std::uint64_t dropped_before_ = 0;
  Slots slots_;
};

}}}  // namespace conn::tls
