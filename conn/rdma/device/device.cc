// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/device/device.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>

#include "conn/rdma/device/completion_queue.h"
#include "conn/rdma/device/route.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Vendor id of soft-RoCE, from drivers/infiniband/sw/rxe/rxe_param.h of Linux.
constexpr std::uint32_t kRxeVendor = 0xffffff;
constexpr std::uint32_t kIntelVendor = 0x8086;
constexpr ae::Duration kAskPortAgain = std::chrono::milliseconds(50);

// Returns the amount of inline data, in bytes, to request after the device has refused `refused`
// bytes. irdma accepts at most 101 or 48 bytes, erdma and bnxt_re 96.
std::uint32_t next_inline(std::uint32_t refused) noexcept {
  static constexpr std::array<std::uint32_t, 6> kSteps{128, 96, 64, 48, 32, 0};
  return *std::find_if(kSteps.begin(), kSteps.end() - 1,
                       [&](std::uint32_t step) { return step < refused; });
}

}  // namespace

bool refused_as_such(int err) noexcept {
  return err == EINVAL || err == EOPNOTSUPP || err == ENOSYS;
}

Device::Device(ibv_device* device, std::uint32_t inline_data)
    : name_(ibv_get_device_name(device)),
      handle_(open_device(device)),
      iwarp_(device->transport_type == IBV_TRANSPORT_IWARP) {
  if (const int err = ibv_query_device(handle_.get(), &attributes_); err != 0)
    throw VerbsError("ibv_query_device " + name_, err);
  max_pieces_ =
      static_cast<std::uint32_t>(std::clamp(attributes_.max_sge, 1, static_cast<int>(kMostPieces)));
  rxe_ = attributes_.vendor_id == kRxeVendor;
  irdma_ = attributes_.vendor_id == kIntelVendor;
  const int flags = fcntl(handle_->async_fd, F_GETFL);
  if (flags < 0 || fcntl(handle_->async_fd, F_SETFL, flags | O_NONBLOCK) != 0)
    throw VerbsError("fcntl on the device's event descriptor", errno);
  try_queue_pair(inline_data);
}

