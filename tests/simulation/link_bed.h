// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The parts of an RDMA connection without the connection: a Link on one simulated device, whose
// peer is the test. The bed records what the loop and the parts report. The queue pair is ready to
// send, and requests stay on it.

#include <netinet/in.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conn/rdma/deadline.h"
#include "conn/rdma/ending.h"
#include "conn/rdma/link.h"
#include "conn/rdma/path_recovery.h"
#include "conn/rdma/posting.h"
#include "conn/rdma/reader.h"
#include "conn/rdma/setup.h"
#include "conn/rdma/type.h"
#include "tests/simulation/freed.h"
#include "tests/simulation/objects.h"
#include "tests/simulation/run_for.h"
#include "tests/simulation/world.h"
#include "tests/support/any_loop.h"
#include "tests/support/catch.h"
#include "tests/support/stuck_transport.h"
#include "tests/support/testing.h"

namespace simulation {

struct LinkBed final : conn::rdma::LinkUser,
                       conn::rdma::DeadlineUser,
                       conn::rdma::SetupUser,
                       conn::rdma::PathRecoveryUser {
  using Phase = conn::rdma::Phase;
  using Hello = conn::rdma::Hello;
  using Role = conn::rdma::Role;

  explicit LinkBed(const std::string& options = {}, const char* profile = "hns",
                   Role role = Role::kClient)
      : device(&world.add_device("sim0", "10.77.0.1", profile_named(profile))),
        settings(std::make_shared<const conn::rdma::Settings>(
            conn::rdma::Settings::from(conn::Options::parse(options)))),
        link(state, settings, role, *this) {
    state.make_room(1);
    connection->connect(conn::Endpoint::parse("stuck://x"), [](conn::Connection&) {});
    stuck.connect_all();
    carrier = *stuck.established.begin();
  }
  ~LinkBed() {
    posting.clear_pace(&loop);
    deadline.clear(&loop);
    setup.reset();
    link.sender.queue().commit(0);
    link.tear_down();
    state.forget(*this);
  }
  LinkBed(const LinkBed&) = delete;
  LinkBed& operator=(const LinkBed&) = delete;

  conn::CarrierHost& host() const { return carrier->host(); }
  conn::rdma::PathRecovery::Around around() {
    return {link,  deadline, ending,           posting, reader,
            setup, *carrier, type.addresses(), *this,   *this};
  }
  QueuePair& queue_pair() const { return *static_cast<QueuePair*>(link.queue_pair()); }

  /// Makes an rdma_cm id that is bound to the device.
  void make_id() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, "10.77.0.1", &address.sin_addr);
    link.id() = state.cm()->create_id(static_cast<conn::rdma::CmUser*>(this));
    REQUIRE(rdma_bind_addr(link.id().get(), reinterpret_cast<sockaddr*>(&address)) == 0);
    link.id()->port_num = 1;
  }
  /// Makes the objects of a path.
  void make_path() {
    make_id();
    link.make(false);
    queue_pair().actual = queue_pair().state = IBV_QPS_RTS;
  }
  /// Opens the connection on its first path. `flags`: those of the peer's hello; 0: it sent none.
  void open(std::uint32_t flags = 0) {
    link.stage.move(Phase::kResolving);
    link.renew_stream(1);
    make_path();
    link.stage.move(Phase::kConnecting);
    if (flags != 0) link.stream.on_hello({.flags = flags});
    link.stage.move(Phase::kOpen);
  }
  /// The peer offers a window.
  void offer(std::uint32_t length = 4096) {
    link.stream.on_control(conn::rdma::encode(conn::rdma::ControlMessage{
                               .opcode = conn::rdma::Opcode::kRegisterXferMemory,
                               .address = 0x10000,
                               .length = length,
                               .key = 7}),
                           state.now());
    REQUIRE(link.stream.failure() == nullptr);
  }
  void stage(const std::string& bytes) {
    REQUIRE(link.sender.queue().append(reinterpret_cast<const std::byte*>(bytes.data()),
                                       bytes.size(), settings->limit()) == bytes.size());
  }
  void run_for(Nanoseconds span) { simulation::run_for(loop, span); }
  /// What was called since the last time, in order.
  std::string take() { return std::exchange(calls, {}); }

  // Overrides of LinkUser.
  void post_due() noexcept override { calls += "post "; }
  void on_tick(ae::TimePoint, ae::Duration) noexcept override { ticked = true; }
  ae::TimePoint next_tick() const noexcept override { return ae::TimePoint::max(); }
  void on_memory() noexcept override { calls += "memory "; }
  void reap() override { calls += "reap "; }
  std::optional<ae::TimePoint> pace_at() const noexcept override { return posting.pace_at(); }
  void on_sends_done(std::uint32_t sequence) override {
    calls += "sent-" + std::to_string(sequence) + ' ';
    if (when_completed) when_completed();
  }
  void on_immediate(std::uint32_t length) override {
    calls += "data-" + std::to_string(length) + ' ';
  }
  void on_message(std::span<const std::byte> bytes) override {
    calls += "message-" + std::to_string(bytes.size()) + ' ';
  }
  void on_work_failed(ibv_wc_status, bool was_send, std::uint32_t sequence) override {
    calls += was_send ? "failed-send-" + std::to_string(sequence) + ' ' : "failed-receive ";
  }
  void on_event(const conn::rdma::QueuePairEvent&) override {}
  void on_no_memory() noexcept override { calls += "no-memory "; }
  conn::rdma::ReceiveQueue* receives() noexcept override { return link.receives(); }
  void on_cm_event(const conn::rdma::CmEvent& event) override {
    calls += "event ";
    if (when_event) when_event(event);
  }
  // Overrides of DeadlineUser, SetupUser and PathRecoveryUser.
  void on_deadline(conn::rdma::Deadline::Of what) override {
    calls += "deadline ";
    expired.push_back(what);
    if (when_expired) when_expired();
  }
  void on_set_up() override { calls += "set-up "; }
  void on_set_up_failed(conn::Failure) noexcept override { calls += "set-up-failed "; }
  void on_progress() noexcept override { calls += "progress "; }
  void end_with(conn::Failure failure, conn::rdma::Unread) noexcept override {
    calls += "end ";
    ended = std::move(failure);
    if (!link.stage.ended()) link.stage.move(Phase::kDead);
  }
  void on_peer_closed_without_path(conn::Failure) noexcept override { calls += "peer-closed "; }
  void begin_disconnect(ae::Duration) noexcept override { calls += "disconnect "; }
  void begin_abort() noexcept override { calls += "abort "; }
  void finish() noexcept override { calls += "finish "; }

  World world;
  Device* device;
  conn::rdma::RdmaType type;
  testing::StuckType stuck;
  testing::AnyLoop loop;
  conn::rdma::LoopState& state = conn::rdma::LoopState::of(loop, type);
  conn::ConnectionPtr connection = stuck.create(loop);
  conn::Carrier* carrier = nullptr;
  std::shared_ptr<const conn::rdma::Settings> settings;
  conn::rdma::Link link;
  conn::rdma::Posting posting{link};
  conn::rdma::Ending ending{link};
  conn::rdma::Deadline deadline{state, *this};
  conn::rdma::Reader reader;
  std::unique_ptr<conn::rdma::Setup> setup;

  std::string calls;
  std::vector<conn::rdma::Deadline::Of> expired;
  std::function<void()> when_expired, when_completed;
  std::function<void(const conn::rdma::CmEvent&)> when_event;
  conn::Failure ended;
  bool ticked = false;
};

}  // namespace simulation
