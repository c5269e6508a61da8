// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a device was asked to do, counted exactly: on hardware these are what a program pays for.

#include <cstdint>
#include <map>
#include <string>

namespace simulation {

struct Costs {
  /// Firmware commands and system calls, by the name of the call: create, modify, register,
  /// deregister, allocate, destroy, query. Those of rdma_cm are among them.
  std::map<std::string, std::int64_t> slow;

  // --- the fast path ---
  std::int64_t doorbells = 0;          ///< calls that posted something
  std::int64_t requests = 0;           ///< work requests that were sent
  std::int64_t not_inline = 0;         ///< those whose bytes the device has to fetch
  std::int64_t polls = 0;              ///< ibv_poll_cq
  std::int64_t notifications = 0;      ///< ibv_req_notify_cq
  std::int64_t completion_events = 0;  ///< raised on completion channels

  // --- what stands; a difference of two may be negative ---
  std::int64_t registrations = 0;
  std::int64_t keys = 0;  ///< of registrations and of windows
  /// A page table's entries: 4 KiB each, or 2 MiB where all of a registration lies on huge pages.
  std::int64_t translation_entries = 0;
  std::int64_t pinned = 0;  ///< bytes
  std::int64_t queue_pairs = 0, completion_queues = 0, shared_queues = 0;
  /// What the provider maps for the queues that stand. Simulated queues are not mapped.
  std::int64_t provider_mappings = 0;

  std::int64_t most_pinned = 0;  ///< bytes at once so far; of a difference: the later one's

  std::int64_t slow_calls() const;  ///< of verbs
  std::int64_t rdma_cm_calls() const;
  Costs operator-(const Costs& before) const;
  /// "create_qp 1, modify_qp 3, ..."
  std::string slow_text() const;
  std::string text() const;
};

/// Mappings of this process: lines of /proc/self/maps.
std::int64_t process_mappings();

/// 2 MiB if all of [address, address + size) was advised to be huge pages, or is such: as much as
/// one translation entry covers then.
std::size_t page_size_of(const void* address, std::size_t size) noexcept;

}  // namespace simulation
