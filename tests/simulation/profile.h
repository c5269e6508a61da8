// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What one kind of RDMA device claims, can do, and does: one row of profile.cc per kind, read from
// its driver. A profile belongs to a device, so devices of two kinds can meet in one world.

#include <cerrno>
#include <cstdint>
#include <string_view>
#include <vector>

namespace simulation {

/// How the depth of a queue is rounded up from what was asked for.
enum class Rounding : std::uint8_t { kNone, kPower, kPowerLessOne };

/// The inline size that ibv_create_qp() grants for a wish within the limit.
enum class InlineGrant : std::uint8_t {
  kAsAsked,
  kPieces,   ///< the size of the scatter list, at least 16 bytes
  kRequest,  ///< the rest of a request's units of 64 bytes
  kFixed,    ///< the limit, if any was asked for
  kAlways,   ///< the limit
  kPower     ///< a power of two
};

/// What ibv_create_qp() does with a wish beyond the limit.
enum class TooMuchInline : std::uint8_t {
  kRefused,        ///< EINVAL
  kRefusedMutely,  ///< returns null and leaves errno unset
  kLess            ///< grants the limit
};

enum class Resizing : std::uint8_t {
  kNone,
  kWorks,
  kFreesRing  ///< when the kernel refuses, frees the ring in use
};

/// What happens to entries of a queue pair in a completion queue when it is destroyed.
enum class Leftovers : std::uint8_t {
  kStay,
  kDropped,          ///< also those of a shared receive queue; its slots are freed
  kDroppedWithSlot,  ///< the same, but the slots of a shared queue are never freed
  kDroppedByNumber,  ///< when polled, unless a new queue pair has the same number
  kDangling          ///< dropped, except those of a shared queue: polling reads freed memory
};

/// What ibv_post_send() does before the queue pair is in RTS.
enum class TooEarly : std::uint8_t {
  kTaken,  ///< keeps the request until then
  kRefused,
  kTakenAndRefused  ///< returns EINVAL with *bad_wr unset, and keeps the request
};

struct Profile {
  const char* name;
  const char* read_in;  ///< files of rdma-core's providers/, and of the kernel's drivers/infiniband
  std::uint32_t vendor_id, part_id = 0;
  int since = 36;  ///< first supported version of rdma-core; claimed by the library from there on

  // --- transport and connection set-up ---
  bool reliable = true;   ///< supports queue pairs of type RC
  bool immediate = true;  ///< supports WRITE WITH IMMEDIATE
  bool iwarp = false;     ///< rdma_cm's order of events is iWARP's
  /// Over a byte stream: a request completes when the stream has taken it; a message without a
  /// receive ends the connection, and so does IBV_QPS_ERR, even with requests pending.
  bool stream = false;
  int rtr_when_connected = 0;  ///< result of modifying to RTR when connected
  int qp_numbers = 1024;       ///< how many numbers exist before they are reused
  int max_qp = 0;              ///< most queue pairs at once; 0: as many as there are numbers

  // --- paths ---
  std::uint32_t ece = 0;  ///< bits of enhanced connection establishment
  std::uint8_t most_service_level = 15;
  // What ibv_query_qp() reports:
  bool tells_way = true;            ///< the address vector
  bool tells_service_level = true;  ///< and its service level

  // --- keys ---
  bool claims_windows = false;       ///< type 2B, in device_cap_flags
  bool allocates_windows = false;    ///< ibv_alloc_mw
  bool binds_windows = false;        ///< IBV_WR_BIND_MW, IBV_WR_LOCAL_INV
  bool binds_parts = true;           ///< false: a window's key grants access to its whole region
  bool key_changes_at_post = false;  ///< ibv_mw::rkey changes at the post, even if that is refused
  int bind_status = 0;               ///< ibv_wc_status that each bind completes with

