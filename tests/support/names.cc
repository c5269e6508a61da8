// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/names.h"

#include <dlfcn.h>
#include <netdb.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string_view>

namespace testing {
namespace {

struct Server {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  std::set<std::string, std::less<>> held;
  std::map<std::string, int, std::less<>> asked;
  int waiting = 0;
};

// Never destroyed: lookups may outlast a test.
Server& server() {
  static auto* const one = new Server;
  return *one;
}

// False: not a name of this server.
bool ask(std::string_view name) {
  if (!name.ends_with(".test")) return false;
  Server& s = server();
  std::unique_lock lock(s.mutex);
  if (!s.open) return false;
  ++s.asked[std::string(name)];
  ++s.waiting;
  s.changed.wait(lock, [&] { return s.held.count(std::string(name)) == 0; });
  --s.waiting;
  s.changed.notify_all();
  return true;
}

}  // namespace

Names::Names() {
  const std::lock_guard lock(server().mutex);
  server().open = true;
}

Names::~Names() {
  std::unique_lock lock(server().mutex);
  server().held.clear();
  server().changed.notify_all();
  server().changed.wait(lock, [] { return server().waiting == 0; });
  server().asked.clear();
  server().open = false;
}

void Names::hold(const std::string& name) {
  const std::lock_guard lock(server().mutex);
  server().held.insert(name);
}

void Names::release(const std::string& name) {
  const std::lock_guard lock(server().mutex);
  server().held.erase(name);
  server().changed.notify_all();
}

int Names::asked(const std::string& name) const {
  const std::lock_guard lock(server().mutex);
  const auto found = server().asked.find(name);
  return found == server().asked.end() ? 0 : found->second;
}

int Names::held() const {
  const std::lock_guard lock(server().mutex);
  return server().waiting;
}

}  // namespace testing

extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** list) {
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool numeric = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (node != nullptr && !numeric && testing::ask(node)) node = "127.0.0.1";
  return real(node, service, hints, list);
}
