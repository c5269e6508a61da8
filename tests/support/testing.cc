// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/testing.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <iostream>
#include <random>
#include <sstream>
#include <stdexcept>

#include "conn/listener_group.h"
#include "conn/tcp/socket.h"
#include "conn/transports/transports.h"
#if AECONN_TLS
#include "conn/tls/type.h"
#endif
#include "tests/support/catch.h"
#include "tests/support/certificates.h"
#include "tests/support/local_transport.h"
#include "tests/support/memory_transport.h"
#include "tests/support/pipe_transport.h"
#include "tests/support/stuck_transport.h"

namespace testing {
namespace {

const char* rdma_address() {
  const char* address = std::getenv("AECONN_RDMA_ADDRESS");
  return address != nullptr && *address != '\0' ? address : nullptr;
}

bool asked_for(const std::string& name) {
  const char* list = std::getenv("AECONN_TRANSPORTS");
  if (list == nullptr || *list == '\0') return true;
  std::istringstream names(list);
  for (std::string one; std::getline(names, one, ',');) {
    if (one == name) return true;
  }
  return false;
}

}  // namespace

bool simulated() { return std::getenv("AECONN_SIMULATED") != nullptr; }

// --- transports ----------------------------------------------------------------------------------

std::ostream& operator<<(std::ostream& out, const Transport& transport) {
  return out << transport.name;
}

bool has_vsock_loopback() {
  static const bool has = [] {
    const conn::tcp::Fd listening(::socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const conn::tcp::Fd client(::socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_vm here{};
    here.svm_family = AF_VSOCK;
    here.svm_cid = VMADDR_CID_LOCAL;
    here.svm_port = VMADDR_PORT_ANY;
    auto* const address = reinterpret_cast<sockaddr*>(&here);
    socklen_t size = sizeof here;
    return listening && client && ::bind(listening.get(), address, size) == 0 &&
           ::listen(listening.get(), 1) == 0 &&
           ::getsockname(listening.get(), address, &size) == 0 &&
           ::connect(client.get(), address, size) == 0;
  }();
  return has;
}

std::vector<Transport> transports() {
  // Bytes that were written to a Unix socket are with the peer's kernel, those of shm in memory
  // that the peer has, too. Each connection of shm has half a megabyte of it.
  std::vector<Transport> all{{.name = "tcp"},
                             {.name = "unix", .lingers = false},
                             {.name = "shm", .crowd = 200, .lingers = false}};
  if (has_vsock_loopback()) all.push_back({.name = "vsock", .lingers = false});
  const Transport one_loop{.name = "memory",
                           .reaches_far = false,
                           .one_loop = true,
                           .lingers = false,
                           .in_library = false};
  all.push_back(one_loop);
  // On an emulated machine a connection costs 10 ms.
  if (rdma_address() != nullptr)
    all.push_back(
        {.name = "rdma", .reaches_far = !simulated(), .crowd = 200, .threads = !simulated()});
#if AECONN_TLS
  for (Transport over : std::vector(all)) {
    over.name = over.name == "tcp" ? "tls" : "tls+" + over.name;
    // On an emulated machine each TLS transport takes a minute: only those that need the device are
    // tested, unless AECONN_TRANSPORTS names others.
    const bool asked = std::getenv("AECONN_TRANSPORTS") != nullptr;
    if (rdma_address() != nullptr && over.name != "tls+rdma" && !asked) continue;
    over.crowd = std::min<std::size_t>(over.crowd, 200);  // a handshake costs 1 ms
    over.lingers = true;                                  // it keeps encrypted output
    all.push_back(std::move(over));
  }
#endif
  // Lists, whose connections continue with one of these transports.
  for (const char* over : {"tcp", "memory"}) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const Transport& one) { return one.name == over; });
    if (found == all.end()) continue;
    Transport list = *found;
    list.name = "absent|" + list.name;
    list.crowd = std::min<std::size_t>(list.crowd, 200);
    list.list = true;
    all.push_back(std::move(list));
  }
  // It serves one loop, and nothing is layered on it.
  if (listening_loops() == 1) {
    all.push_back(one_loop);
    all.back().name = "local";
    all.push_back({.name = "pipe", .groups = false, .lingers = false, .in_library = false});
  }
  std::erase_if(all, [](const Transport& one) { return !asked_for(one.name); });
  if (all.empty()) throw std::runtime_error("AECONN_TRANSPORTS leaves nothing to test");
  return all;
}

