// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// For commands on several keys or on all clients. With one loop the data and the clients are its
// own; with several loops the shards are locked and the other loops are asked.

#include <functional>
#include <utility>
#include <vector>

#include "command.h"
#include "together.h"

namespace kv {

/// The database of a key, with one loop.
struct OneDatabase {
  explicit OneDatabase(Call& call) : database(*call.db) {}
  Database& operator()(std::string_view) const noexcept { return database; }
  Database& database;
};

/// The same with several loops. Locks the shards of the request's keys for its lifetime.
class LockedKeys {
 public:
  explicit LockedKeys(Call& call)
      : lock_(call.server.together->shards, call.server.data_bytes, keys(call),
              static_cast<std::size_t>(call.command.key_step)),
        index_(call.session.database_index()) {}
  Database& operator()(std::string_view key) const noexcept {
    return lock_.of(key).database(index_);
  }

 private:
  static Arguments keys(const Call& call) {
    const auto first = static_cast<std::size_t>(call.command.first_key);
    const auto last = call.command.last_key < 0 ? call.argv.size() - 1
                                                : static_cast<std::size_t>(call.command.last_key);
    return call.argv.subspan(first, last - first + 1);
  }
  ShardsLock lock_;
  std::size_t index_;
};

/// Asks every loop, and writes the reply once all have answered if the session still exists.
template <class Answer>
void ask_loops(Call& call, std::function<Answer(Server&)> question,
               std::function<void(Call&, std::vector<Answer>&)> reply) {
  Server& server = call.server;
  call.session.begin_wait();
  try {
    server.together->ask<Answer>(
        server, std::move(question),
        [&server, id = call.session.id(), reply = std::move(reply)](std::vector<Answer>& answers) {
          const auto found = server.sessions.find(id);
          if (found == server.sessions.end() || found->second->killed()) return;
          found->second->finish_wait([&](Call& resumed) { reply(resumed, answers); });
        });
  } catch (...) {  // no loop was asked yet
    call.session.cancel_wait();
    throw;
  }
}

}  // namespace kv
