// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/device/cm.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <span>

#include "ae/once.h"
#include "conn/kit/local_addresses.h"
#include "conn/rdma/device/reject_reason.h"
#include "conn/rdma/device/route.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Numbers of reject reasons of the InfiniBand connection manager (IB CM).
constexpr int kNobodyListens = 8, kStale = 10, kConsumerSaysNo = 28;

}  // namespace

void CmId::Destroy::operator()(rdma_cm_id* id) const noexcept {
  if (made_here.inherited()) return;
  if (rdma_destroy_id(id) != 0) note_teardown_failure("rdma_destroy_id", errno);
}

SocketAddress CmId::local() const { return copy_address(rdma_get_local_addr(id_.get())); }
SocketAddress CmId::peer() const { return copy_address(rdma_get_peer_addr(id_.get())); }

// Throws if the process has too few free file descriptors. libibverbs searches for its drivers only
// once; if that fails for lack of descriptors, the process has no RDMA until it ends.
static void require_descriptors() {
  std::array<int, 12> spare{};
  std::size_t count = 0;
  int err = 0;
  for (; count < spare.size() && err == 0; ++count)
    if ((spare[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0) err = errno;
  for (const int fd : std::span(spare).first(count))
    if (fd >= 0) close(fd);
  if (err != 0) throw VerbsError("rdma_create_event_channel", err);
}

// Calls ibv_fork_init() once, before any memory is registered. Without this call, on older kernels,
// fork() could separate registered pages from this process (ibv_fork_init(3)); newer kernels copy
// such pages for the child, and the call costs nothing.
static rdma_event_channel* create_channel() {
  struct Preparation {
    ae::Mutex mutex;
    bool done = false;
  };
  Preparation& preparation = ae::once([] { return Preparation(); });
  {
    const std::lock_guard lock(preparation.mutex);
    if (!preparation.done) {
      require_descriptors();
      (void)ibv_fork_init();
      preparation.done = true;
    }
  }
  return rdma_create_event_channel();
}

CmChannel::CmChannel() : channel_(create_channel()) {
  if (!channel_) throw VerbsError("rdma_create_event_channel", errno);
  const int flags = fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0)
    throw VerbsError("fcntl on the rdma_cm channel", errno);
}

std::optional<CmEvent> CmChannel::next() {
  rdma_cm_event* raw = nullptr;
  int result;
  do {
    errno = 0;
    result = rdma_get_cm_event(channel_.get(), &raw);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return std::nullopt;
  CmEvent event{};
  event.type = raw->event;
  event.id = raw->id;
  event.listen_id = raw->listen_id;
  // The status is -1 if a call inside librdmacm failed; errno then has the cause.
  event.status = raw->status == -1 && errno != 0 ? -errno : raw->status;
  if (raw->param.conn.private_data != nullptr) {
    event.private_data_size =
        std::min<std::size_t>(raw->param.conn.private_data_len, event.private_data.size());
    std::memcpy(event.private_data.data(), raw->param.conn.private_data, event.private_data_size);
  }
  // The event is acknowledged before it is handled, because destroying an id waits until all its
  // events are acknowledged.
  if (rdma_ack_cm_event(raw) != 0) note_teardown_failure("rdma_ack_cm_event", errno);
  return event;
}

CmId CmChannel::create_id(void* context) {
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(channel_.get(), &id, context, RDMA_PS_TCP) != 0)
    throw VerbsError("rdma_create_id", errno);
  return CmId(id);
}

void set_traffic_class(rdma_cm_id* id, std::uint8_t traffic_class) {
  if (rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &traffic_class,
                      sizeof traffic_class) != 0)
    throw VerbsError(fmt::format("traffic-class={}: rdma_set_option", traffic_class), errno);
}

ibv_mtu mtu_of_path(const rdma_cm_id* id) noexcept {
  if (id->route.num_paths < 1 || id->route.path_rec == nullptr) return {};
  // The lower six bits of path_rec->mtu are the MTU code; bits 6 and 7 are a selector.
  const auto mtu = static_cast<ibv_mtu>(id->route.path_rec->mtu & 0x3f);
  return bytes_of(mtu) != 0 ? mtu : ibv_mtu{};
}

void let_go_of_device(ibv_context* its_handle) noexcept {
  // rdma_get_devices() makes librdmacm update its list of devices and close its handles of removed
  // ones, unless no other device is left.
  int count = 0;
  ibv_context** all = rdma_get_devices(&count);
  const bool forgotten = all != nullptr && std::find(all, all + count, its_handle) == all + count;
  if (all != nullptr) rdma_free_devices(all);
  if (forgotten) return;
  // If no other device is left, rdma_get_devices() returns early, and the handle of the removed
  // device stays open. Therefore /dev/null replaces the two descriptors of that handle, so that the
  // kernel can remove the device. librdmacm closes these descriptors when there is a device again.
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) return;
  (void)dup3(nothing, its_handle->cmd_fd, O_CLOEXEC);
  (void)dup3(nothing, its_handle->async_fd, O_CLOEXEC);
  close(nothing);
}

bool ends_connect(const CmEvent& event) noexcept {
  switch (event.type) {
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
    case RDMA_CM_EVENT_ESTABLISHED:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return true;
    default:
      return false;
  }
}

bool is_stale(const CmEvent& event) noexcept {
  return event.type == RDMA_CM_EVENT_REJECTED && event.status == kStale;
}

std::string describe(const CmEvent& event) {
  const std::string reason =
      event.status < 0 ? errno_text(-event.status) : fmt::format("status {}", event.status);
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_ERROR:
      return event.status == -ETIMEDOUT ? "no answer from the address (ARP or ND)"
                                        : "the address cannot be reached over RDMA: " + reason;
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return "no RDMA route to the address: " + reason;
    case RDMA_CM_EVENT_CONNECT_ERROR:
      return "the connection could not be set up: " + reason;
    case RDMA_CM_EVENT_UNREACHABLE:
      return "the peer does not answer: " + reason;
    case RDMA_CM_EVENT_REJECTED:
      if (event.status == kNobodyListens) return "Connection refused: nobody listens there";
      if (event.status == kConsumerSaysNo)
        return "Connection refused by the server" + reject_reason_in(event.data());
      // On iWARP the status does not show whether the peer's kernel or its program refused the
      // connection. Only a program adds private data.
      if (event.status < 0)
        return errno_text(-event.status) + (event.data().empty() ? "" : " by the server") +
               reject_reason_in(event.data());
      if (event.status == kStale)
        return "Connection refused: the peer takes it for one that it still knows (reject reason "
               "10)";
      return "Connection refused: reject reason " + std::to_string(event.status);
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return "the RDMA device was removed";
    case RDMA_CM_EVENT_ADDR_CHANGE:
      return "the address of the RDMA device changed";
    default:
      return rdma_event_str(event.type);
  }
}

}}}  // namespace conn::rdma