conn::Registry test_registry([[maybe_unused]] std::string_view used) {
  conn::Registry registry = conn::all_transports();
  auto absent = std::make_unique<StuckType>("absent");
  absent->broken = true;  // makes a list go on to its next scheme
  registry.add(std::move(absent));
  [[maybe_unused]] const conn::ConnectionType& memory =
      registry.add(std::make_unique<conn::memory::MemoryType>());
  registry.add(std::make_unique<local::LocalType>());
  registry.add(std::make_unique<pipes::PipeType>());
#if AECONN_RDMA
  if (const char* options = std::getenv("AECONN_RDMA_OPTIONS"))
    registry.require("rdma").configure(conn::Options::parse(options));
#endif
#if AECONN_TLS
  registry.add(std::make_unique<conn::tls::TlsType>(memory));
  for (const auto& type : registry.types()) {
    const std::string name(type->name());
    const bool wanted =
        used.empty() || ("|" + std::string(used) + "|").find("|" + name + "|") != std::string::npos;
    if (!name.starts_with("tls") || !wanted) continue;
    conn::Options options = test_tls_options(test_server_name(name));
    // On an emulated machine, hundreds of handshakes at once take longer than the default
    // time-outs.
    if (rdma_address() != nullptr && name != "tls+memory") {
      options.set("connect-timeout", "60s");
      options.set("handshake-timeout", "60s");
    }
    if (const char* more = std::getenv("AECONN_TLS_OPTIONS")) {
      options = options.merged_with(conn::Options::parse(more));
    }
    type->configure(options);
  }
#endif
  return registry;
}

TempFolder::TempFolder() : path_(std::filesystem::temp_directory_path() / "aeconn-test-XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp " + path_);
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

// --- loops ---------------------------------------------------------------------------------------

unsigned slower() {
  const char* factor = std::getenv("AECONN_SLOWER");
  return factor != nullptr ? static_cast<unsigned>(std::max(1, std::atoi(factor))) : 1;
}

std::size_t listening_loops() {
  const char* count = std::getenv("AECONN_LOOPS");
  return count != nullptr ? static_cast<std::size_t>(std::max(1, std::atoi(count))) : 1;
}

ae::Duration patience() { return (rdma_address() != nullptr ? 120s : 10s) * slower(); }

void run_until(ae::EventLoop& loop, const std::function<bool()>& condition, std::string_view what,
               ae::Duration deadline) {
  bool late = false;
  const ae::TimerId timer = loop.add_time_event(deadline, [&] {
    late = true;
    return ae::kNoMore;
  });
  // Checked before each sleep, since handlers may run outside of events, too.
  bool met = false;
  const ae::HookId hook = loop.add_before_sleep([&] {
    // Only until it holds: hooks run again after some destructions, and the condition may consume
    // what it checks.
    met = met || condition();
    if (met || late) loop.stop();
  });
  struct Undo {
    ae::EventLoop& loop;
    ae::TimerId timer;
    ae::HookId hook;
    ~Undo() {
      loop.remove_time_event(timer);
      loop.remove_hook(hook);
    }
  } undo{loop, timer, hook};
  loop.run();
  // The timer's own iteration may process what no event reported: that is a lost event, not
  // success.
  if (late) FAIL("waited " << deadline / 1ms << " ms in vain for: " << what);
  REQUIRE(met);
}

void turns(ae::EventLoop& loop, int count) {
  for (int i = 0; i < count; ++i) loop.process_events(ae::kFullIteration | ae::kDontWait);
}

IterationCounter::IterationCounter(ae::EventLoop& loop)
    : loop_(loop), hook_(loop.add_before_sleep([this] { ++count_; })) {}

int IterationCounter::during(ae::Duration span) {
  bool over = false;
  loop_.add_time_event(span, [&] {
    over = true;
    return ae::kNoMore;
  });
  const int before = count_;
  while (!over) loop_.process_events(ae::kFullIteration);
  return count_ - before - 1;
}

// --- connections ---------------------------------------------------------------------------------

Site::Site(const Transport& its_transport)
    : transport(its_transport),
      registry(test_registry(transport.name)),
      type(registry.require(transport.name)),
      carrier(registry.require(transport.name.substr(transport.name.find('|') + 1))) {
  if (listening_loops() > 1) loops = std::make_unique<SharedLoops>(loop, listening_loops());
}

conn::ListenerPtr Site::listen(conn::AcceptHandler accepted) {
  if (!loops) return type.listen(loop, fresh(), std::move(accepted));
  const auto pick = [next = std::size_t{0}](const conn::Arriving& arriving) mutable {
    return ++next % arriving.connections.size();
  };
  return conn::listen(
      registry, *loops, fresh(), [&](ae::EventLoop&, std::size_t) { return accepted; },
      conn::Spread::by(pick));
}

