// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Stores the TLS sessions that a client may resume, by peer, up to a maximum number of peers.
// Threads may share a store.

#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/tls/engine/openssl.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class SessionStore {
 public:
  explicit SessionStore(std::size_t peers = 1024) : limit_(peers) {}

  /// Keeps `session` in place of the peer's older one. At the maximum number of peers, drops the
  /// least recently used peer.
  void put(std::string_view peer, SessionPtr session);
  /// Returns the session to resume with `peer`, or null if there is none. A session of TLS 1.3 is
  /// returned once only (RFC 8446, appendix C.4: an observer must not be able to link connections
  /// by it).
  SessionPtr take(std::string_view peer);

 private:
  struct Entry {
    std::string peer;
    SessionPtr session;
  };
  const std::size_t limit_;
  ae::Mutex mutex_;
  std::list<Entry> entries_;  // stored sessions, most recently used first
  std::map<std::string_view, std::list<Entry>::iterator> by_peer_;
};

}}}  // namespace conn::tls
