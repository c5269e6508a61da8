// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// SetupTrace: measures the steps of a connection's set-up, for diagnosis (aeconn-doctor,
// docs/doctor.md).

#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI {

/// While an instance exists, it records the set-up steps of connections made on its thread. Use it
/// for one connection at a time, preferably with Connection::connect_blocking(). If a thread has
/// several instances, the most recent one records. Other threads have no extra cost.
class AECONN_API SetupTrace {
 public:
  /// One step of the set-up. Each address that is tried has its own steps.
  struct Step {
    std::string_view name;  ///< "connect", "resolve address", "TLS handshake"; a string literal
    ae::Duration took{};    ///< how long it took; if it is not done, the time so far
    bool done = false;      ///< false: the set-up ended or was abandoned in this step
  };

  SetupTrace();
  ~SetupTrace();
  SetupTrace(const SetupTrace&) = delete;
  SetupTrace& operator=(const SetupTrace&) = delete;

  /// The steps so far, in the order of their start.
  const std::vector<Step>& steps() const noexcept { return steps_; }

  // --- for transports: no effect if this thread has no trace ---
  /// Completes the previous step and starts a new one. `name` must be a string literal.
  static void begin(std::string_view name);
  static void end() noexcept;     ///< completes the current step
  static void failed() noexcept;  ///< ends the current step as not done; its duration is kept
 private:
  void close(bool done) noexcept;

  SetupTrace* outer_;
  std::vector<Step> steps_;
  ae::TimePoint began_{};
  bool open_ = false;
};

}}  // namespace conn
