// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a connection of a program and the connection below a layer have in common: the counters of
// their transport on the loop, the results of reads and writes, and the change of the carrier.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/core/spurious_wakeups.h"
#include "conn/endpoint.h"
#include "conn/spi/carrier.h"

namespace conn { inline namespace AECONN_ABI {

struct LoopCounters;

class AECONN_API ConnectionBase : public CarrierHost {
 public:
  void take_over(CarrierHost& from) noexcept final;
  /// Becomes what `from` was, with its carrier and its id. This host must have no carrier; `from`
  /// has none from now on.
  void become(ConnectionBase& from) noexcept;

  // As those of Connection, by what is known here and by the carrier.
  std::string path_and_origin() const;                                       ///< see path()
  std::vector<std::pair<std::string, std::string>> info_and_origin() const;  ///< see info()

 protected:
  using CarrierHost::CarrierHost;

  /// After take_over(), for both hosts.
  virtual void carrier_changed() noexcept {}
  virtual const Origin* origin() const noexcept = 0;  ///< of set_origin(), or null

  /// Begins to count for the carrier's type. Throws std::bad_alloc.
  void enter_counters(ae::EventLoop& loop);
  void leave_counters() noexcept;
  void count_state(State from) noexcept;  ///< after a change of the state
  void count_close() noexcept;
  /// Bytes that were read or written.
  void count(ae::Mask direction, std::size_t size) noexcept;

  // Call after a read or write of the carrier; finish_write() returns `n`.
  void finish_read(ssize_t n) noexcept;
  ssize_t finish_write(ssize_t n, std::size_t asked) noexcept;
  void refused_write() noexcept;  ///< a write failed with EAGAIN

  /// As Carrier::connect_blocking(); fails if the time is over. False with errno.
  bool wait_to_connect(const Endpoint& to, ae::TimePoint deadline);

  /// Calls `handler`, and notices whether it was called in vain.
  template <class Run>
  void run_watched(bool reads, Run&& handler) {
    const std::uint64_t before = reads ? bytes_read_ : bytes_written_;
    vain_.begin();
    handler();
    if (vain_.worth_a_look()) [[unlikely]]
      look_at_run(reads, before);
  }

  LoopCounters* counters_ =
      nullptr;             // the loop's set; null between two loops, and after the loop has ended
  ae::TimePoint began_{};  // time at which connecting or accepting began
  std::uint64_t bytes_read_ = 0, bytes_written_ = 0;
  SpuriousWakeups vain_;

 private:
  void look_at_run(bool reads, std::uint64_t before) noexcept;
};

}}  // namespace conn
