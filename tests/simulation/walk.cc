// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/walk.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "ae/epoll_loop.h"
#include "ae/libev_loop.h"
#include "conn/rdma/device/memory.h"
#include "conn/rdma/device/verbs.h"
#include "conn/tls/type.h"
#include "conn/transports/transports.h"
#include "tests/simulation/walk_internal.h"
#include "tests/support/certificates.h"
#include "tests/support/memory_transport.h"

namespace simulation {

using conn::Connection;
using conn::State;

// --- set-up --------------------------------------------------------------------------------------

void Walk::listen() {
  std::string url = transport_ + "://";
  if (is_rdma_)
    url += "10.77.0.1:0" + options_;
  else if (transport_.ends_with("unix") || transport_.ends_with("shm"))
    url += folder_.emplace().path() + "/socket";
  else if (transport_.ends_with("memory"))
    url += "walk";
  else
    url += "127.0.0.1:0";
  listener_ = type_->listen(*loop_, conn::Endpoint::parse(url), [this](conn::ConnectionPtr next) {
    adopt(std::move(next), 0, false);
    nest();
  });
  address_ = listener_->endpoints().front();
  if (is_rdma_) {
    client_options_ += fmt::format("source=10.77.0.{}", resumes_ || chance(0.7) ? 2 : 1);
    address_.options = address_.options.merged_with(conn::Options::parse(client_options_));
  }
}

void Walk::connect_one() {
  --to_connect_;
  const std::uint64_t number = ++numbers_;
  conn::ConnectionPtr connection;
  try {
    connection = type_->create(*loop_);
  } catch (const conn::Error&) {
    return;
  }
  ++report_.connections;
  Connection* raw = connection.get();
  adopt(std::move(connection), number, true);
  const std::uint64_t id = raw->id();
  if (chance(crowd_ != 0 ? 0.001 : 0.05)) {
    const bool connected = raw->connect_blocking(address_, 3s);
    if (connected != (raw->state() == State::kConnected))
      complain("connect_blocking() and state()");
    if (!connected) drop(*ends_.at(id));
    return;
  }
  raw->connect(address_, [this, id](Connection& here) {
    const auto found = ends_.find(id);
    if (found == ends_.end()) return complain("a connect handler ran after close()");
    if (here.state() == State::kConnected) {
      set_handlers(*found->second);
      return nest();
    }
    if (here.last_error().empty()) complain("a connect failed without a word");
    if (calm_) complain("connect failed in calm weather: " + here.last_error());
    drop(*found->second);
  });
}

void Walk::adopt(conn::ConnectionPtr connection, std::uint64_t number, bool client) {
  const std::uint64_t id = connection->id();
  auto end = std::make_unique<End>(End{*this, number, client, std::move(connection), {}});
  if (client) {
    end->header.assign(reinterpret_cast<const char*>(&number), sizeof number);
    know(*end, number);
  }
  // In a crowd each end acts less often, so that the total rate stays the same.
  const std::uint64_t longest = crowd_ != 0 || span_ > 1s ? 100000 : 3000;
  end->timer = loop_->add_time_event(1us * pick(1, 3000), [this, id, longest]() -> ae::Duration {
    if (hosted_ != nullptr) {
      to_act_.push_back(id);
      nest();
    } else {
      act(id);
    }
    return ends_.count(id) != 0 ? ae::Duration(1us * pick(1, longest)) : ae::kNoMore;
  });
  End& here = *end;
  ends_[id] = std::move(end);
  report_.most_ends = std::max<std::uint64_t>(report_.most_ends, ends_.size());
  if (closes_lost_) watch_path(here);
  if (!client) set_handlers(here);
}

void Walk::know(End& end, std::uint64_t number) {
  end.number = number;
  std::array<Stream, 2>& both = streams_[number];
  end.out = &both[end.client ? 1 : 0];
  end.in = &both[end.client ? 0 : 1];
}

// --- actions of an end ---------------------------------------------------------------------------

void Walk::set_handlers(End& end) {
  const std::uint64_t id = end.connection->id();
  if (finishing_ || chance(0.9))
    end.connection->set_read_handler([this, id](Connection&) { on_readable(id); });
  else
    end.connection->set_read_handler(nullptr);
  if (chance(0.5) || !end.header.empty())
    end.connection->set_write_handler([this, id](Connection&) { on_writable(id); },
                                      chance(0.2) ? conn::Barrier::kYes : conn::Barrier::kNo);
  else
    end.connection->set_write_handler(nullptr);
  if (hosted_ != nullptr) end.connection->set_close_handler([this](Connection&) { nest(); });
}

/// Within any handler: the host runs a nested iteration of its loop.
void Walk::nest() {
  if (hosted_ == nullptr || nested_ || !chance(0.05)) return;
  nested_ = true;
  (void)hosted_->dispatch();
  nested_ = false;
}

void Walk::act(std::uint64_t id) {
  const auto found = ends_.find(id);
  if (found == ends_.end()) return;
  End& end = *found->second;
  const State state = end.connection->state();
  if (state == State::kConnecting) {
    if (chance(0.01) && !finishing_) drop(end);
    return;
  }
  if (finishing_) return finish(end);
  const double draw = std::uniform_real_distribution<>()(random_);
  // An end does not close before it knows which stream it receives: the loss could not be
  // attributed.
  const bool known = end.in != nullptr;
  const double ends = resumes_ ? 0.15 : 1;
  if (draw < 0.004 * ends && known) return abort(end);
  if (draw < 0.02 * ends && known) return drop(end);
  if (draw < 0.04 * ends && end.client) return finish(end);
  if (draw < 0.05 && type_->has_pending_data(*loop_)) {
    (void)type_->process_pending_data(*loop_);
    return;
  }
  if (draw < 0.4) return (void)write_some(end);
  if (draw < 0.6) return (void)read_some(end);
  if (draw < (crowd_ != 0 ? 0.6001 : 0.62)) {
    // A blocking read of one byte, while other connections wait.
    char byte = 0;
    if (end.in == nullptr) return;
    look_again(end);
    const ssize_t n = end.connection->sync_read(&byte, 1, 2ms);
    if (n == 1) take(end, &byte, 1);
    if (n == 0) return end_of_stream(end);
    // A dead peer also gives ETIMEDOUT.
    if (n < 0 && (errno != ETIMEDOUT || end.connection->state() != State::kConnected)) {
      explain(end);
      return drop(end);
    }
    return;
  }
  set_handlers(end);
}

void Walk::on_readable(std::uint64_t id) {
  const auto found = ends_.find(id);
  if (found == ends_.end()) return complain("a read handler ran after close()");
  if (chance(0.01) && !finishing_ && found->second->in != nullptr) return drop(*found->second);
  if (read_some(*found->second) == Over::kYes) return;
  if (chance(0.1)) set_handlers(*found->second);
  nest();
}

void Walk::on_writable(std::uint64_t id) {
  const auto found = ends_.find(id);
  if (found == ends_.end()) return complain("a write handler ran after close()");
  End& end = *found->second;
  if (finishing_ && end.header.empty()) return end.connection->set_write_handler(nullptr);
  if (write_some(end) == Over::kYes) return;
  if (chance(0.3) && (!end.client || end.header.empty()))
    end.connection->set_write_handler(nullptr);
  nest();
}

ssize_t Walk::write_bytes(End& end, std::size_t size) {
  const testing::Pattern pattern(stream_of(end.number, end.client));
  std::string_view first = pattern.at(end.out->accepted).substr(0, size);
  if (chance(0.2)) return commit_bytes(end, size);
  if (chance(0.2)) return send_bytes(end, size);
  if (chance(0.7)) return end.connection->write(first.data(), first.size());
  const std::string_view second = pattern.at(end.out->accepted + first.size()).substr(0, size);
  const std::array<iovec, 3> pieces = {iovec{const_cast<char*>(first.data()), first.size()},
                                       iovec{nullptr, 0},
                                       iovec{const_cast<char*>(second.data()), second.size()}};
  return end.connection->writev(pieces.data(), 3);
}

ssize_t Walk::commit_bytes(End& end, std::size_t size) {
  const testing::Pattern pattern(stream_of(end.number, end.client));
  const std::string_view bytes = pattern.at(end.out->accepted).substr(0, size);
  size = std::min(bytes.size(), conn::kMaxContiguous);
  const std::span<std::byte> room = end.connection->reserve(size);
  if (room.empty()) return -1;
  if (room.size() < size) complain("reserve() gave less than was asked for");
  std::memcpy(room.data(), bytes.data(), size);
  const std::size_t part = chance(0.1) ? 0 : chance(0.2) ? 1 + size / 2 : size;
  end.connection->commit(part);
  if (chance(0.1)) end.connection->flush();
  return static_cast<ssize_t>(part);
}

ssize_t Walk::send_bytes(End& end, std::size_t size) {
  const testing::Pattern pattern(stream_of(end.number, end.client));
  auto parcel = std::make_unique<Parcel>(
      Parcel{*this, std::string(pattern.at(end.out->accepted).substr(0, size)), nullptr});
  Parcel* const key = parcel.get();
  if (chance(0.7))
    key->memory = type_->register_memory(*loop_, std::as_writable_bytes(std::span(key->bytes)));
  const ssize_t n = end.connection->send(
      {std::as_bytes(std::span(key->bytes)), &Parcel::released, key, key->memory.get()});
  if (n >= 0) parcels_[key] = std::move(parcel);
  return n;
}

void Walk::Parcel::released(void* context, std::error_code) noexcept {
  Walk& walk = static_cast<Parcel*>(context)->walk;
  const auto found = walk.parcels_.find(context);
  if (found == walk.parcels_.end()) return walk.complain("bytes were released twice");
  // If a sender still used the bytes, it would send these.
  std::fill(found->second->bytes.begin(), found->second->bytes.end(), '!');
  walk.parcels_.erase(found);
  walk.nest();
}

Walk::Over Walk::write_some(End& end) {
  if (end.out == nullptr || end.shut) return Over::kNo;
  ssize_t n = 0;
  if (!end.header.empty() && end.client) {
    n = end.connection->write(end.header.data(), end.header.size());
    if (n > 0) end.header.erase(0, static_cast<std::size_t>(n));
  } else {
    n = write_bytes(end, some_size());
    if (n > 0) end.out->accepted += static_cast<std::uint64_t>(n);
  }
  if (n >= 0 || errno == EAGAIN) return Over::kNo;
  end.out->writer_failed = true;
  if (errno == EPIPE && end.connection->state() == State::kConnected) return Over::kNo;
  if (end.connection->last_error().empty() && end.connection->state() == State::kError)
    complain("a write failed without a word");
  explain(end);
  drop(end);
  return Over::kYes;
}

// Reads into buffer_ with one of the calls.
ssize_t Walk::read_bytes(End& end, std::size_t size) {
  look_again(end);
  if (chance(0.3)) return peek_bytes(end, size);
  if (chance(0.8)) return end.connection->read(buffer_.data(), size);
  const std::array<iovec, 3> pieces = {iovec{buffer_.data(), size / 3}, iovec{nullptr, 0},
                                       iovec{buffer_.data() + size / 3, size - size / 3}};
  return end.connection->readv(pieces.data(), 3);
}

ssize_t Walk::peek_bytes(End& end, std::size_t size) {
  // Towards the end the walk must not wait for more bytes than will come.
  const conn::View view = end.connection->peek(finishing_ ? 1 : size);
  if (view.size == 0) return errno == 0 ? 0 : -1;
  size = chance(0.1) ? 0 : std::min<std::size_t>(pick(1, view.size), buffer_.size());
  std::size_t copied = 0;
  for (int i = 0; i < view.count && copied < size; ++i) {
    const iovec& piece = view.pieces[static_cast<std::size_t>(i)];
    const std::size_t part = std::min(piece.iov_len, size - copied);
    std::memcpy(buffer_.data() + copied, piece.iov_base, part);
    copied += part;
  }
  if (copied < size) complain("the pieces of a view are shorter than itself");
  if (size == 0) {
    end.looked = view;
    for (int i = 0; i < view.count; ++i)
      end.seen.append(static_cast<const char*>(view.pieces[static_cast<std::size_t>(i)].iov_base),
                      view.pieces[static_cast<std::size_t>(i)].iov_len);
  }
  end.connection->consume(size);
  if (size != 0) return static_cast<ssize_t>(size);
  errno = EAGAIN;
  return -1;
}

// The view must be unchanged, whatever has happened to the connection since.
void Walk::look_again(End& end) {
  std::string_view seen = end.seen;
  for (int i = 0; i < end.looked.count; ++i) {
    const iovec& piece = end.looked.pieces[static_cast<std::size_t>(i)];
    if (std::memcmp(piece.iov_base, seen.data(), piece.iov_len) != 0)
      complain("bytes changed while they were looked at");
    seen.remove_prefix(piece.iov_len);
  }
  end.looked = {};
  end.seen.clear();
}

Walk::Over Walk::read_some(End& end) {
  const ssize_t n = read_bytes(end, std::min(some_size(), buffer_.size()));
  if (n > 0) {
    take(end, buffer_.data(), static_cast<std::size_t>(n));
    return Over::kNo;
  }
  if (n < 0 && errno == EAGAIN) return Over::kNo;
  if (n == 0) {
    end_of_stream(end);
    return Over::kYes;
  }
  if (end.in != nullptr) end.in->reader_failed = true;
  if (calm_ && !finishing_ && end.out != nullptr && !end.out->reader_gone)
    complain("a read failed in calm weather: " + end.connection->last_error());
  if (end.connection->last_error().empty()) complain("a read failed without a word");
  explain(end);
  drop(end);
  return Over::kYes;
}

void Walk::take(End& end, const char* bytes, std::size_t size) {
  report_.bytes += size;
  if (!end.client && end.in == nullptr) {  // the number comes first
    const std::size_t part = std::min(size, sizeof(std::uint64_t) - end.header.size());
    end.header.append(bytes, part);
    if (end.header.size() < sizeof(std::uint64_t)) return;
    std::uint64_t number = 0;
    std::memcpy(&number, end.header.data(), sizeof number);
    end.header.clear();
    if (streams_.count(number) == 0) return complain("the first bytes of a stream are wrong");
    know(end, number);
    bytes += part;
    size -= part;
  }
  if (size == 0) return;
  const testing::Pattern pattern(stream_of(end.number, !end.client));
  if (!pattern.matches(end.in->received, {bytes, size}))
    complain(
        fmt::format("stream {} differs from what was written at {}", end.number, end.in->received));
  end.in->received += size;
  if (end.in->received > end.in->accepted) complain("more bytes arrived than were written");
}

// End of stream. Without faults all that the peer wrote must have arrived.
void Walk::end_of_stream(End& end) {
  if (end.in != nullptr && calm_ && !end.in->writer_failed && !end.out->reader_gone &&
      end.in->received != end.in->accepted)
    complain(
        fmt::format("a stream of {} bytes ended after {}", end.in->accepted, end.in->received));
  if (resumes_ && end.in != nullptr && end.in->received != end.in->accepted)
    complain(fmt::format("a stream that resumes ended after {} of {} bytes", end.in->received,
                         end.in->accepted));
  end.finished = true;
  drop(end);
}

void Walk::drop(End& end) { take_out(end)->connection.reset(); }

void Walk::abort(End& end) {
  end.out->writer_failed = true;  // what it wrote may be lost
  take_out(end)->connection.release()->abort();
}

std::unique_ptr<Walk::End> Walk::take_out(End& end) {
  const std::uint64_t id = end.connection->id();
  if (end.in != nullptr && !end.finished) end.in->reader_gone = true;
  if (end.out != nullptr) end.out->writer_gone = true;
  loop_->remove_time_event(end.timer);
  std::unique_ptr<End> gone = std::move(ends_.at(id));
  ends_.erase(id);
  return gone;
}

// Writes what is left to write, half-closes, and waits for the other's end of stream.
void Walk::finish(End& end) {
  const std::uint64_t id = end.connection->id();
  end.connection->set_read_handler([this, id](Connection&) { on_readable(id); });
  if (!end.header.empty() && end.client) return (void)write_some(end);
  if (end.shut) return;
  if (type_->capabilities().half_close) {
    end.shut = true;
    if (end.connection->shutdown() != 0) drop(end);
    return;
  }
  // Without half-close one end has to close first: the client does, and loses what it would still
  // have received.
  if (end.client) drop(end);
}

// --- running -------------------------------------------------------------------------------------

template <class Condition>
void Walk::run_until(Condition condition, Nanoseconds span) {
  const Nanoseconds limit = world_.now() + span;
  bool alarm = false;
  const ae::TimerId timer = loop_->add_time_event(span, [&] {
    alarm = true;
    return ae::kNoMore;
  });
  while (!condition() && !alarm && world_.now() < limit && report_.complaint.empty()) turn();
  loop_->remove_time_event(timer);
}

void Walk::make_loop() {
  if (loop_plan_ == LoopPlan::kLibev) {
    loop_ = std::make_unique<ae::LibevLoop>();
    return;
  }
  auto loop = std::make_unique<ae::EpollLoop>();
  if (loop_plan_ == LoopPlan::kHosted) {
    hosted_ = loop.get();
    host_ = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_ctl(host_, EPOLL_CTL_ADD, hosted_->descriptor(), &event) != 0) std::abort();
  }
  loop_ = std::move(loop);
}