void Device::try_queue_pair(std::uint32_t inline_data) {
  const Pd pd = alloc_pd(handle_.get());
  const Cq queue(handle_.get(), 16, nullptr, 0, nullptr);
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = queue.get();
  attributes.qp_type = IBV_QPT_RC;
  constexpr std::uint32_t kAsked = 4;
  attributes.cap.max_send_wr = attributes.cap.max_recv_wr = kAsked;
  attributes.cap.max_send_sge = max_pieces_;
  attributes.cap.max_recv_sge = 1;
  attributes.cap.max_inline_data = inline_data;
  Qp qp;
  try {
    qp = create_qp(pd.get(), attributes);
  } catch (const VerbsError& error) {
    if (!refused_as_such(error.failure().code.value())) throw;
    throw VerbsError(
        Failure{error.failure().code,
                fmt::format("{} has no reliable connected (RC) queue pairs, which rdma:// needs: "
                            "use tcp:// or tls:// there",
                            name_)});
  }
  // soft-RoCE does not report the places that it has.
  keeps_a_place_free_ = rxe_ || attributes.cap.max_send_wr == 2 * kAsked - 1;
  try_immediate(qp.get());
  if ((attributes_.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0 && alloc_mw(pd.get()))
    binding_ = Binding::kUnsure;
}

// Throws if the device does not support WRITE WITH IMMEDIATE. All InfiniBand and RoCE devices do;
// an iWARP device may lack it, because RFC 7306 added it late. A device without it refuses to post
// the request (irdma, cxgb4, siw). A device with it accepts the request. Since `qp` is not
// connected, the request is discarded when `qp` is destroyed.
void Device::try_immediate(ibv_qp* qp) const {
  if (!iwarp_) return;
  ibv_send_wr request{}, *bad = nullptr;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  const int err = post_error(ibv_post_send(qp, &request, &bad));
  if (!refused_as_such(err)) return;
  throw VerbsError(Failure{
      std::make_error_code(std::errc::operation_not_supported),
      fmt::format("{}, an iWARP device, has no RDMA WRITE WITH IMMEDIATE, which rdma:// needs: use "
                  "tcp:// or tls:// there",
                  name_)});
}

// --- creating queues -----------------------------------------------------------------------------

Qp Device::create_qp(ibv_pd* pd, ibv_qp_init_attr& attributes) {
  const std::uint32_t first = std::min(attributes.cap.max_inline_data, max_inline_);
  std::uint32_t asked = first, pieces = std::min(attributes.cap.max_send_sge, max_pieces_);
  for (;;) {
    ibv_qp_init_attr attempt = attributes;
    attempt.cap.max_inline_data = asked;
    attempt.cap.max_send_sge = pieces;
    try {
      Qp made = rdma::create_qp(pd, attempt);
      attributes.cap = attempt.cap;
      attributes.cap.max_send_sge = pieces;
      // The device has refused more inline data, so more is not requested again.
      if (asked < first) max_inline_ = asked;
      max_pieces_ = std::min(max_pieces_, pieces);
      return made;
    } catch (const VerbsError& error) {
      // The driver refused the inline data or the number of pieces (some drivers reduce them
      // instead). Smaller values are tried, unless the error has another cause or none are left.
      if (!refused_as_such(error.failure().code.value()) || (asked == 0 && pieces == 1)) throw;
    }
    if (asked != 0) {
      asked = next_inline(asked);
    } else {
      asked = first;
      pieces = 1;
    }
  }
}

std::uint32_t Device::max_send_queue() const noexcept {
  return static_cast<std::uint32_t>(std::max(attributes_.max_qp_wr, 1));
}

std::uint32_t Device::send_queue_for(std::uint32_t wanted, std::uint32_t least) const noexcept {
  const std::uint32_t sends = std::min(wanted, max_send_queue());
  return keeps_a_place_free_ && std::has_single_bit(sends) && sends > least ? sends - 1 : sends;
}

std::uint32_t Device::max_cq() const noexcept {
  return static_cast<std::uint32_t>(std::max(attributes_.max_cqe, 1));
}

int Device::completion_vector(int asked, std::optional<std::size_t> loop) const {
  const int count = std::max(handle_->num_comp_vectors, 1);
  if (asked < 0) {
    if (loop) return static_cast<int>(*loop % static_cast<std::size_t>(count));
    static std::atomic<unsigned> contexts{0};
    return static_cast<int>(contexts++ % static_cast<unsigned>(count));
  }
  if (asked < count) return asked;
  throw VerbsError(
      Failure{std::make_error_code(std::errc::invalid_argument),
              fmt::format("comp-vector={}: {} has {}, the first is 0", asked, name_, count)});
}

// --- state of the ports --------------------------------------------------------------------------

void Device::on_port_event(int port, bool down) noexcept {
  const std::uint64_t bit = std::uint64_t{1} << (port & 63);
  down_ports_ = down ? down_ports_ | bit : down_ports_ & ~bit;
  suspected_ports_ &= ~bit;
}

bool Device::ask_port(int port, ae::TimePoint now) noexcept {
  if (port == asked_port_ && now - asked_at_ < kAskPortAgain) return port_down(port);
  asked_port_ = port;
  asked_at_ = now;
  ibv_port_attr attributes{};
  if (ibv_query_port(handle_.get(), static_cast<std::uint8_t>(port), &attributes) == 0)
    on_port_event(port, attributes.state != IBV_PORT_ACTIVE);
  return port_down(port);
}

void Device::on_no_route(int port, ae::TimePoint now) noexcept {
  asked_port_ = port;
  asked_at_ = now;
  if (port_down(port)) return;
  on_port_event(port, true);
  suspected_ports_ |= std::uint64_t{1} << (port & 63);
}

void Device::ask_ports_that_are_down(ae::TimePoint now) noexcept {
  for (int port = 1; port < kPorts; ++port)
    if (port_down(port)) (void)ask_port(port, now);
}

bool Device::ask_facts(int port, ae::TimePoint now) noexcept {
  ibv_port_attr attributes{};
  const int err = ibv_query_port(handle_.get(), static_cast<std::uint8_t>(port), &attributes);
  if (err != 0) return errno = err, false;
  const std::uint64_t bit = std::uint64_t{1} << (port & 63);
  link_layer_known_ |= bit;
  if (attributes.link_layer == IBV_LINK_LAYER_INFINIBAND) infiniband_ports_ |= bit;
  mtu_port_ = port;
  mtu_asked_at_ = now;
  active_mtu_ = bytes_of(attributes.active_mtu) != 0 ? attributes.active_mtu : IBV_MTU_4096;
  return true;
}

ibv_mtu Device::active_mtu(int port, ae::TimePoint now) noexcept {
  // Time after which the MTU is queried again, because no event reports that the MTU of the network
  // interface has changed.
  constexpr ae::Duration kAskMtuAgain = std::chrono::seconds(1);
  const bool fresh = port == mtu_port_ && now - mtu_asked_at_ < kAskMtuAgain;
  return fresh || ask_facts(port, now) ? active_mtu_ : IBV_MTU_4096;
}

bool Device::infiniband(int port, ae::TimePoint now) {
  if (iwarp_) return false;
  const std::uint64_t bit = std::uint64_t{1} << (port & 63);
  if ((link_layer_known_ & bit) == 0 && !ask_facts(port, now))
    throw VerbsError("ibv_query_port " + name_, errno);
  return (infiniband_ports_ & bit) != 0;
}

}}}  // namespace conn::rdma
