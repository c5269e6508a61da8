// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Faults on a real device (tag [.rdma-faults] and the like, run by tests/softroce/faults): commands
// that make them, what a case has to leave as it found it, traffic whose bytes are checked, and
// processes that can be killed, stopped and limited.

#include <memory>
#include <string>
#include <vector>

#include "tests/support/rdma_kit.h"

namespace testing {

// --- commands ------------------------------------------------------------------------------------

/// Runs a line of shell; the test fails if it does.
void command(const std::string& line);
/// A command that is a fault. They are counted, and their number is printed at the end of the run.
void inject(const std::string& line);
void count_faults(unsigned count = 1);
/// Whether this is the microVM with two rxe devices on a veth pair (prints why the test is
/// skipped).
bool on_veth();
/// The same for rxe0 on dummy0.
bool on_dummy();

/// Starts a command that may wait for us to let go of something; its end is a file.
class Background {
 public:
  explicit Background(const std::string& line);
  bool ended() const;

 private:
  TempFolder folder_;
  std::string done_;
};

// --- what is left as it was ----------------------------------------------------------------------

/// The kernel's objects on all devices, our descriptors, locked and pinned memory, what we have
/// registered, and the kernel's log: checked when it goes out of scope, so it comes first in a
/// test.
class Baseline {
 public:
  Baseline();
  ~Baseline();
  Baseline(const Baseline&) = delete;
  Baseline& operator=(const Baseline&) = delete;
  /// A warning of the kernel that is expected: part of the line.
  void allow(std::string warning) { allowed_.push_back(std::move(warning)); }

 private:
  static std::string held();
  std::vector<std::string> new_warnings() const;

  int log_;
  std::string before_;
  std::vector<std::string> allowed_ = {
      "hrtimer: interrupt took",               // an emulated processor that had to wait
      "speed is unknown, defaulting to 1000",  // ib_core of every dummy interface it looks at
  };
};

/// A line of /proc/PID/status in KiB, as in status_kib("self", "VmPin").
long status_kib(const std::string& process, const std::string& name);

// --- traffic -------------------------------------------------------------------------------------

/// Pairs of ends on one loop; the clients' are on the second device where there is one.
struct FaultBed : Site {
  explicit FaultBed(const std::string& scheme, const std::string& listener_options = {},
                    const std::string& client_options = {}, unsigned pairs = 1);
  ~FaultBed();
  /// Where a client connects to, with options.
  conn::Endpoint target(const std::string& options = {}) const;
  /// One more pair.
  void add_pair();
  /// Connects and echoes, after as many tries as it takes.
  void serves_again();
  std::vector<conn::ConnectionPtr> both_ends();

  std::string scheme, client_options;
  std::vector<conn::ConnectionPtr> clients, servers;
  conn::ConnectionPtr newest;  ///< accepted, and not yet of a pair
  conn::ListenerPtr listener;
};

/// Checked bytes in both directions of all pairs of a bed.
class Streams {
 public:
  static constexpr std::uint64_t kEndless = ~std::uint64_t{0};
  explicit Streams(FaultBed& bed, std::uint64_t bytes_each_way = kEndless);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  std::uint64_t received() const;  ///< by all ends
  bool complete() const;           ///< every end has all its bytes
  bool failed() const;             ///< some end does not go on
  bool all_over() const;           ///< no end goes on
  bool intact() const;             ///< nothing but the other end's bytes, in order
  std::string errors() const;
  /// Runs until another `bytes` have come through.
  void go_on(std::uint64_t bytes = 200'000);
  /// Runs until complete; nothing failed, and every byte was right.
  void finish();
  /// Every end has ended, with an error in words or as a stream does, and none in between got a
  /// byte that was not sent.
  void check_all_over();

 private:
  struct End {
    conn::Connection* connection;
    std::unique_ptr<Sender> sender;
    std::unique_ptr<Receiver> receiver;
    bool over() const { return receiver->ended || receiver->error != 0; }
  };
  FaultBed& bed_;
  const std::uint64_t total_;
  std::vector<End> ends_;
};

// --- other processes -----------------------------------------------------------------------------

/// A process that carries out orders, to be limited, stopped and killed: "listen URL", "connect
/// URL", "blast URL" (connects and writes without end), "close". Its answers are "ok ...", with the
/// address for listen, or "error ...". What it accepts or connects it echoes. It is this program
/// once more: a fork would share what librdmacm has open here, and leave things there when killed.
class Subject {
 public:
  enum class User : bool { kRoot, kNobody };
  explicit Subject(User user = User::kRoot);
  ~Subject();
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;
  /// Runs our loop until the order is answered.
  std::string ask(ae::EventLoop& loop, const std::string& order);
  void order(const std::string& line) const;
  bool answered();
  std::string answer;
  void signal(int number) const { child_->signal(number); }
  pid_t pid() const noexcept { return child_->pid(); }
  std::size_t descriptors() const;
  std::size_t highest_descriptor() const;
  void limit(int resource, std::uint64_t value) const;

 private:
  int fd_ = -1;
  std::string partial_;
  std::unique_ptr<Child> child_;
};

}  // namespace testing