Walk::~Walk() {
  if (host_ >= 0) close(host_);
}

void Walk::turn() {
  if (hosted_ == nullptr) return (void)loop_->process_events(ae::kFullIteration);
  if (host_prepares_) (void)hosted_->prepare();
  epoll_event event{};
  (void)epoll_wait(host_, &event, 1, -1);
  (void)hosted_->dispatch();
  for (const std::uint64_t id : std::exchange(to_act_, {})) act(id);
}

void Walk::run_loop(Nanoseconds span) {
  run_until([] { return false; }, span);
}

void Walk::stop_faults() {
  report_.faults += world_.failed_calls();
  world_.config.failing_calls = 0;
  world_.config.weather.slow_message = 0;
  world_.config.weather.stale_requests = 0;
  if (resumes_) {
    bring_back(near_);
    bring_back(far_);
  }
  world_.set_path(*near_, *far_, true);
  for (Device* each : {near_, far_}) {
    world_.set_link(*each, true);
    if (!each->address_present) world_.set_address(*each, true);
  }
}

WalkReport Walk::run() {
  registry_ = std::make_unique<conn::Registry>(conn::all_transports());
  conn::memory::Config memory{.seed = pick(1, 1u << 30)};
  if (!calm_)
    memory.faults = {.short_read = 0.2,
                     .short_write = 0.2,
                     .again = 0.1,
                     .delay = 0.1,
                     .reset = chance(0.3) ? 0.001 : 0};
  registry_->add(std::make_unique<conn::memory::MemoryType>(memory));
  registry_->add(std::make_unique<conn::tls::TlsType>(registry_->require("memory")));
  type_ = &registry_->require(transport_);
  if (transport_.starts_with("tls"))
    type_->configure(
        testing::test_tls_options(transport_ == "tls+memory" || is_rdma_ ? "localhost" : ""));
  make_loop();
  listen();
  to_connect_ = crowd_ != 0 ? crowd_ : pick(1, 8);
  choose_disturbances();
  loop_->add_time_event(1us, [this]() -> ae::Duration {
    if (to_connect_ == 0 || finishing_) return ae::kNoMore;
    connect_one();
    return 1us * pick(1, crowd_ != 0 ? 100 : 20000);
  });
  // Time for a crowd to connect and to do something.
  if (resumes_)
    run_loop(span_);
  else
    run_loop(1ms * pick(5, 120) + 150us * crowd_);

  stop_faults();
  if (resumes_) settle();
  finishing_ = true;
  // Ends that were already waiting act again by their timers. The longest wait is a handshake plus
  // linger; the peer of a machine that fell silent is detected after three keepalives.
  run_until([this] { return ends_.empty(); }, 40s);
  if (!ends_.empty()) {
    const End& end = *ends_.begin()->second;
    complain(fmt::format("a {} is still {} after the end of all faults: {}",
                         end.client ? "client" : "server", conn::to_string(end.connection->state()),
                         end.connection->last_error()));
    for (const auto& [key, value] : end.connection->info())
      report_.story += fmt::format(" {}={}", key, value);
  }
  while (!ends_.empty()) drop(*ends_.begin()->second);
  listener_.reset();
  run_until([this] { return type_->counters(*loop_).open == 0; }, 20s);
  if (type_->counters(*loop_).open != 0) complain("closed connections do not go");
  type_->cleanup(*loop_);
  loop_.reset();
  if (!parcels_.empty()) complain("bytes that were sent in place were never released");
  check_what_is_left();
  return report_;
}