conn::Endpoint Site::fresh() {
  const std::string name = "x" + std::to_string(++names);
  std::string url = transport.name;
  if (conn::carries_path(transport.name) || transport.name == "pipe") {
    url += "://" + folder.path() + "/" + name;
  } else if (transport.name.ends_with("vsock")) {
    url += "://1:0";
  } else if (transport.name.ends_with("memory") || transport.name == "local") {
    url += "://" + name;
  } else {
    if (transport.name.ends_with("rdma") && rdma_address() == nullptr)
      throw std::runtime_error("AECONN_RDMA_ADDRESS is not set: no RDMA device");
    url += std::string("://") + (transport.name.ends_with("rdma") ? rdma_address() : "127.0.0.1") +
           ":0";
  }
  return conn::Endpoint::parse(url);
}

conn::ConnectionPtr Site::connect(const conn::Endpoint& to, conn::Connection::Handler done) {
  conn::ConnectionPtr connection = type.create(loop);
  connection->connect(to, std::move(done));
  return connection;
}

conn::Endpoint Site::deserted() {
  return address_of(*listen([](conn::ConnectionPtr) {}));
}

Pair::Pair(const Transport& its_transport) : Site(its_transport) {
  listener = listen([this](conn::ConnectionPtr accepted) { server = std::move(accepted); });
  client = connect(address_of(*listener));
  RUN_UNTIL(loop, server && client->state() != conn::State::kConnecting);
  INFO("connect: " << client->last_error());
  REQUIRE(client->state() == conn::State::kConnected);
  REQUIRE(server->state() == conn::State::kConnected);
}

void send(ae::EventLoop& loop, conn::Connection& connection, std::string_view bytes) {
  int error = 0;
  const auto go_on = [&](conn::Connection& c) {
    const ssize_t n = c.write(bytes.data(), bytes.size());
    if (n > 0) bytes.remove_prefix(static_cast<std::size_t>(n));
    if (n < 0 && errno != EAGAIN) error = errno;
    if (bytes.empty() || error != 0) c.set_write_handler(nullptr);
  };
  connection.set_write_handler(go_on);
  RUN_UNTIL(loop, bytes.empty() || error != 0);
  INFO("write: " << std::strerror(error));
  REQUIRE(error == 0);
}

std::string receive(ae::EventLoop& loop, conn::Connection& connection, std::size_t size) {
  std::string bytes(size, '\0');
  std::size_t got = 0;
  bool ended = false;
  connection.set_read_handler([&](conn::Connection& c) {
    const ssize_t n = c.read(bytes.data() + got, size - got);
    if (n > 0) got += static_cast<std::size_t>(n);
    ended = n == 0 || (n < 0 && errno != EAGAIN);
    if (ended || got == size) c.set_read_handler(nullptr);
  });
  run_until(
      loop, [&] { return got == size || ended; }, std::to_string(size) + " bytes");
  INFO("the stream ended after " << got << " bytes: " << connection.last_error());
  REQUIRE(got == size);
  return bytes;
}

void await_readable(ae::EventLoop& loop, conn::Connection& connection) {
  bool readable = false;
  connection.set_read_handler([&](conn::Connection& c) {
    readable = true;
    c.set_read_handler(nullptr);
  });
  RUN_UNTIL(loop, readable);
}

std::string read_some(conn::Connection& connection, std::size_t size) {
  std::string bytes(size, '\0');
  const ssize_t n = connection.read(bytes.data(), size);
  bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return bytes;
}

Collector::Collector(conn::Connection& connection, std::size_t chunk) : buffer_(chunk) {
  connection.set_read_handler([this](conn::Connection& c) {
    ++calls;
    const ssize_t n = c.read(buffer_.data(), buffer_.size());
    if (n > 0) bytes.append(buffer_.data(), static_cast<std::size_t>(n));
    if (n == 0) ended = true;
    if (n < 0 && errno != EAGAIN) error = errno;
    if (over()) c.set_read_handler(nullptr);
  });
}

// --- large amounts of data -----------------------------------------------------------------------

std::string_view Pattern::at(std::uint64_t at) const noexcept {
  static const std::string period = [] {
    std::string bytes(1'000'003, '\0');
    std::mt19937 random(1);
    for (char& byte : bytes) byte = static_cast<char>(random());
    return bytes;
  }();
  return std::string_view(period).substr((at + shift_) % period.size());
}

