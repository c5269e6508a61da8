#include "conn/rdma/verbs.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <cerrno>

namespace conn::rdma {
namespace {

std::atomic<std::uint64_t> teardown_failure_count{0};
std::atomic<std::uint64_t> registered{0};

std::size_t page_size() noexcept {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

std::size_t round_to_pages(std::size_t size) noexcept {
  return (size + page_size() - 1) / page_size() * page_size();
}

std::string locked_memory_hint(int err) {
  if (err != ENOMEM && err != EPERM) return {};
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return fmt::format(" (the locked-memory limit is {} KiB; raise it with ulimit -l)",
                     limit.rlim_cur / 1024);
}

template <class Owner, class Object>
Owner own(Object* object, const char* call) {
  if (object == nullptr) throw VerbsError(call, errno);
  return Owner(object);
}

}  // namespace

VerbsError::VerbsError(std::string what_failed, int err)
    : failure_(errno_failure(err, what_failed)) {
  failure_.text += locked_memory_hint(err);
}

std::uint64_t teardown_failures() noexcept { return teardown_failure_count.load(); }

void note_teardown_failure(const char*, int err) noexcept {
  // rdma_cm functions return -1, verbs functions return the errno (and some older ones -1).
  if (err == -1) err = errno;
  assert(err != EBUSY && "an owner was destroyed before its user");
  ++teardown_failure_count;
}

std::uint64_t registered_bytes() noexcept { return registered.load(); }

DeviceHandle open_device(ibv_device* device) {
  return own<DeviceHandle>(ibv_open_device(device), "ibv_open_device");
}
Pd alloc_pd(ibv_context* device) { return own<Pd>(ibv_alloc_pd(device), "ibv_alloc_pd"); }
CompChannel create_comp_channel(ibv_context* device) {
  return own<CompChannel>(ibv_create_comp_channel(device), "ibv_create_comp_channel");
}
Srq create_srq(ibv_pd* pd, std::uint32_t depth) {
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = depth;
  attributes.attr.max_sge = 1;
  return own<Srq>(ibv_create_srq(pd, &attributes), "ibv_create_srq");
}
Qp create_qp(ibv_pd* pd, ibv_qp_init_attr& attributes) {
  return own<Qp>(ibv_create_qp(pd, &attributes), "ibv_create_qp");
}
Mw alloc_mw(ibv_pd* pd) noexcept { return Mw(ibv_alloc_mw(pd, IBV_MW_TYPE_2)); }

// --- Cq
// --------------------------------------------------------------------------------------------

Cq::Cq(ibv_context* device, int entries, ibv_comp_channel* channel)
    : cq_(ibv_create_cq(device, entries, nullptr, channel, 0)) {
  if (!cq_) throw VerbsError(fmt::format("ibv_create_cq of {} entries", entries), errno);
}

bool Cq::resize(int entries) noexcept { return ibv_resize_cq(cq_.get(), entries) == 0; }

void Cq::on_event() noexcept {
  armed_ = false;
  if (++unacknowledged_ == 128) acknowledge();
}

bool Cq::arm() noexcept {
  armed_ = ibv_req_notify_cq(cq_.get(), 0) == 0;
  return armed_;
}

void Cq::acknowledge() noexcept {
  if (unacknowledged_ != 0) ibv_ack_cq_events(cq_.get(), std::exchange(unacknowledged_, 0u));
}

// --- memory
// ----------------------------------------------------------------------------------------

PageMemory::PageMemory(std::size_t size) : size_(round_to_pages(size)) {
  const std::size_t page = page_size();
  void* all = mmap(nullptr, size_ + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) throw VerbsError(fmt::format("mapping {} bytes", size_), errno);
  base_ = static_cast<std::byte*>(all) + page;
  if (mprotect(base_, size_, PROT_READ | PROT_WRITE) != 0) {
    const int err = errno;
    munmap(all, size_ + 2 * page);
    throw VerbsError(fmt::format("mapping {} bytes", size_), err);
  }
  // Advice only: an old kernel that does not know it dumps a little more.
  (void)madvise(base_, size_, MADV_DONTDUMP);
}

PageMemory::~PageMemory() {
  if (base_ == nullptr) return;
  const std::size_t page = page_size();
  munmap(base_ - page, size_ + 2 * page);
}

RegisteredMemory::RegisteredMemory(ibv_pd* pd, std::size_t size, unsigned access) : memory(size) {
  mr = Mr(ibv_reg_mr(pd, memory.data(), memory.size(), static_cast<int>(access)));
  if (!mr) throw VerbsError(fmt::format("registering {} bytes with the device", size), errno);
  registered += memory.size();
}

void RegisteredMemory::unregister() noexcept {
  if (!mr) return;
  registered -= memory.size();
  mr.reset();
}

}  // namespace conn::rdma