  // --- queues ---
  int max_qp_wr = 4096, max_srq_wr = 8192, max_cqe = 65535;
  int max_sge = 1;   ///< pieces of a request: ibv_device_attr's, the lesser of sends and receives
  int most_sge = 0;  ///< what a queue pair accepts, where that is another number
  bool shared_receives = true;
  Rounding queue_depth = Rounding::kNone, cq_depth = Rounding::kNone;
  bool deferred_doorbell = false;  ///< reports twice the entries, of which half are usable
  Resizing resizing = Resizing::kWorks;
  int vectors = 8;
  bool honours_vector = true;
  int wrong_vector = EINVAL;

  // --- inline data ---
  std::uint32_t max_inline = 0;
  InlineGrant inline_grant = InlineGrant::kAsAsked;
  TooMuchInline too_much_inline = TooMuchInline::kRefused;

  // --- results of the calls of the fast path -----------------------------------------------------
  int full = ENOMEM, bad_opcode = EINVAL, inline_too_long = EINVAL;
  int full_receives = ENOMEM;
  bool full_shared_names_bad = true;  ///< sets *bad_wr when the shared queue is full
  int in_error = 0;                   ///< result of posts in ERR; 0: taken, and flushed
  bool error_by_state = false;        ///< looks at ibv_qp::state, not at the actual state
  TooEarly too_early = TooEarly::kTaken;
  bool room_before_opcode = false;    ///< checks for a full queue before the opcode
  bool forgets_refusals = false;      ///< returns 0 if the first part of a chain was taken
  bool looks_at_first_piece = false;  ///< of a chain of two that begins with a write
  // Driver bugs that have been fixed since:
  bool inlines_first_piece = false;    ///< of several pieces, the first only
  bool inline_pieces_overrun = false;  ///< several pieces are copied beyond the buffer
  bool length_of_one_before = false;   ///< without pieces in a chain: the previous length
  bool immediate_is_plain = false;     ///< its receive completes with IBV_WC_RECV and the flag
  bool arms_at_poll = false;           ///< ibv_req_notify_cq() takes effect with the next poll

  // --- the end, and events ---
  Leftovers leftovers = Leftovers::kStay;
  bool flush_keeps_receive = false;  ///< a receive in progress is flushed without a completion
  bool last_wqe_reached = true;
  bool port_events = true;     ///< reports link up and down
  bool address_events = true;  ///< GID_CHANGE
  /// Asynchronous event of a queue pair whose peer makes a forbidden access; 0: none.
  int refusal_event = 0;
  std::uint8_t ack_delay = 0;      ///< local_ca_ack_delay
  bool seven_is_for_ever = false;  ///< retry_cnt of 7 retries without end

  // --- mappings that the provider makes in the process ---
  int mappings_qp = 0, mappings_own_receives = 0, mappings_cq = 0, mappings_srq = 0;

  /// Whether this library's connections can be made on it.
  bool serves() const noexcept { return reliable && immediate; }
  int takes_sge() const noexcept { return most_sge != 0 ? most_sge : max_sge; }
  bool bound_keys() const noexcept { return claims_windows && allocates_windows && binds_windows; }
};

/// All profiles, with today's providers.
const std::vector<Profile>& all_profiles();
std::vector<const Profile*> serving_profiles();
/// The same device with the provider of that version of rdma-core, named e.g. "hns@39".
Profile of_age(const Profile& today, int rdma_core);
/// All profiles that can serve, each also with the provider of each rdma-core before a change that
/// a caller can see, oldest first.
std::vector<const Profile*> serving_profiles_of_all_ages();
/// "hns", or "hns@39". Throws std::invalid_argument.
const Profile& profile_named(std::string_view name);
/// The profiles named by an environment variable ("mlx5,bnxt_re"); if it is not set, all that can
/// serve.
std::vector<const Profile*> profiles_from(const char* variable);
/// The profile that AECONN_PROFILE names, or rxe: the default of add_device().
const Profile& chosen_profile();

}  // namespace simulation
