// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// stuck://anything: a transport whose connections do what the test says, at the moment it says so.

#include <cerrno>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <system_error>

#include "conn/core/make_connection.h"
#include "conn/core/transport.h"
#include "conn/error.h"
#include "conn/spi/carrier.h"

namespace testing {

class StuckType final : public conn::Transport {
 public:
  explicit StuckType(std::string name = "stuck") : name_(std::move(name)) {}

  std::string_view name() const noexcept override { return name_; }
  conn::Capabilities capabilities() const noexcept override { return can; }
  void configure(const conn::Options&) override {}
  const conn::OptionTable* option_table() const noexcept override { return &options_; }
  void check(const conn::Endpoint& endpoint) const override { options_.only(endpoint.options); }
  conn::ListenerPtr listen(ae::EventLoop&, const conn::Endpoint&,
                           conn::AcceptHandler) const override {
    throw conn::Error({listen_error, std::generic_category()}, name_ + " does not listen");
  }
  conn::ConnectionPtr create(ae::EventLoop& loop) const override {
    if (broken) throw cause();
    return conn::make_connection<Stuck>(loop, *this).first;
  }

  /// Ends the connecting of all that wait.
  void fail_all(int err) {
    for (Stuck* each : std::set(waiting)) each->finish(err);
  }
  void connect_all() { fail_all(0); }
  /// Each established connection reads one byte and accepts writes.
  void let_all_go_on() {
    flows = true;
    for (Stuck* each : std::set(established)) each->readable();
  }
  /// Ends all connections that are established.
  void lose_all() {
    for (Stuck* each : std::set(established)) each->lose();
  }

  /// All that there are, so that a list has those of the others in it.
  conn::Capabilities can{.half_close = true, .rebind = true, .descriptor = true, .integrity = true};
  bool broken = false;                       ///< create() throws
  int create_error = ENODEV;                 ///< the code of what create() throws
  int listen_error = EADDRNOTAVAIL;          ///< the code of what listen() throws
  bool write_throws = false;                 ///< std::bad_alloc
  bool flows = false;                        ///< read() and writev() transfer a byte
  bool interest_throws = false;              ///< std::bad_alloc: no handler can be set
  int fail_at_once = 0;                      ///< an errno: they fail as soon as they may
  std::chrono::milliseconds retry_after{0};  ///< which failures ask for
  conn::Error cause() const {
    return {std::error_code(create_error, std::generic_category()),
            name_ + (create_error == ENODEV ? " has no device" : " cannot be used")};
  }
  conn::Failure failure(int err) const {
    conn::Failure why = conn::errno_failure(err, "connect by " + name_);
    why.retry_after = retry_after;
    return why;
  }
  bool has_pending_data(ae::EventLoop&) const override { return pending != 0; }
  std::size_t process_pending_data(ae::EventLoop&) const override {
    return std::exchange(pending, 0);
  }
  void cleanup(ae::EventLoop&) const override { ++cleanups; }
  mutable std::size_t pending = 0;  ///< number of handlers that are due
  mutable int cleanups = 0;         ///< number of calls of cleanup()
  std::vector<conn::Capacity> capacity(const conn::Endpoint&,
                                       std::uint64_t connections) const override {
    if (broken) throw cause();
    conn::Capacity one;
    one.name = name_;
    one.most = 1;
    one.needed = connections;
    return {one};
  }

 private:
  class Stuck final : public conn::Carrier {
   public:
    explicit Stuck(const StuckType& type) : Carrier(type), type_(const_cast<StuckType&>(type)) {}
    ~Stuck() override { forget(); }
    void finish(int err) {
      type_.waiting.erase(this);
      if (err == 0) {
        type_.established.insert(this);
        move_to(conn::State::kConnected);
      } else {
        fail(type_.failure(err));
      }
      (void)host().run_connect_handler();
    }
    void readable() { (void)host().run_read_handler(); }
    void lose() {
      type_.established.erase(this);
      fail(type_.failure(ECONNRESET));
      host().peer_gone();
    }
    void forget() {
      type_.waiting.erase(this);
      type_.established.erase(this);
    }
    std::string local_address() const override { return "here"; }
    std::string peer_address() const override { return "there"; }
    std::optional<bool> is_local() const override { return true; }

    void connect(const conn::Endpoint&) override {
      type_.waiting.insert(this);
      ++type_.tried;
      if (type_.fail_at_once == 0) return;
      timer_ = loop()->add_time_event(ae::Duration::zero(), [this] {
        timer_ = 0;
        finish(type_.fail_at_once);
        return ae::kNoMore;
      });
    }
    void connect_blocking(const conn::Endpoint&, ae::TimePoint) override {
      ++type_.tried;
      if (type_.fail_at_once != 0) fail(type_.failure(type_.fail_at_once));
    }
    ssize_t read(void*, std::size_t) override { return type_.flows ? 1 : again(); }
    ssize_t writev(const iovec*, int) override {
      if (type_.write_throws) throw std::bad_alloc();
      return type_.flows ? 1 : again();
    }
    void interest_changed() override {
      if (type_.interest_throws) throw std::bad_alloc();
      if (!host().wants_write() || state() != conn::State::kConnected || timer_ != 0) return;
      timer_ = loop()->add_time_event(ae::Duration::zero(), [this] {
        timer_ = 0;
        if (host().run_write_handler() == Alive::kYes) interest_changed();
        return ae::kNoMore;
      });
    }
    int shutdown() override { return 0; }
    void close() noexcept override {
      if (timer_ != 0) loop()->remove_time_event(timer_);
      forget();
      host().release();
    }
    bool wait_for(ae::Mask, ae::TimePoint) override { return false; }
    void abandon() noexcept override {
      if (timer_ != 0) loop()->remove_time_event(timer_);
      forget();
    }

   private:
    static ssize_t again() {
      errno = EAGAIN;
      return -1;
    }
    StuckType& type_;
    ae::TimerId timer_ = 0;
  };
  const std::string name_;
  const conn::OptionTable options_{
      name_, {{"", {conn::OptionRow::text("glue", conn::OptionSide::kBoth, "", "any", "")}}}};

 public:
  std::set<Stuck*> waiting, established;
  int tried = 0;
};

}  // namespace testing
