// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Measures the steps of a connection's set-up, for diagnosis (aeconn-doctor, docs/doctor.md).

#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI {

/// While it exists, it records the set-up steps of connections made on its thread. Use it for one
/// connection at a time, preferably with Connection::connect_blocking(). If a thread has several,
/// the most recent one records. It costs other threads nothing.
class AECONN_API SetupTrace {
 public:
  /// One step, in the order of their start; each address tried has its own steps.
  struct Step {
    std::string_view name;  ///< "connect", "resolve address", "TLS handshake"; a literal
    ae::Duration took{};    ///< time so far if not done
    bool done = false;      ///< false: set-up ended or was abandoned in this step
  };

  SetupTrace();
  ~SetupTrace();
  SetupTrace(const SetupTrace&) = delete;
  SetupTrace& operator=(const SetupTrace&) = delete;

  const std::vector<Step>& steps() const noexcept { return steps_; }  ///< recorded so far

  // --- for transports: no effect if this thread has no trace ---
  /// Completes the step before, and starts this one. `name` is a literal.
  static void begin(std::string_view name);
  static void end() noexcept;     ///< completes the last step
  static void failed() noexcept;  ///< the last step has failed; its duration is kept
 private:
  void close(bool done) noexcept;

  SetupTrace* outer_;
  std::vector<Step> steps_;
  ae::TimePoint began_{};
  bool open_ = false;
};

}}  // namespace conn
