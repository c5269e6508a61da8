// SPDX-License-Identifier: BSD-3-Clause
#include "tests/programs/footprint.h"

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

// Defined if a sanitizer has a malloc of its own, which mallinfo2() does not know.
extern "C" __attribute__((weak)) std::size_t __sanitizer_get_current_allocated_bytes();  // NOLINT

namespace programs {
namespace {

std::size_t heap_in_use() {
  if (__sanitizer_get_current_allocated_bytes != nullptr)
    return __sanitizer_get_current_allocated_bytes();
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

std::size_t resident_bytes() {
  malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::map<std::string, int> rdma_objects() {
  std::map<std::string, int> all;
  if (std::getenv("AECONN_RDMA_ADDRESS") == nullptr) return all;
  std::FILE* pipe = popen("rdma resource show", "r");  // NOLINT: a fixed command
  if (pipe == nullptr) return all;
  char line[512];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    std::istringstream words(line);
    std::string index, device, kind;
    words >> index >> device;
    for (int count = 0; words >> kind >> count;) all[kind] += count;
  }
  pclose(pipe);
  return all;
}

std::string text(const std::map<std::string, int>& objects) {
  std::string all;
  for (const auto& [kind, count] : objects) all += fmt::format(" {} {}", kind, count);
  return all;
}

std::string growth(std::size_t before, std::size_t after) {
  return fmt::format("{:+} KiB",
                     (static_cast<std::int64_t>(after) - static_cast<std::int64_t>(before)) / 1024);
}

}  // namespace

Footprint footprint() {
  Footprint all;
  const std::filesystem::directory_iterator open("/proc/self/fd");
  all.descriptors = static_cast<std::size_t>(std::distance(begin(open), end(open)));
  all.rdma_objects = rdma_objects();
  all.heap = heap_in_use();
  all.resident = resident_bytes();
  return all;
}

std::string left_over(const Footprint& before, const Footprint& after, std::size_t allowance) {
  std::string all;
  if (after.descriptors != before.descriptors)
    all += fmt::format("{} descriptors, {} before. ", after.descriptors, before.descriptors);
  if (after.rdma_objects != before.rdma_objects)
    all += fmt::format("RDMA objects{}, before{}. ", text(after.rdma_objects),
                       text(before.rdma_objects));
  if (after.heap > before.heap + allowance)
    all += fmt::format("The heap grew by {} bytes. ", after.heap - before.heap);
  // A sanitizer keeps freed memory for a while, and has data of its own.
  if (__sanitizer_get_current_allocated_bytes == nullptr &&
      after.resident > before.resident + allowance)
    all += fmt::format("{} bytes more are resident. ", after.resident - before.resident);
  return all;
}

std::string comparison(const Footprint& before, const Footprint& after) {
  std::string objects = "no RDMA device";
  if (!after.rdma_objects.empty())
    objects = after.rdma_objects == before.rdma_objects
                  ? "RDMA objects as before"
                  : "RDMA objects" + text(before.rdma_objects) + " ->" + text(after.rdma_objects);
  return fmt::format("descriptors {} -> {}, heap {}, resident {}, {}", before.descriptors,
                     after.descriptors, growth(before.heap, after.heap),
                     growth(before.resident, after.resident), objects);
}

}  // namespace programs
