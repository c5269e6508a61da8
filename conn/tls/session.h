// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// An engine over a connection below: together they are a byte stream. Either direction of the
// stream may need either direction of the connection below; this class knows which. It runs no
// handlers and reports failures by return values; its owner keeps the state of the connection.

#include <memory>
#include <optional>
#include <string>

#include "ae/abi.h"
#include "conn/tls/below.h"
#include "conn/tls/context.h"
#include "conn/tls/engine/engine.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class LoopState;

/// The connection below comes first, then, once that is connected, the engine. Closing drops the
/// engine first, while the connection below may still deliver.
class Session {
 public:
  explicit Session(Below::User* user = nullptr) noexcept : below_(user) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // --- set-up ------------------------------------------------------------------------------------
  /// As Below::take().
  void take(ConnectionPtr below, std::shared_ptr<const Context> context);
  /// The connection below is connected. A client checks the peer's certificate against `peer_name`.
  /// Throws Error if the context cannot serve the role.
  void make_engine(Role role, const std::string& peer_name);
  bool has_context() const noexcept { return context_ != nullptr; }
  const Settings& settings() const noexcept { return context_->settings(); }
  /// Whether there is an engine: if not, none of the functions for data may be called.
  bool begun() const noexcept { return engine_ != nullptr; }
  Engine& engine() const noexcept { return *engine_; }
  void drop_engine() noexcept { engine_.reset(); }
  Below& below() noexcept { return below_; }
  const Below& below() const noexcept { return below_; }

  // --- data --------------------------------------------------------------------------------------
  /// As writev(2): -1 with EAGAIN, or with engine().failed() true.
  ssize_t write(const iovec* vectors, int count, LoopState& shared);
  /// Whether nothing that was written waits for the connection below.
  bool all_sent() const noexcept { return engine_->unsent() == 0 && !below_.full(); }
  /// Whether the engine's read() would not fail with EAGAIN, as far as is known.
  bool readable() const { return engine_->readable() && engine_->unsent() < Engine::kMostUnsent; }
  /// Asks the wire if readable() is not certain: it may hold data that no event announces.
  bool ready_to_read();
  bool writable() const { return all_sent() && !engine_->write_needs_read(); }
  /// Whether reading must wait until the peer has taken more of our output.
  bool stalled() { return engine_->unsent() >= Engine::kMostUnsent && !engine_->flush(); }
  /// Which events of the connection below the stream needs.
  ae::Mask wanted(bool reads, bool writes) const;
  /// As Carrier::wait_for().
  bool wait_for(ae::Mask direction, ae::TimePoint deadline);
  /// Hands all output to the connection below, waiting until `until` at the latest. True if none is
  /// left here. May throw std::bad_alloc.
  bool flush(ae::TimePoint until);

  // --- failures ----------------------------------------------------------------------------------
  /// The failure of the layer below; empty if it did not cause the end. Uses why_ended(): a failed
  /// connection below reports its failure only after earlier input has been read, and once this
  /// connection has failed nothing reads it.
  const Failure& why_below() const noexcept;
  /// Why the engine has failed. `what` is how the sentence begins: "read from " and the peer.
  Failure why_failed(const char* what) const noexcept;

 private:
  std::shared_ptr<const Context> context_;  // must outlive the engine
  Below below_;                             // as context_
  std::unique_ptr<Engine> engine_;
};

}}}  // namespace conn::tls
