// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a device was asked to do, counted exactly: on hardware, a program pays for these.

#include <cstdint>
#include <map>
#include <string>

namespace simulation {

struct Costs {
  /// Firmware commands and system calls, by the name of the call: create, modify, register,
  /// deregister, allocate, destroy, query. Includes the calls of rdma_cm.
  std::map<std::string, std::int64_t> slow;

  // --- the fast path ---
  std::int64_t doorbells = 0;          ///< calls that posted at least one request
  std::int64_t requests = 0;           ///< work requests that were sent
  std::int64_t not_inline = 0;         ///< requests whose bytes the device has to fetch
  std::int64_t polls = 0;              ///< ibv_poll_cq
  std::int64_t notifications = 0;      ///< ibv_req_notify_cq
  std::int64_t completion_events = 0;  ///< events raised on completion channels

  // --- existing objects; a difference may be negative --------------------------------------------
  std::int64_t registrations = 0;
  std::int64_t keys = 0;  ///< of registrations and of windows
  /// Entries of the device's page table: one per 4 KiB, or per 2 MiB where the whole registration
  /// lies on huge pages.
  std::int64_t translation_entries = 0;
  std::int64_t pinned = 0;  ///< bytes
  std::int64_t queue_pairs = 0, completion_queues = 0, shared_queues = 0;
  /// Mappings that the provider makes for the existing queues. (Simulated queues are not mapped.)
  std::int64_t provider_mappings = 0;

  std::int64_t most_pinned = 0;  ///< highest number at once; in a difference, the minuend's

  std::int64_t slow_calls() const;  ///< of verbs only
  std::int64_t rdma_cm_calls() const;
  Costs operator-(const Costs& before) const;
  /// "create_qp 1, modify_qp 3, ..."
  std::string slow_text() const;
  std::string text() const;
};

/// Mappings of this process: the number of lines of /proc/self/maps.
std::int64_t process_mappings();

/// 2 MiB if all of [address, address + size) lies on huge pages or was advised to; otherwise 4 KiB.
/// One translation entry covers that much.
std::size_t page_size_of(const void* address, std::size_t size) noexcept;

}  // namespace simulation
