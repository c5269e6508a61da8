// SPDX-License-Identifier: BSD-3-Clause
#include "conn/shm/memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <string>

namespace conn { inline namespace AECONN_ABI { namespace shm {
namespace {

// Constants that headers older than the kernel may lack.
constexpr unsigned kNoExecSeal = 0x0008;  // MFD_NOEXEC_SEAL, since Linux 6.3
constexpr int kSealFutureWrite = 0x0010;  // F_SEAL_FUTURE_WRITE, since Linux 5.1
constexpr int kSealSize = F_SEAL_SHRINK | F_SEAL_GROW;
// With all these seals, nobody can map the memory for writing any more, nor punch holes into it.
constexpr int kSealAll = kSealSize | kSealFutureWrite | F_SEAL_SEAL;

Failure failed(const char* what) { return errno_failure(errno, what); }
Failure rule(const char* text) { return {std::make_error_code(std::errc::protocol_error), text}; }

bool seal(int fd, int seals) noexcept { return fcntl(fd, F_ADD_SEALS, seals) == 0; }

Failure seal_failure() {
  if (errno == EINVAL)
    return {std::make_error_code(std::errc::not_supported),
            "shared memory cannot be sealed: shm needs Linux 5.1"};
  return failed("seal shared memory");
}

/// Makes shared memory whose pages all exist, so that access to them never raises SIGBUS.
Fd make_memory(std::size_t size, Failure& why) {
  rlimit limit{};
  // The kernel would not just refuse a larger file: it would kill the process with SIGXFSZ.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size) {
    why = {
        std::make_error_code(std::errc::file_too_large),
        "a ring of " + std::to_string(size - kPage) +
            " bytes exceeds the limit on file sizes (ulimit -f): raise it, or lower option ring"};
    return {};
  }
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Fd fd(memfd_create("aeconn", kFlags | kNoExecSeal));
  if (!fd && errno == EINVAL) fd = Fd(memfd_create("aeconn", kFlags));
  if (!fd) return why = failed("make shared memory"), Fd();
  int rc;
  do rc = fallocate(fd.get(), 0, 0, static_cast<off_t>(size));
  while (rc != 0 && errno == EINTR);
  if (rc != 0) return why = failed("allocate shared memory"), Fd();
  if (!seal(fd.get(), kSealSize)) return why = seal_failure(), Fd();
  return fd;
}

/// Checks those properties of a memory that cannot change once its size is sealed.
Failure check_memory(const Fd& fd, std::size_t size) {
  // The seals are checked first: unlike fstat(), F_GET_SEALS does not call the file's own file
  // system, which might be the peer's (FUSE).
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSealSize) != kSealSize)
    return rule("the size of its memory can change");
  struct statfs system {};
  struct stat file {};
  if (fstatfs(fd.get(), &system) != 0 || fstat(fd.get(), &file) != 0)
    return failed("examine shared memory");
  // To touch memory of huge pages, or of a file system that is full, may raise SIGBUS.
  if (system.f_type != TMPFS_MAGIC)
    return rule("its memory is of another kind than memfd_create's");
  if (static_cast<std::uint64_t>(file.st_size) != size)
    return rule("its memory has another size than its hello says");
  return {};
}

/// Checks that all pages exist: to read a missing page would allocate it at the reader's expense.
/// To be called after the last seal, since seals exclude holes.
Failure check_pages(const Fd& fd, std::size_t size) {
  struct stat file {};
  // st_blocks also counts pages beyond the end (FALLOC_FL_KEEP_SIZE). ftruncate() frees these.
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return failed("examine shared memory");
  if (fstat(fd.get(), &file) != 0) return failed("examine shared memory");
  if (static_cast<std::uint64_t>(file.st_blocks) * 512 < size) return rule("its memory has holes");
  return {};
}

}  // namespace

Mapping Mapping::of(int fd, std::size_t ring, bool writable) noexcept {
  Mapping made;
  const int protection = PROT_READ | (writable ? PROT_WRITE : 0);
  void* const base = mmap(nullptr, kPage + ring, protection, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return made;
  made.base_ = static_cast<std::byte*>(base);
  made.size_ = kPage + ring;
  (void)madvise(base, made.size_, MADV_DONTFORK);
  return made;
}

Mapping::~Mapping() {
  if (base_ != nullptr && !made_here_.inherited()) munmap(base_, size_);
}

Offer make_memories(std::size_t ring) {
  Offer offer;
  offer.client = make_memory(kPage + ring, offer.failure);
  if (offer.client) offer.server = make_memory(kPage + ring, offer.failure);
  if (!offer.server) return offer;
  Mapping mine = Mapping::of(offer.client.get(), ring, true);
  Mapping theirs = Mapping::of(offer.server.get(), ring, false);
  if (!mine || !theirs) {
    offer.failure = failed("map shared memory");
  } else if (!seal(offer.client.get(), kSealAll)) {
    offer.failure = seal_failure();
  } else {
    mine.words().magic = 0x6d687361;  // "ashm"
    mine.words().version = 1;
    mine.words().ring = static_cast<std::uint32_t>(ring);
    offer.channel = std::make_unique<Channel>(std::move(mine), std::move(theirs));
  }
  return offer;
}

Failure check_sealed(const Fd& fd, std::size_t ring) {
  if ((fcntl(fd.get(), F_GET_SEALS) & kSealAll) != kSealAll)
    return rule("the memory that it writes is not sealed");
  return check_pages(fd, kPage + ring);
}

ChannelPtr accept_memories(const Fd& client, std::size_t client_ring, const Fd& server,
                           std::size_t server_ring, Failure& why) {
  why = check_memory(client, kPage + client_ring);
  if (!why) why = check_memory(server, kPage + server_ring);
  if (!why) why = check_sealed(client, client_ring);
  if (why) return nullptr;
  Mapping theirs = Mapping::of(client.get(), client_ring, false);
  Mapping mine = Mapping::of(server.get(), server_ring, true);
  if (!theirs || !mine)
    why = failed("map shared memory");
  else if (!seal(server.get(), kSealAll))  // fails also if the client has forbidden further seals
    why = seal_failure();
  else
    why = check_pages(server, kPage + server_ring);
  return why ? nullptr : std::make_unique<Channel>(std::move(mine), std::move(theirs));
}

}}}  // namespace conn::shm
