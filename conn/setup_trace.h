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
  /// One step of a connection's set-up. Each address that is tried has its own steps.
  struct Step {
    /// Name of the step: "connect", "resolve address", "TLS handshake"; a string literal.
    std::string_view name;
    ae::Duration took{};  ///< duration of the step, set when the step is completed or has failed
    /// True if the step was completed; false: the set-up failed, or was abandoned, during it.
    bool done = false;
  };

  SetupTrace();
  ~SetupTrace();
  SetupTrace(const SetupTrace&) = delete;
  SetupTrace& operator=(const SetupTrace&) = delete;

  /// The steps recorded so far, in the order in which they began.
  const std::vector<Step>& steps() const noexcept { return steps_; }

  // --- for transports: no effect if this thread has no SetupTrace --------------------------------
  /// Completes the previous step and starts a new one. `name` must be a string literal.
  static void begin(std::string_view name);
  static void end() noexcept;  ///< records that the step which begin() started is completed
  /// Ends the current step as not completed, and keeps its duration.
  static void failed() noexcept;

 private:
  void close(bool done) noexcept;

  SetupTrace* outer_;
  std::vector<Step> steps_;
  ae::TimePoint began_{};
  bool open_ = false;
};

}}  // namespace conn
