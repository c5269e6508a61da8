// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ConnectionBase: the parts that a program's connection and the connection below a layer (such as
// TLS) have in common: the counters of their transport on the loop, the results of reads and
// writes, and the exchange of the Carrier, which moves the bytes.

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
  /// Takes over everything from `from`: its state, Carrier, id and counters. This host must have no
  /// Carrier; `from` has none from now on.
  void become(ConnectionBase& from) noexcept;

  /// Returns the result of ConnectionFacts::path(): the path that the Carrier reports, followed by
  /// the text of the connection's origin().
  std::string path_and_origin() const;
  /// Returns the result of ConnectionFacts::info(): the facts of the connection's origin(),
  /// followed by the details that the Carrier reports.
  std::vector<std::pair<std::string, std::string>> info_and_origin() const;

 protected:
  using CarrierHost::CarrierHost;

  /// Called by take_over() on both hosts, after they have exchanged their Carriers; an override
  /// adapts what depends on the Carrier.
  virtual void carrier_changed() noexcept {}
  /// Returns the Origin that set_origin() stored; null: it was not called.
  virtual const Origin* origin() const noexcept = 0;

  /// Begins to count this connection in the counters of its Carrier's type on `loop`. Throws
  /// std::bad_alloc.
  void enter_counters(ae::EventLoop& loop);
  void leave_counters() noexcept;
  /// Updates the counters after the state has changed from `from`.
  void count_state(State from) noexcept;
  void count_close() noexcept;
  // The functions declared inline are defined in conn/core/counting.h. count_read() and
  // count_written() add `size` bytes to the counters.
  inline void count_read(std::size_t size) noexcept;
  inline void count_written(std::size_t size) noexcept;

  // finish_read() and finish_write() record the result `n` of a read or write of the Carrier: how
  // many bytes it moved, and whether the program has learned of the end or of a failure. They
  // return `n`.
  inline ssize_t finish_read(ssize_t n) noexcept;
  inline ssize_t finish_write(ssize_t n, std::size_t asked) noexcept;
  void refused_write() noexcept;  ///< counts a write that has failed with EAGAIN

  /// Connects like Carrier::connect_blocking(), and fails the connection if the deadline passes.
  /// Returns false with errno if the connection was not established.
  bool wait_to_connect(const Endpoint& to, ae::TimePoint deadline);

  /// Calls a read handler (`reads` is true) or a write handler, and records whether it ran in vain,
  /// without reading or writing anything.
  template <class Run>
  [[gnu::always_inline]] void run_watched(bool reads, Run&& handler) {
    const std::uint64_t before = reads ? bytes_read_ : bytes_written_;
    vain_.begin();
    handler();
    if (vain_.worth_a_look()) [[unlikely]]
      look_at_run(reads, before);
  }

  // The loop's counters for the Carrier's type; null while the connection moves from one loop to
  // another, and after the loop has ended.
  LoopCounters* counters_ = nullptr;
  // Time at which this side began to connect, or to set up an accepted connection.
  ae::TimePoint began_{};
  std::uint64_t bytes_read_ = 0, bytes_written_ = 0;
  SpuriousWakeups vain_;

 private:
  ssize_t read_nothing(ssize_t n) noexcept;
  ssize_t wrote_less(ssize_t n) noexcept;
  void look_at_run(bool reads, std::uint64_t before) noexcept;
};

}}  // namespace conn
