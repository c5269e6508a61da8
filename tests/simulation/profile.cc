// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/profile.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>

#include "conn/rdma/device/functions.h"

namespace simulation {
namespace {

// Where firmware determines a driver's figure, it is a typical value.
std::vector<Profile> make_profiles() {
  std::vector<Profile> all;
  all.push_back({.name = "rxe",
                 .read_in =
                     "rxe/rxe.c, sw/rxe/rxe_param.h, rxe_qp.c, rxe_mw.c, rxe_resp.c, rxe_comp.c, "
                     "rxe_cq.c, rxe_net.c",
                 .vendor_id = 0xffffff,
                 .qp_numbers = 131056,
                 .tells_service_level = false,
                 .claims_windows = true,
                 .allocates_windows = true,
                 .binds_windows = true,
                 .binds_parts = false,
                 .max_qp_wr = 1 << 20,
                 .max_srq_wr = 1 << 20,
                 .max_cqe = 32767,
                 .max_sge = 32,
                 .queue_depth = Rounding::kPowerLessOne,
                 .cq_depth = Rounding::kPowerLessOne,
                 .honours_vector = false,
                 .max_inline = 512,
                 .inline_grant = InlineGrant::kPieces,
                 .too_early = TooEarly::kTakenAndRefused,
                 .ack_delay = 15,
                 .seven_is_for_ever = true,
                 .mappings_qp = 1,
                 .mappings_own_receives = 1,
                 .mappings_cq = 1,
                 .mappings_srq = 1});
  all.push_back({.name = "mlx5",
                 .read_in = "mlx5/verbs.c, qp.c, cq.c, srq.c, hw/mlx5/main.c, qp.c",
                 .vendor_id = 0x02c9,
                 .part_id = 4125,
                 .ece = 0x10000001,
                 .claims_windows = true,
                 .allocates_windows = true,
                 .binds_windows = true,
                 .max_qp_wr = 8192,
                 .max_srq_wr = 32767,
                 .max_cqe = (1 << 22) - 1,
                 .max_sge = 30,
                 .cq_depth = Rounding::kPowerLessOne,
                 .vectors = 16,
                 .max_inline = 828,
                 .inline_grant = InlineGrant::kRequest,
                 .inline_too_long = ENOMEM,
                 .leftovers = Leftovers::kDropped,
                 .ack_delay = 16});
  all.push_back({.name = "bnxt_re",
                 .read_in = "bnxt_re/verbs.c, main.c, memory.c, hw/bnxt_re/ib_verbs.c, main.c",
                 .vendor_id = 0x14e4,
                 .part_id = 0x1750,
                 .claims_windows = true,
                 .max_qp_wr = 8191,
                 .max_srq_wr = 8191,
                 .max_cqe = 131071,
                 .max_sge = 6,
                 .queue_depth = Rounding::kPowerLessOne,
                 .cq_depth = Rounding::kPowerLessOne,
                 .deferred_doorbell = true,
                 .resizing = Resizing::kFreesRing,
                 .honours_vector = false,
                 .max_inline = 96,
                 .inline_grant = InlineGrant::kFixed,
                 .too_much_inline = TooMuchInline::kRefusedMutely,
                 .bad_opcode = -EINVAL,
                 .inline_too_long = ENOMEM,
                 .room_before_opcode = true,
                 .leftovers = Leftovers::kDroppedWithSlot,
                 .flush_keeps_receive = true,
                 .ack_delay = 16,
                 .mappings_qp = 1,
                 .mappings_cq = 2,
                 .mappings_srq = 2});
  all.push_back({.name = "irdma-e810",
                 .read_in = "irdma/uverbs.c, uk.c, umain.c, hw/irdma/verbs.c, utils.c, defs.h",
                 .vendor_id = 0x8086,
                 .part_id = 0x1592,
                 .since = 38,
                 .tells_way = false,
                 .allocates_windows = true,
                 .binds_windows = true,
                 .key_changes_at_post = true,
                 .max_qp_wr = 4063,
                 .max_srq_wr = 0,
                 .max_cqe = 1048574,
                 .max_sge = 13,
                 .shared_receives = false,
                 .vectors = 16,
                 .max_inline = 101,
                 .leftovers = Leftovers::kDropped,
                 .last_wqe_reached = false,
                 .port_events = false});
  all.push_back({.name = "irdma-gen3",
                 .read_in = "irdma/uverbs.c, uk.c, umain.c; irdma_query_device for IRDMA_GEN_3",
                 .vendor_id = 0x8086,
                 .part_id = 0x1452,
                 .since = 64,
                 .tells_way = false,
                 .claims_windows = true,
                 .allocates_windows = true,
                 .binds_windows = true,
                 .key_changes_at_post = true,
                 .max_qp_wr = 4063,
                 .max_srq_wr = 32767,
                 .max_cqe = 1048574,
                 .max_sge = 14,
                 .vectors = 16,
                 .max_inline = 101,
                 .leftovers = Leftovers::kDangling,
                 .port_events = false});
  all.push_back({.name = "erdma",
                 .read_in = "erdma/erdma_verbs.c, hw/erdma/erdma_verbs.c, erdma_cm.c, erdma_eq.c, "
                            "erdma_main.c",
                 .vendor_id = 0x1ded,
                 .part_id = 0x107f,
                 .since = 43,
                 .iwarp = true,
                 .max_qp_wr = 8192,
                 .max_srq_wr = 0,
                 .max_cqe = 1 << 20,
                 .shared_receives = false,
                 .cq_depth = Rounding::kPower,
                 .resizing = Resizing::kNone,
                 .wrong_vector = EIO,
                 .max_inline = 96,
                 .full = -ENOMEM,
                 .bad_opcode = -EINVAL,
                 .inline_too_long = -EINVAL,
                 .full_receives = -ENOMEM,
                 .in_error = -EIO,
                 .error_by_state = true,
                 .room_before_opcode = true,
                 .leftovers = Leftovers::kDroppedByNumber,
                 .last_wqe_reached = false,
                 .port_events = false,
                 .address_events = false,
                 .refusal_event = IBV_EVENT_QP_FATAL,
                 .mappings_cq = 1});
  // Older kernels claim memory windows; the provider has had none since rdma-core 61.
  all.push_back({.name = "hns",
                 .read_in = "hns/hns_roce_u_hw_v2.c, hns_roce_u_verbs.c, hw/hns/hns_roce_main.c",
                 .vendor_id = 0x19e5,
                 .part_id = 0xa222,
                 .most_service_level = 7,
                 .claims_windows = true,
                 .max_qp_wr = 32768,
                 .max_srq_wr = 32768,
                 .max_cqe = 4194304,
                 .max_sge = 64,
                 .queue_depth = Rounding::kPower,
                 .cq_depth = Rounding::kPower,
                 .resizing = Resizing::kNone,
                 .max_inline = 32,
                 .inline_grant = InlineGrant::kPower,
                 .too_much_inline = TooMuchInline::kLess,
                 .too_early = TooEarly::kRefused,
                 .room_before_opcode = true,
                 .leftovers = Leftovers::kDropped,
                 .port_events = false,
                 .ack_delay = 15,
                 .mappings_qp = 2,
                 .mappings_cq = 1,
                 .mappings_srq = 2});
  all.push_back(
      {.name = "iwarp",
       .read_in = "cxgb4/qp.c, verbs.c, cq.c, hw/cxgb4/qp.c, provider.c, ev.c, core/iwcm.c",
       .vendor_id = 0x1425,
       .part_id = 0x6401,
       .iwarp = true,
       .stream = true,
       .rtr_when_connected = EIO,
       .max_qp_wr = 8190,
       .max_srq_wr = 8190,
       .max_cqe = 65407,
       .max_sge = 4,
       .resizing = Resizing::kNone,
       .max_inline = 256,
       .inline_grant = InlineGrant::kAlways,
       .full = -ENOMEM,
       .bad_opcode = -EINVAL,
       .inline_too_long = -EMSGSIZE,
       .full_receives = -ENOMEM,
       .full_shared_names_bad = false,
       .in_error = -EINVAL,
       .room_before_opcode = true,
       .looks_at_first_piece = true,
       .leftovers = Leftovers::kDropped,
       .port_events = false,
       .address_events = false,
       .refusal_event = IBV_EVENT_QP_REQ_ERR,
       .mappings_qp = 2,
       .mappings_own_receives = 2,
       .mappings_cq = 2,
       .mappings_srq = 2});
  all.push_back({.name = "iwarp-no-imm",
                 .read_in = "siw/siw.c, sw/siw/siw_verbs.c, siw_qp.c, siw_cm.c, core/iwcm.c",
                 .vendor_id = 0x626d74,
                 .immediate = false,
                 .iwarp = true,
                 .stream = true,
                 .max_qp_wr = 32768,
                 .max_srq_wr = 327680,
                 .max_cqe = 3276800,
                 .max_sge = 6,
                 .queue_depth = Rounding::kPower,
                 .cq_depth = Rounding::kPower,
                 .resizing = Resizing::kNone,
                 .honours_vector = false,
                 .max_inline = 80,
                 .full = -ENOMEM,
                 .bad_opcode = -EINVAL,
                 .inline_too_long = -EINVAL,
                 .full_receives = -ENOMEM,
                 .room_before_opcode = true,
                 .forgets_refusals = true,
                 .last_wqe_reached = false,
                 .port_events = false,
                 .address_events = false,
                 .mappings_qp = 1,
                 .mappings_own_receives = 1,
                 .mappings_cq = 1,
                 .mappings_srq = 1});
  // EFA itself is unknown to rdma_cm, so a program never gets to its queue pairs.
  all.push_back({.name = "no-rc",
                 .read_in = "efa/verbs.c, hw/efa/efa_verbs.c, core/cma.c",
                 .vendor_id = 0x1d0f,
                 .part_id = 0xefa1,
                 .reliable = false,
                 .max_srq_wr = 0,
                 .max_cqe = 32768,
                 .shared_receives = false,
                 .resizing = Resizing::kNone,
                 .max_inline = 32,
                 .last_wqe_reached = false,
                 .port_events = false});
  return all;
}

}  // namespace

const std::vector<Profile>& all_profiles() {
  static const std::vector<Profile> all = make_profiles();
  return all;
}

std::vector<const Profile*> serving_profiles() {
  std::vector<const Profile*> all;
  for (const Profile& each : all_profiles())
    if (each.serves()) all.push_back(&each);
  return all;
}

// Read in the providers at tags v36, v39, v44, v50 and v64, and in the changes between them.
Profile of_age(const Profile& today, int rdma_core) {
  static std::deque<std::string> names;
  Profile aged = today;
  const std::string name = today.name;
  if (name == "irdma-e810") {
    aged.inlines_first_piece = rdma_core < 44;
    aged.immediate_is_plain = rdma_core >= 44 && rdma_core < 52;
  } else if (name == "bnxt_re") {
    aged.arms_at_poll = rdma_core < 47;
    aged.length_of_one_before = rdma_core < 50;
  } else if (name == "hns") {
    aged.inline_pieces_overrun = rdma_core < 47;
    aged.allocates_windows = aged.binds_windows = rdma_core < 61;
    if (rdma_core < 44) aged.full_receives = -ENOMEM;
  } else if (name == "rxe" && rdma_core < 44) {
    aged.full = -ENOMEM;
    aged.bad_opcode = aged.inline_too_long = -EINVAL;
    if (rdma_core < 40) aged.full_receives = -ENOMEM;
  }
  aged.name = names.emplace_back(name + "@" + std::to_string(rdma_core)).c_str();
  return aged;
}

std::vector<const Profile*> serving_profiles_of_all_ages() {
  static const std::vector<Profile> aged = [] {
    std::vector<Profile> all;
    for (const auto& [name, ages] : std::initializer_list<std::pair<const char*, std::vector<int>>>{
             {"rxe", {36, 43}},
             {"bnxt_re", {36, 49}},
             {"irdma-e810", {38, 43, 51}},
             {"hns", {36, 46, 60}}})
      for (const int age : ages) all.push_back(of_age(profile_named(name), age));
    return all;
  }();
  std::vector<const Profile*> all = serving_profiles();
  for (const Profile& each : aged) all.push_back(&each);
  return all;
}

const Profile& profile_named(std::string_view name) {
  for (const Profile& each : all_profiles())
    if (each.name == name) return each;
  if (const std::size_t at = name.find('@'); at != name.npos) {
    static std::deque<Profile> made;
    return made.emplace_back(
        of_age(profile_named(name.substr(0, at)), std::stoi(std::string(name.substr(at + 1)))));
  }
  std::string known;
  for (const Profile& each : all_profiles()) known += std::string(" ") + each.name;
  throw std::invalid_argument("no profile " + std::string(name) + "; there are" + known);
}

std::vector<const Profile*> profiles_from(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return serving_profiles();
  std::vector<const Profile*> named;
  for (std::string_view left = text; !left.empty();) {
    const std::size_t comma = std::min(left.find(','), left.size());
    named.push_back(&profile_named(left.substr(0, comma)));
    left.remove_prefix(std::min(comma + 1, left.size()));
  }
  return named;
}

const Profile& chosen_profile() {
  const char* text = std::getenv("AECONN_PROFILE");
  static const Profile& chosen = profile_named(text != nullptr ? text : "rxe");
  return chosen;
}

}  // namespace simulation