bool Pattern::matches(std::uint64_t from, std::string_view bytes) const noexcept {
  while (!bytes.empty()) {
    const std::string_view expected = at(from).substr(0, bytes.size());
    if (!bytes.starts_with(expected)) return false;
    bytes.remove_prefix(expected.size());
    from += expected.size();
  }
  return true;
}

Sender::Sender(conn::Connection& connection, std::uint64_t seed, std::uint64_t total,
               std::size_t chunk)
    : pattern_(seed), total_(total) {
  connection.set_write_handler([this, chunk](conn::Connection& c) {
    const std::string_view next = pattern_.at(sent).substr(
        0, static_cast<std::size_t>(std::min<std::uint64_t>(chunk, total_ - sent)));
    const ssize_t n = c.write(next.data(), next.size());
    if (n > 0) sent += static_cast<std::uint64_t>(n);
    if (n < 0 && errno != EAGAIN) error = errno;
    if (done() || error != 0) c.set_write_handler(nullptr);
  });
}

Receiver::Receiver(conn::Connection& connection, std::uint64_t seed, std::size_t chunk)
    : pattern_(seed), buffer_(chunk) {
  connection.set_read_handler([this](conn::Connection& c) {
    const ssize_t n = c.read(buffer_.data(), buffer_.size());
    if (n > 0) {
      const std::string_view bytes(buffer_.data(), static_cast<std::size_t>(n));
      intact = intact && pattern_.matches(received, bytes);
      received += bytes.size();
    }
    if (n == 0) ended = true;
    if (n < 0 && errno != EAGAIN) error = errno;
    if (ended || error != 0) c.set_read_handler(nullptr);
  });
}

// --- peers ---------------------------------------------------------------------------------------

conn::AcceptHandler EchoServer::handler() {
  return [this](conn::ConnectionPtr accepted) {
    conn::Connection& connection = *accepted;
    clients_[&connection].connection = std::move(accepted);
    connection.set_read_handler([this](conn::Connection& c) { on_readable(c); });
  };
}

void EchoServer::on_readable(conn::Connection& connection) {
  char buffer[64 << 10];
  const ssize_t n = connection.read(buffer, sizeof buffer);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) {
    clients_.erase(&connection);
    return;
  }
  clients_[&connection].backlog.append(buffer, static_cast<std::size_t>(n));
  on_writable(connection);
}

void EchoServer::on_writable(conn::Connection& connection) {
  std::string& backlog = clients_[&connection].backlog;
  const ssize_t n = connection.write(backlog.data(), backlog.size());
  if (n < 0 && errno != EAGAIN) {
    clients_.erase(&connection);
    return;
  }
  if (n > 0) backlog.erase(0, static_cast<std::size_t>(n));
  if (backlog.empty()) {
    connection.set_write_handler(nullptr);
  } else if (!connection.has_write_handler()) {
    connection.set_write_handler([this](conn::Connection& c) { on_writable(c); });
  }
}

EchoThread::EchoThread(const Transport& transport) {
  std::promise<conn::Endpoint> listening;
  std::future<conn::Endpoint> address = listening.get_future();
  thread_ = std::thread([this, transport, listening = std::move(listening)]() mutable {
    try {
      Site site(transport);
      EchoServer echo;
      const conn::ListenerPtr listener = site.listen(echo.handler());
      loop_ = &site.loop;
      poster_ = site.loop.poster();
      listening.set_value(address_of(*listener));
      site.loop.run();
    } catch (...) {
      listening.set_exception(std::current_exception());
    }
  });
  try {
    address_ = address.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

EchoThread::~EchoThread() {
  poster_.post([this] { loop_->stop(); });
  thread_.join();
}

ClientProcess::ClientProcess(const Transport& transport) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  orders_ = ends[1];
  pid_ = fork();
  REQUIRE(pid_ >= 0);
  if (pid_ > 0) {
    ::close(ends[0]);
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::close(ends[1]);
  std::string url;
  for (char c; ::read(ends[0], &c, 1) == 1 && c != '\n';) url += c;
  try {
    Site site(transport);
    const conn::ConnectionPtr connection =
        site.connect(conn::Endpoint::parse(url), [](conn::Connection& c) { c.write("hello", 5); });
    site.loop.run();
  } catch (...) {
  }
  _exit(1);
}

ClientProcess::~ClientProcess() {
  if (pid_ > 0) kill();
  ::close(orders_);
}

void ClientProcess::connect(const conn::Endpoint& to) {
  const std::string line = to.to_string() + "\n";
  REQUIRE(::write(orders_, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
}

void ClientProcess::kill() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace testing
