// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/device/port_counters.h"

#include <dirent.h>

#include <charconv>
#include <fstream>
#include <memory>
#include <mutex>
#include <new>

#include "ae/core/fork.h"
#include "ae/once.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
  if (open == nullptr) return names;
  while (const dirent* const entry = readdir(open.get())) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  return names;
}

struct Known {
  ae::Mutex mutex;
  std::map<std::string, PortCounters> devices;
};

Known& known() {
  return ae::once([] { return Known(); });
}

}  // namespace

PortCounters::PortCounters(std::string folder) : folder_(std::move(folder)) {
  for (const auto& [name, value] : read_all()) counted_[name].last = value;
}

std::map<std::string, std::uint64_t> PortCounters::read_all() const {
  std::map<std::string, std::uint64_t> all;
  for (const std::string& port : names_in(folder_ + "/ports")) {
    for (const auto& [kind, prefix] : {std::pair("/counters", "_"), {"/hw_counters", "_hw_"}}) {
      const std::string folder = folder_ + "/ports/" + port + kind;
      for (const std::string& name : names_in(folder)) {
        // The file `lifespan` is no counter: it contains the maximum age of the values.
        if (name == "lifespan") continue;
        std::ifstream file(folder + "/" + name);
        std::string text;
        // Skips a file that cannot be read. (A file with the text "N/A (no PMA)" of some devices is
        // skipped below.)
        if (!(file >> text)) continue;
        std::uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc() && end == text.data() + text.size())
          all.emplace("port" + port + prefix + name, value);
      }
    }
  }
  return all;
}

std::vector<std::pair<std::string, std::uint64_t>> PortCounters::read() {
  for (const auto& [name, value] : read_all()) {
    Counted& counted = counted_[name];
    counted.added += value < counted.last ? value : value - counted.last;
    counted.last = value;
  }
  std::vector<std::pair<std::string, std::uint64_t>> added;
  for (const auto& [name, counted] : counted_) added.emplace_back(name, counted.added);
  return added;
}

void begin_port_counters(const std::string& device) noexcept {
  try {
    const std::lock_guard lock(known().mutex);
    if (known().devices.find(device) == known().devices.end())
      known().devices.emplace(device, PortCounters("/sys/class/infiniband/" + device));
  } catch (const std::bad_alloc&) {
  }
}

std::vector<std::pair<std::string, std::uint64_t>> port_counters(const std::string& device) {
  const std::lock_guard lock(known().mutex);
  const auto found = known().devices.find(device);
  if (found == known().devices.end()) return {};
  return found->second.read();
}

}}}  // namespace conn::rdma
