// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A TLS engine joined to the connection below it; together they form a byte stream. Reading or
// writing the stream may require reading or writing the connection below; this class knows which.
// It runs no handlers and reports failures by return values; its owner keeps the state of the
// connection.

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ae/abi.h"
#include "conn/tls/below.h"
#include "conn/tls/context.h"
#include "conn/tls/engine/engine.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class LoopState;

/// The session first takes the connection below TLS and, once that is connected, makes the engine.
/// On closing, the engine is destroyed first, while the connection below may still deliver.
class Session {
 public:
  explicit Session(Below::User* user = nullptr) noexcept : below_(user) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // --- set-up ------------------------------------------------------------------------------------
  /// Takes over the connection below TLS, with its state and its unread bytes, and the context.
  void take(ConnectionPtr below, std::shared_ptr<const Context> context);
  /// Makes the engine; the connection below TLS must be connected. A client checks the peer's
  /// certificate against `peer_name`. Throws Error if the context cannot serve the role.
  void make_engine(Role role, const std::string& peer_name);
  /// Gives the connection below a secret of this TLS session, once the handshake has succeeded.
  /// With this secret the connection below (rdma) can check that a request to continue over a new
  /// path comes from the peer of this session: one who has only observed the network does not know
  /// the secret.
  void give_secret() noexcept;
  bool has_context() const noexcept { return context_ != nullptr; }
  const Settings& settings() const noexcept { return context_->settings(); }
  /// Whether there is a TLS engine. Without one, none of the functions for data may be called.
  bool begun() const noexcept { return engine_ != nullptr; }
  Engine& engine() const noexcept { return *engine_; }
  void drop_engine() noexcept { engine_.reset(); }
  // Lend the engine to a step of the handshake that another thread runs, and take it back. In
  // between this object has no engine.
  std::unique_ptr<Engine> lend_engine() noexcept { return std::move(engine_); }
  void give_back(std::unique_ptr<Engine> engine) noexcept { engine_ = std::move(engine); }
  Below& below() noexcept { return below_; }
  const Below& below() const noexcept { return below_; }

  // --- reading and writing data ------------------------------------------------------------------
  // Encrypt and send data; return the number of bytes taken. Return -1 with errno EAGAIN, or
  // with engine().failed() true.
  ssize_t write(const iovec* vectors, int count, LoopState& shared);
  ssize_t write(const void* buffer, std::size_t size, LoopState& shared);
  /// Whether the connection below TLS has taken everything that was written.
  bool all_sent() const noexcept { return engine_->output().unsent() == 0 && !below_.full(); }
  /// Whether the engine's read() would return something other than EAGAIN, as far as is known.
  bool readable() const {
    return engine_->readable() && engine_->output().unsent() < Engine::kMostUnsent;
  }
  /// To be called only if readable() returned true, which may be a guess. Returns whether it is
  /// right; to find out, reads the connection below TLS if necessary.
  bool ready_to_read();
  bool writable() const { return all_sent() && !engine_->write_needs_read(); }
  /// Whether nothing is left to do but to wait for input, for which events are requested.
  bool is_quiet() const { return below_.is_quiet() && engine_->is_quiet(); }
  /// Whether reading must wait because the peer has not taken enough of our output.
  bool stalled() { return engine_->output().unsent() >= Engine::kMostUnsent && !engine_->flush(); }
  /// Returns the events of the connection below TLS that are needed to read or write, as requested.
  ae::Mask wanted(bool reads, bool writes) const;
  /// Blocks until the stream can be read or written or has failed, like Carrier::wait_for().
  bool wait_for(ae::Mask direction, ae::TimePoint deadline);
  /// Hands all unsent bytes to the connection below TLS; blocks until `until` at most. Returns true
  /// if the engine has none left. May throw std::bad_alloc.
  bool flush(ae::TimePoint until);

  // --- failures ----------------------------------------------------------------------------------
  /// Returns the failure of the connection below TLS; null if that is not why this connection has
  /// failed. Asks the Carrier's why_ended(), since a failed connection below reports its failure
  /// only after earlier input has been read, and nothing reads that input once this connection has
  /// failed.
  const Failure* why_below() const noexcept;
  /// Returns why the engine has failed. `what` begins the text, before the peer's address; it is
  /// "read from " or "write to ".
  Failure why_failed(const char* what) const noexcept;

 private:
  std::shared_ptr<const Context> context_;  // destroyed after the engine, which uses it
  Below below_;  // destroyed after the engine, which sends and receives through it
  std::unique_ptr<Engine> engine_;
};

}}}  // namespace conn::tls