void Walk::check_what_is_left() {
  // Lets disconnect messages that are still under way arrive.
  world_.advance(world_.now() + 1s);
  world_.let_orphans_go();
  for (const auto& [kind, number] : world_.objects())
    complain(fmt::format("left behind: {} {}", number, kind));
  for (const std::string& each : world_.violations()) complain(each);
  if (conn::rdma::registered_bytes() != 0) complain("registered bytes are counted wrong");
  if (conn::rdma::teardown_failures() != 0) complain("something could not be destroyed");
  if (calm_ && world_.receives_missing != 0) complain("a receive queue ran dry");
}

const std::vector<std::string>& walk_transports() {
  static const std::vector<std::string> all = {"rdma", "tls+rdma", "memory", "tls+memory",
                                               "tcp",  "tls",      "unix",   "tls+unix",
                                               "shm",  "tls+shm"};
  return all;
}

LoopPlan loop_plan_from_environment() {
  const char* const text = std::getenv("AECONN_WALK_LOOP");
  const std::string_view name = text != nullptr ? text : "";
  if (name == "libev") return LoopPlan::kLibev;
  if (name == "epoll") return LoopPlan::kEpoll;
  if (name == "hosted") return LoopPlan::kHosted;
  if (name.empty()) return LoopPlan::kSeed;
  throw std::runtime_error("AECONN_WALK_LOOP is libev, epoll or hosted");
}

void prepare_walks() {
  testing::test_identity();
  (void)testing::Pattern(0).at(0);
  // libev reads the clock once more for the first loop of a process.
  const ae::LibevLoop first;
}

// Messages of some hundred kilobytes are copied again and again: malloc() keeps their memory, which
// the kernel would otherwise clear each time.
static void keep_memory() {
  constexpr int kKept = 32 << 20;
  mallopt(M_MMAP_THRESHOLD, kKept);
  mallopt(M_TRIM_THRESHOLD, kKept);
}

WalkReport walk(std::uint64_t seed, const WalkPlan& plan) {
  prepare_walks();
  keep_memory();
  return Walk(seed, {}, plan).run();
}

WalkReport walk(std::span<const std::uint8_t> choices, const WalkPlan& plan) {
  prepare_walks();
  keep_memory();
  return Walk(choices.size(), choices, plan).run();
}

}  // namespace simulation
