// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// For tests of faults on a real device (tags such as [.rdma-faults], run by tests/softroce/faults):
// commands that cause the faults, a check that a case leaves everything as it found it, traffic
// whose bytes are verified, and processes that can be killed, stopped and limited.

#include <memory>
#include <string>
#include <vector>

#include "tests/support/rdma_kit.h"

namespace testing {

// --- commands ------------------------------------------------------------------------------------

/// Runs a shell command; the test fails if the command does.
void command(const std::string& line);
/// Runs a command that causes a fault. Faults are counted, and their number is printed at the end
/// of the run.
void inject(const std::string& line);
void count_faults(unsigned count = 1);
/// Whether this is the virtual machine with two rxe devices on a veth pair (otherwise prints why
/// the test is skipped).
bool on_veth();
/// The same for the machine with rxe0 on dummy0.
bool on_dummy();

/// Starts a command that may have to wait until the test releases something; on completion it
/// creates a file.
class Background {
 public:
  explicit Background(const std::string& line);
  bool ended() const;
  /// Its exit status, once it has ended.
  int status() const;

 private:
  TempFolder folder_;
  std::string done_;
};

// --- checks for leftovers ------------------------------------------------------------------------

/// Compares kernel objects on all devices, the process's descriptors, locked, pinned and registered
/// memory, and the kernel's log when it goes out of scope with the state at its construction. Must
/// be the first object of a test.
class Baseline {
 public:
  Baseline();
  ~Baseline();
  Baseline(const Baseline&) = delete;
  Baseline& operator=(const Baseline&) = delete;
  /// Expects a kernel warning that contains this text.
  void allow(std::string warning) { allowed_.push_back(std::move(warning)); }

 private:
  static std::string held();
  std::vector<std::string> new_warnings() const;

  int log_;
  std::string before_;
  std::vector<std::string> allowed_ = {
      "hrtimer: interrupt took",               // an emulated processor that had to wait
      "speed is unknown, defaulting to 1000",  // ib_core, for each dummy interface
  };
};

/// A field of /proc/PID/status in KiB, as in status_kib("self", "VmPin").
long status_kib(const std::string& process, const std::string& name);

// --- traffic -------------------------------------------------------------------------------------

/// Pairs of connected ends on one loop; the clients use the second device if there is one.
struct FaultBed : Site {
  explicit FaultBed(const std::string& scheme, const std::string& listener_options = {},
                    const std::string& client_options = {}, unsigned pairs = 1);
  ~FaultBed();
  /// The address for clients, with options.
  conn::Endpoint target(const std::string& options = {}) const;
  /// Connects one more pair.
  void add_pair();
  /// Connects and echoes, with retries until that succeeds.
  void serves_again();
  std::vector<conn::ConnectionPtr> both_ends();

  std::string scheme, client_options;
  std::vector<conn::ConnectionPtr> clients, servers;
  conn::ConnectionPtr newest;  ///< accepted, but not part of a pair yet
  conn::ListenerPtr listener;
};

/// Verified traffic in both directions of all pairs of a bed.
class Streams {
 public:
  static constexpr std::uint64_t kEndless = ~std::uint64_t{0};
  explicit Streams(FaultBed& bed, std::uint64_t bytes_each_way = kEndless);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  std::uint64_t received() const;  ///< by all ends together
  bool complete() const;           ///< all ends have received everything
  bool failed() const;             ///< at least one end has ended
  bool all_over() const;           ///< all ends have ended
  bool intact() const;             ///< all ends received only the other end's bytes, in order
  std::string errors() const;
  /// Runs until another `bytes` bytes have been received.
  void go_on(std::uint64_t bytes = 200'000);
  /// Runs until complete; no end may fail, and each byte must be right.
  void finish();
  /// All ends must have ended, with an error text or an end of stream, without having received a
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

/// A process that executes orders and can be limited, stopped and killed. Orders: "listen URL",
/// "connect URL", "blast URL" (connects and writes endlessly), "close". Answers: "ok ..." (for
/// listen with the address) or "error ...". It echoes on its connections. It runs this program
/// again with exec: a fork would share librdmacm's open devices and leave objects there when
/// killed.
class Subject {
 public:
  enum class User : bool { kRoot, kNobody };
  explicit Subject(User user = User::kRoot);
  ~Subject();
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;
  /// Runs this process's loop until the order is answered.
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
