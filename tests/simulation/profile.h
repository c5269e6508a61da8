// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What one kind of RDMA device claims, can, and does: one row of profile.cc for each, read in its
// driver. A profile belongs to a device, so devices of two kinds meet in one world.

#include <cerrno>
#include <cstdint>
#include <string_view>
#include <vector>

namespace simulation {

/// How the depth of a queue is rounded up from what was asked for.
enum class Rounding : std::uint8_t { kNone, kPower, kPowerLessOne };

/// What ibv_create_qp() makes of a wish for inline data that is not too much.
enum class InlineGrant : std::uint8_t {
  kAsAsked,
  kPieces,   ///< the room of the scatter list, 16 bytes at least
  kRequest,  ///< requests are whole 64 bytes, the rest is room
  kFixed,    ///< the most there is, if any was asked for
  kAlways,   ///< the most there is
  kPower     ///< a power of two
};

/// What it does with a wish for more than there is.
enum class TooMuchInline : std::uint8_t {
  kRefused,        ///< EINVAL
  kRefusedMutely,  ///< null, and errno is whatever it was
  kLess            ///< gives what there is
};

enum class Resizing : std::uint8_t {
  kNone,
  kWorks,
  kFreesRing  ///< where the kernel refuses, the ring in use is freed
};

/// Entries of a queue pair that are in a completion queue when it is destroyed.
enum class Leftovers : std::uint8_t {
  kStay,
  kDropped,          ///< with those of a shared queue, whose slots are free then
  kDroppedWithSlot,  ///< and the slots of a shared queue are never free again
  kDroppedByNumber,  ///< when they are polled, unless a new queue pair has the number
  kDangling          ///< dropped, but not those of a shared queue: polled, they are memory freed
};

/// What ibv_post_send() does before the queue pair may send.
enum class TooEarly : std::uint8_t {
  kTaken,  ///< keeps it until then
  kRefused,
  kTakenAndRefused  ///< says EINVAL, names no request, and keeps it all the same
};

struct Profile {
  const char* name;
  const char* read_in;  ///< files of rdma-core's providers/, and of the kernel's drivers/infiniband
  std::uint32_t vendor_id, part_id = 0;
  int since = 36;  ///< the first rdma-core whose provider serves it; the library claims none before

  // --- transport and connection set-up ---
  bool reliable = true;   ///< has queue pairs of type RC
  bool immediate = true;  ///< WRITE WITH IMMEDIATE
  bool iwarp = false;     ///< rdma_cm's order of events is iWARP's
  /// Over a byte stream: a request completes when the stream has it, a message without a receive
  /// ends the connection, and so does IBV_QPS_ERR with what is under way.
  bool stream = false;
  int rtr_when_connected = 0;  ///< what modifying to RTR says then
  int qp_numbers = 1024;       ///< how many there are before they come round
  int max_qp = 0;              ///< so many queue pairs at once; 0: as many as there are numbers

  // --- paths ---
  std::uint32_t ece = 0;  ///< bits of enhanced connection establishment
  std::uint8_t most_service_level = 15;
  // What ibv_query_qp() tells:
  bool tells_way = true;            ///< the address vector
  bool tells_service_level = true;  ///< with its service level

  // --- keys ---
  bool claims_windows = false;       ///< type 2B, in device_cap_flags
  bool allocates_windows = false;    ///< ibv_alloc_mw
  bool binds_windows = false;        ///< IBV_WR_BIND_MW, IBV_WR_LOCAL_INV
  bool binds_parts = true;           ///< false: a window's key reaches all of its region
  bool key_changes_at_post = false;  ///< ibv_mw::rkey, also where the post is refused
  int bind_status = 0;  ///< ibv_wc_status that every bind ends with when it is carried out

  // --- queues ---
  int max_qp_wr = 4096, max_srq_wr = 8192, max_cqe = 65535;
  int max_sge = 1;   ///< pieces of a request: ibv_device_attr's, the lesser of sends and receives
  int most_sge = 0;  ///< what a queue pair may be asked for, where that is another number
  bool shared_receives = true;
  Rounding queue_depth = Rounding::kNone, cq_depth = Rounding::kNone;
  bool deferred_doorbell = false;  ///< twice the entries are reported, half of them are usable
  Resizing resizing = Resizing::kWorks;
  int vectors = 8;
  bool honours_vector = true;
  int wrong_vector = EINVAL;

  // --- inline data ---
  std::uint32_t max_inline = 0;
  InlineGrant inline_grant = InlineGrant::kAsAsked;
  TooMuchInline too_much_inline = TooMuchInline::kRefused;

  // --- what the calls of the fast path return ---
  int full = ENOMEM, bad_opcode = EINVAL, inline_too_long = EINVAL;
  int full_receives = ENOMEM;
  bool full_shared_names_bad = true;  ///< sets *bad_wr when the shared queue is full
  int in_error = 0;                   ///< of posts then; 0: taken, and flushed
  bool error_by_state = false;        ///< goes by ibv_qp::state, not by what happened
  TooEarly too_early = TooEarly::kTaken;
  bool room_before_opcode = false;    ///< which of the two is looked at first
  bool forgets_refusals = false;      ///< returns 0 if a chain's first part was taken
  bool looks_at_first_piece = false;  ///< of a chain of two that begins with a write
  // Mended meanwhile:
  bool inlines_first_piece = false;    ///< of several: those after it are not copied
  bool inline_pieces_overrun = false;  ///< several are copied beyond their room
  bool length_of_one_before = false;   ///< a request without pieces has that, in a chain
  bool immediate_is_plain = false;     ///< its receive has IBV_WC_RECV, and the flag
  bool arms_at_poll = false;           ///< ibv_req_notify_cq() takes effect with the next poll

  // --- the end, and events ---
  Leftovers leftovers = Leftovers::kStay;
  bool flush_keeps_receive = false;  ///< one under way is flushed without a completion
  bool last_wqe_reached = true;
  bool port_events = true;     ///< tells when the carrier comes and goes
  bool address_events = true;  ///< GID_CHANGE
  /// What a queue pair reports when its peer does what it may not; 0: nothing of its own.
  int refusal_event = 0;
  std::uint8_t ack_delay = 0;      ///< local_ca_ack_delay
  bool seven_is_for_ever = false;  ///< retry_cnt

  // --- mappings that the provider makes in the process ---
  int mappings_qp = 0, mappings_own_receives = 0, mappings_cq = 0, mappings_srq = 0;

  /// Can connections of ours be made on it?
  bool serves() const noexcept { return reliable && immediate; }
  int takes_sge() const noexcept { return most_sge != 0 ? most_sge : max_sge; }
  bool bound_keys() const noexcept { return claims_windows && allocates_windows && binds_windows; }
};

/// With today's providers.
const std::vector<Profile>& all_profiles();
std::vector<const Profile*> serving_profiles();
/// The same device with the provider of that rdma-core, "hns@39".
Profile of_age(const Profile& today, int rdma_core);
/// All that can serve, and each again for every rdma-core before a change of its provider that a
/// caller can see, the oldest first.
std::vector<const Profile*> serving_profiles_of_all_ages();
/// "hns", or "hns@39". Throws std::invalid_argument.
const Profile& profile_named(std::string_view name);
/// Those that an environment variable names ("mlx5,bnxt_re"); without it all that can serve.
std::vector<const Profile*> profiles_from(const char* variable);
/// AECONN_PROFILE's, or rxe: what devices have unless told.
const Profile& chosen_profile();

}  // namespace simulation
