// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How long the steps of a connection's set-up take: for diagnosis (aeconn-doctor, docs/doctor.md).

#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI {

/// While it exists, the steps of connections that its thread makes are kept here: for one
/// connection at a time, best by Connection::connect_blocking(). Of several on a thread the last
/// one made has them. Costs others nothing.
class AECONN_API SetupTrace {
 public:
  /// One step, in the order in which they began; an address that failed and the next one have their
  /// own.
  struct Step {
    std::string_view name;  ///< "connect", "resolve address", "TLS handshake"; a literal
    ae::Duration took{};    ///< so far, where it is not done
    bool done = false;      ///< false: set-up ended or was given up in it
  };

  SetupTrace();
  ~SetupTrace();
  SetupTrace(const SetupTrace&) = delete;
  SetupTrace& operator=(const SetupTrace&) = delete;

  const std::vector<Step>& steps() const noexcept { return steps_; }  ///< so far

  // --- for transports: nothing happens where this thread has no trace ---
  /// The step before is done, and this one begins. `name` is a literal.
  static void begin(std::string_view name);
  static void end() noexcept;     ///< the last step is done
  static void failed() noexcept;  ///< it has failed: its time stands
 private:
  void close(bool done) noexcept;

  SetupTrace* outer_;
  std::vector<Step> steps_;
  ae::TimePoint began_{};
  bool open_ = false;
};

}}  // namespace conn
