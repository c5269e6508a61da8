// SPDX-License-Identifier: BSD-3-Clause
#if AECONN_RDMA
#include "tests/support/rdma_kit.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "conn/connection_type.h"

using namespace std::chrono_literals;

namespace testing {

Transport rdma_transport() { return {.name = "rdma", .reaches_far = true, .crowd = 200}; }

conn::Endpoint rdma_endpoint(const std::string& options) {
  const char* address = std::getenv("AECONN_RDMA_ADDRESS");
  if (address == nullptr)
    throw std::runtime_error("AECONN_RDMA_ADDRESS is not set: no RDMA device");
  return conn::Endpoint::parse("rdma://" + std::string(address) + ":0" +
                               (options.empty() ? "" : "?" + options));
}

conn::Endpoint with_options(const conn::Endpoint& endpoint, const std::string& options) {
  const std::string url =
      "rdma://" + endpoint.hosts.front().name + ":" + std::to_string(endpoint.port);
  return conn::Endpoint::parse(options.empty() ? url : url + "?" + options);
}

ae::Duration promptly() { return simulated() ? ae::Duration(1s) : 2500ms * slower(); }

DeviceObjects device_objects() {
  DeviceObjects all;
  // Simulated devices are checked at the end of the test (tests/simulation).
  if (simulated()) return all;
  std::FILE* pipe = popen("rdma resource show", "r");
  if (pipe == nullptr) throw std::runtime_error("rdma resource show");
  char line[512];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    std::istringstream words(line);
    std::string index, device, kind;
    words >> index >> device;
    for (int count; words >> kind >> count;) all[kind] += count;
  }
  pclose(pipe);
  return all;
}

// Without timerfds: an EpollLoop opens one, and keeps it, when a timer needs it.
std::size_t open_descriptors() {
  std::size_t count = 0;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string what = std::filesystem::read_symlink(each.path(), gone).string();
    count += what != "anon_inode:[timerfd]";
  }
  return count;
}

std::uint64_t counter(const conn::ConnectionType& type, ae::EventLoop& loop,
                      const std::string& name) {
  for (const auto& [each, value] : type.statistics(loop))
    if (each == name) return value;
  throw std::runtime_error("no counter " + name);
}

ae::TimePoint now() { return std::chrono::steady_clock::now(); }

// --- EchoLog -------------------------------------------------------------------------------------

conn::AcceptHandler EchoLog::handler() {
  return [this](conn::ConnectionPtr accepted_now) {
    ++accepted;
    newest = accepted_now.get();
    if (first == nullptr) first = newest;
    newest->set_read_handler([this](conn::Connection& c) { on_readable(c); });
    clients_[newest].connection = std::move(accepted_now);
  };
}

void EchoLog::on_readable(conn::Connection& connection) {
  char buffer[64 << 10];
  const ssize_t n = connection.read(buffer, sizeof buffer);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) {
    endings.push_back(n == 0 ? "end of stream" : connection.last_error());
    clients_.erase(&connection);
    return;
  }
  clients_[&connection].backlog.append(buffer, static_cast<std::size_t>(n));
  on_writable(connection);
}

void EchoLog::on_writable(conn::Connection& connection) {
  std::string& backlog = clients_[&connection].backlog;
  const ssize_t n = connection.write(backlog.data(), backlog.size());
  if (n > 0) backlog.erase(0, static_cast<std::size_t>(n));
  if (n < 0 && errno != EAGAIN) backlog.clear();  // the read handler gets the reason
  if (backlog.empty()) {
    connection.set_write_handler(nullptr);
  } else if (!connection.has_write_handler()) {
    connection.set_write_handler([this](conn::Connection& c) { on_writable(c); });
  }
}

void EchoLog::close_all_but_first() {
  std::erase_if(clients_, [this](const auto& each) { return each.first != first; });
}

// --- Scene ---------------------------------------------------------------------------------------

Scene::Scene(const std::string& options) : Site(rdma_transport()) {
  listener = type.listen(loop, rdma_endpoint(options), log.handler());
  address = with_options(address_of(*listener), {});
  innocent = connect(address);
  RUN_UNTIL(loop, log.accepted == 1 && innocent->state() == conn::State::kConnected);
  innocent_echoes();
}

Scene::~Scene() { log.close_all(); }

void Scene::innocent_echoes(std::size_t size) {
  const Pattern pattern(++round);
  std::string bytes;
  while (bytes.size() < size) bytes += pattern.at(bytes.size());
  bytes.resize(size);
  send(loop, *innocent, bytes);
  REQUIRE(receive(loop, *innocent, size) == bytes);
}

std::unique_ptr<RawPeer> Scene::raw_client(RawOptions options) {
  const std::size_t before = log.accepted;
  auto peer = net.connect(address, std::move(options));
  RUN_UNTIL(loop, (!peer->offers.empty() && log.accepted == before + 1) || peer->over());
  REQUIRE(peer->established);
  return peer;
}

// --- Child ---------------------------------------------------------------------------------------

Child::Child(const std::function<void()>& body) : pid_(fork()) {
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    body();
  } catch (...) {
    _exit(1);
  }
  _exit(0);
}

Child::~Child() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Child::signal(int number) const { ::kill(pid_, number); }

int Child::wait() {
  int status = -1;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace testing
#endif
