// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/session_store.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

void SessionStore::put(std::string_view peer, SessionPtr session) {
  const std::lock_guard lock(mutex_);
  if (const auto found = by_peer_.find(peer); found != by_peer_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
    entries_.front().session = std::move(session);
    return;
  }
  entries_.push_front({std::string(peer), std::move(session)});
  by_peer_.emplace(entries_.front().peer, entries_.begin());
  if (entries_.size() <= limit_) return;
  by_peer_.erase(entries_.back().peer);
  entries_.pop_back();
}

SessionPtr SessionStore::take(std::string_view peer) {
  const std::lock_guard lock(mutex_);
  const auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) return nullptr;
  const std::list<Entry>::iterator entry = found->second;
  if (SSL_SESSION_is_resumable(entry->session.get()) == 1 &&
      SSL_SESSION_get_protocol_version(entry->session.get()) < TLS1_3_VERSION) {
    SSL_SESSION_up_ref(entry->session.get());
    entries_.splice(entries_.begin(), entries_, entry);
    return SessionPtr(entry->session.get());
  }
  SessionPtr session = std::move(entry->session);
  by_peer_.erase(found);
  entries_.erase(entry);
  return SSL_SESSION_is_resumable(session.get()) == 1 ? std::move(session) : nullptr;
}

}}}  // namespace conn::tls
