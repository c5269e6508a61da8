// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Inside of adapters/descriptor.h: moves bytes between a connection and a Unix socket, whose other
// end is the user's descriptor.
//
// `input` goes from the connection to the socket, directly from the connection's memory. `output`
// goes from the socket into memory that the connection sends from. Each direction moves only as
// much as its receiver accepts, so a slow reader stops the writer.
//
// While nothing is read from a socket, no file event reports that its other end was closed. So the
// loop also watches an epoll instance with all the sockets, which reports only this.

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <memory>
#include <new>
#include <span>
#include <system_error>
#include <utility>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/connection.h"
#include "conn/connection_type.h"
#include "conn/core/connection_set.h"
#include "conn/error.h"

namespace adapters { inline namespace AECONN_ABI { namespace detail {

class Pump;
using PumpList = std::list<std::unique_ptr<Pump>>;

/// The pumps of one loop. To be used on the loop's thread.
class Pumps final : public ae::LoopLocal, private conn::LoopEndWatcher {
 public:
  using Ended = std::function<void(const conn::Failure&)>;

  static Pumps& of(ae::EventLoop& loop) {
    static const char key = 0;
    std::unique_ptr<ae::LoopLocal>& slot = loop.local(&key);
    if (!slot) {
      conn::ConnectionSet& set = conn::ConnectionSet::of(loop);
      auto pumps = std::make_unique<Pumps>(loop);
      set.add(*pumps);
      slot = std::move(pumps);
    }
    return static_cast<Pumps&>(*slot);
  }
  explicit Pumps(ae::EventLoop& loop) : loop_(loop) {}
  ~Pumps() override;
  void after_fork() noexcept override;

  /// Returns the user's descriptor. Takes ownership of the connection, unless it throws.
  int add(conn::ConnectionPtr& connection, Ended ended);
  /// Called when the pump has finished. The loop destroys it later.
  void remove(Pump& pump) noexcept;
  ae::EventLoop& loop() noexcept { return loop_; }

 private:
  static constexpr int kBatch = 64;

  [[noreturn]] static void refuse(int err) {
    throw std::system_error(err, std::generic_category(), "a descriptor for a connection");
  }
  // Runs while all connections of the loop still work, whichever state of the loop is destroyed
  // first.
  void on_loop_end() noexcept override;
  void open_epoll();
  void close_epoll() noexcept;
  void tell_closed() noexcept;
  void forget_all() noexcept;

  ae::EventLoop& loop_;
  int epoll_ = -1;
  // A child of fork() shares the sockets and the epoll instance with this process, and must change
  // neither.
  pid_t owner_ = ::getpid();
  PumpList all_;
};

/// One connection and its socket.
class Pump final : public ae::Deferred {
 public:
  Pump(Pumps& all, int socket, Pumps::Ended ended)
      : all_(all), socket_(socket), ended_(std::move(ended)) {}
  ~Pump() override { close_socket(); }

  PumpList::iterator place;  ///< position of this object in the list of Pumps
  int socket() const noexcept { return socket_; }

  /// Sets the handlers of the connection. The caller still owns the connection; own() passes it on.
  void begin(conn::Connection& connection) {
    its_ = &connection;
    its_->clear_handlers();
    its_->set_close_handler([this](conn::Connection&) { attempt(&Pump::failed); },
                            conn::CloseOn::kFailure);
    read_on();
    watch();
  }
  /// To be called if begin() has thrown: the caller keeps the connection.
  void give_back() noexcept {
    over_ = true;
    watch();
    its_->clear_handlers();
  }
  void own(conn::ConnectionPtr&& connection) noexcept { connection_ = std::move(connection); }

  /// Called when the descriptor was closed, or both directions of the socket have ended.
  void closed() noexcept {
    closed_ = true;
    attempt(&Pump::output);
  }
  /// Called when the loop ends: passes on what the user has written, as far as the connection
  /// accepts it.
  void loop_ends() noexcept {
    attempt(&Pump::last_output);
    if (over_) return;
    try {
      finish(false, {std::make_error_code(std::errc::operation_canceled), "the loop has ended"});
    } catch (const std::bad_alloc&) {
      finish(false, conn::out_of_memory());
    }
  }
  /// Called in a child of fork(): closes the child's copies of the descriptors, which does not
  /// affect the parent.
  void forget() noexcept {
    over_ = true;
    stop_timer();
    watch();
    its_->clear_handlers();
    connection_.reset();
    close_socket();
  }

 private:
  // How many pieces one direction moves before other connections are served.
  static constexpr int kTurn = 16;
  // If a piece of input is smaller than this, there is probably no more input.
  static constexpr std::size_t kSmallPiece = 4096;
  // Memory to request if the next piece of output is likely to be small.
  static constexpr std::size_t kLeastRoom = 16 * 1024;
  // How long the remaining output may make no progress after the descriptor was closed.
  static constexpr ae::Duration kLastWords = std::chrono::seconds(3);
  // The same time if both ends have ended their streams: then the descriptor may still be open,
  // which the socket does not report.
  static constexpr ae::Duration kLastWordsOfBoth = std::chrono::seconds(60);
  // Interval of checks whether the output has left the kernel.
  static constexpr ae::Duration kCheck = std::chrono::milliseconds(10);

  /// Calls `step`. If memory runs out in it, only this connection ends.
  void attempt(void (Pump::*step)()) noexcept {
    if (over_) return;
    try {
      (this->*step)();
    } catch (const std::bad_alloc&) {
      finish(true, conn::out_of_memory());
    }
  }

  // --- from the connection to the socket ---------------------------------------------------------
  void read_on() {
    if (reading_) return;
    its_->set_read_handler([this](conn::Connection&) { attempt(&Pump::input); });
    reading_ = true;
  }
  void stop_reading() {
    if (std::exchange(reading_, false)) its_->set_read_handler(nullptr);
  }

  void input() {
    for (int i = 0; i < kTurn && !input_over_; ++i) {
      const conn::View view = its_->peek();
      if (view.size == 0) return nothing_read(errno);
      msghdr message{};
      message.msg_iov = const_cast<iovec*>(view.pieces.data());
      message.msg_iovlen = static_cast<std::size_t>(view.count);
      const ssize_t n = ::sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) {
        aborted_ = aborted_ || errno == ECONNRESET;
        return discard_input();
      }
      if (n < 0) return wait_for_user();  // most likely EAGAIN
      const auto taken = static_cast<std::size_t>(n);
      its_->consume(taken);
      // There is probably no more input: if there is, the loop reports it, which costs less than
      // another read.
      if (taken == view.size && taken < kSmallPiece) break;
    }
    if (!input_over_) read_on();
  }

  void nothing_read(int error) {
    if (error == 0) return input_ended();
    if (error != EAGAIN && error != ENOMEM) return finish(false, its_->why_ended());
    read_on();
  }

  void wait_for_user() {
    user_full_ = true;
    stop_reading();
    watch();
  }
  void user_accepts() {
    user_full_ = false;
    watch();
    input();
  }

  void input_ended() {
    input_over_ = true;
    stop_reading();
    // Over a transport without half-close, and over rdma to some peers, the other direction has
    // ended as well.
    if (output_over_ || !its_->type().capabilities().half_close ||
        its_->state() != conn::State::kConnected)
      return finish(false, its_->why_ended());
    (void)::shutdown(socket_, SHUT_WR);
    shut_ = true;
  }

  /// Called when the user reads no more. The input is read and discarded, because the peer may
  /// accept no output before that.
  void discard_input() {
    input_over_ = true;
    reading_ = false;
    watch();
    its_->set_read_handler([](conn::Connection& from) {
      for (int i = 0; i < kTurn; ++i) {
        const conn::View view = from.peek();
        if (view.size == 0) {
          if (errno != EAGAIN) from.set_read_handler(nullptr);
          return;
        }
        from.consume(view.size);
      }
    });
  }

  // --- from the socket to the connection ---------------------------------------------------------
  void output() {
    // After a small piece there is probably no more output: if there is, the loop reports it.
    for (int i = 0; i < kTurn && wants_output();) i = move_output() < kSmallPiece ? kTurn : i + 1;
    if (over_) return;
    if (closed_) user_is_gone();
    if (!over_) watch();
  }
  void last_output() {
    while (wants_output() && move_output() != 0) {
    }
  }
  bool wants_output() const noexcept { return !over_ && !output_over_ && !connection_full_; }

  /// Returns how many bytes it moved.
  std::size_t move_output() {
    const std::span<std::byte> room = its_->reserve(piece_);
    if (room.empty()) return wait_for_connection(errno), 0;
    const ssize_t n = ::recv(socket_, room.data(), room.size(), MSG_DONTWAIT);
    const int error = n < 0 ? errno : 0;
    const std::size_t moved = n > 0 ? static_cast<std::size_t>(n) : 0;
    its_->commit(moved);
    if (moved == 0) return nothing_written(error), 0;
    // A read that filled the memory probably has more to follow.
    piece_ = moved == room.size() ? conn::kMaxContiguous : kLeastRoom;
    if (closed_ && timer_ != 0) (void)all_.loop().again(timer_, last_words());
    return moved;
  }

  void wait_for_connection(int error) {
    if (error != EAGAIN && error != ENOMEM) return output_failed();
    connection_full_ = true;
    its_->set_write_handler([this](conn::Connection&) {
      connection_full_ = false;
      its_->set_write_handler(nullptr);
      attempt(&Pump::output);
    });
  }

  void nothing_written(int error) {
    // If the kernel has no memory, this is tried again: the bytes still wait in the socket.
    if (error == EAGAIN || error == EINTR || error == ENOMEM || error == ENOBUFS) return;
    output_over_ = true;
    waits_until_ = all_.loop().now() + kLastWords;
    // The user has closed the descriptor, with unread bytes.
    if (error == ECONNRESET) aborted_ = closed_ = true;
    if (closed_) return;  // output() ends the connection
    if (input_over_ && shut_) return finish(false, {});
    // If the peer does not support half-close, the end of one direction ends both. Any other
    // failure is a failure of the connection, which reading and the close handler report.
    if (its_->shutdown() != 0 && errno == EOPNOTSUPP) finish(false, {});
  }

  /// Called when the connection accepts no more output: from now on the user's writes fail. What
  /// the peer has sent before is still read.
  void output_failed() {
    output_over_ = true;
    (void)::shutdown(socket_, SHUT_RD);
    watch();
    if (input_over_) finish(false, its_->why_ended());
  }

  // --- the end -----------------------------------------------------------------------------------
  /// Called when the connection has failed, possibly while nothing is read from it.
  void failed() {
    if (!output_over_) return output_failed();
    if (input_over_) finish(false, its_->why_ended());
  }

  void user_is_gone() {
    if (!input_over_) discard_input();
    if (!leaving_) {
      leaving_ = true;
      int err = 0;
      socklen_t size = sizeof err;
      // The kernel reports once that the user had not read everything.
      if (::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &err, &size) == 0 && err == ECONNRESET)
        aborted_ = true;
      waits_until_ = all_.loop().now() + kLastWords;
      if (!output_over_) start_timer(last_words(), &Pump::give_up);
    }
    if (output_over_ && !aborted_) return finish_when_passed_on();
    if (output_over_) abort_when_delivered();
  }
  ae::Duration last_words() const noexcept { return shut_ ? kLastWordsOfBoth : kLastWords; }
  void give_up() { finish(true, {}); }

  /// The connection may still hold output, as tls does until the layer below accepts it. The
  /// connection is reported as ended only when it holds none, because the program may then end the
  /// loop.
  void finish_when_passed_on() {
    if (holds_output() && goes_on()) return start_timer(kCheck, &Pump::finish_when_passed_on);
    finish(false, {});
  }

  /// Called when the user has closed the descriptor without reading all: the peer receives the
  /// output, and then sees that the connection was cut.
  void abort_when_delivered() {
    int bytes = 0;
    const bool unsent = holds_output() || (its_->type().capabilities().reset && its_->fd() >= 0 &&
                                           ::ioctl(its_->fd(), SIOCOUTQ, &bytes) == 0 && bytes > 0);
    if (unsent && goes_on()) return start_timer(kCheck, &Pump::abort_when_delivered);
    finish(true, {});
  }

  /// Returns true if the connection has not failed, and has output that its transport or its
  /// device has not taken. (A failure may have the code ETIMEDOUT, too.)
  bool holds_output() {
    its_->flush();
    return its_->sync_write(nullptr, 0, ae::Duration::zero()) != 0 && errno == ETIMEDOUT &&
           its_->state() != conn::State::kError && !its_->why_ended();
  }

  /// Returns whether the rest of the output may still wait: it has made progress within the time of
  /// kLastWords. The connection tells by info() how much is left.
  bool goes_on() {
    std::uint64_t left = 0;
    for (const auto& [key, value] : its_->info()) {
      std::uint64_t bytes = 0;
      if (key == "pending" || key == "unsent" || key == "unconfirmed")
        (void)std::from_chars(value.data(), value.data() + value.size(), bytes);
      left += bytes;
    }
    const ae::TimePoint now = all_.loop().now();
    if (std::exchange(left_, left) != left) waits_until_ = now + kLastWords;
    return now < waits_until_;
  }

  void start_timer(ae::Duration delay, void (Pump::*then)()) {
    stop_timer();
    timer_ = all_.loop().add_time_event(delay, [this, then] {
      timer_ = 0;
      attempt(then);
      return ae::kNoMore;
    });
  }
  void stop_timer() noexcept {
    if (timer_ != 0) all_.loop().remove_time_event(std::exchange(timer_, 0));
  }

  void finish(bool abort, const conn::Failure& why) noexcept {
    if (over_) return;
    over_ = true;
    stop_timer();
    watch();
    its_->clear_handlers();
    if (ended_) ended_(why);
    // If bytes are unread, the user's end is reset. Otherwise the socket is shut down, so that the
    // user sees the end even if a child process has inherited the socket.
    int unread = 0;
    if (::ioctl(socket_, SIOCINQ, &unread) == 0 && unread == 0)
      (void)::shutdown(socket_, SHUT_RDWR);
    conn::ConnectionPtr last = std::move(connection_);
    all_.remove(*this);
    close_socket();
    if (abort) last.release()->abort();
  }
  void close_socket() noexcept {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  /// Watches the socket for the events that are needed now. Throws std::bad_alloc, but only if an
  /// event is added.
  void watch() {
    ae::EventLoop& loop = all_.loop();
    if (const bool wanted = wants_output(); wanted != watches_output_) {
      if (wanted)
        loop.add_file_event(socket_, ae::kReadable | ae::kTrusted,
                            [this](int, ae::Mask) { attempt(&Pump::output); });
      else
        loop.remove_file_event(socket_, ae::kReadable);
      watches_output_ = wanted;
    }
    if (const bool wanted = !over_ && !input_over_ && user_full_; wanted != watches_room_) {
      if (wanted)
        loop.add_file_event(socket_, ae::kWritable | ae::kTrusted,
                            [this](int, ae::Mask) { attempt(&Pump::user_accepts); });
      else
        loop.remove_file_event(socket_, ae::kWritable);
      watches_room_ = wanted;
    }
  }

  Pumps& all_;
  int socket_;
  const Pumps::Ended ended_;
  conn::ConnectionPtr connection_;
  conn::Connection* its_ = nullptr;
  std::size_t piece_ = kLeastRoom;  // memory to request from the connection
  ae::TimerId timer_ = 0;           // 0: not set
  ae::TimePoint waits_until_{};     // when the end no longer waits for the output to leave
  std::uint64_t left_ = 0;          // bytes of output that were left when goes_on() ran last
  bool reading_ = false;            // whether the connection has a read handler that calls input()
  bool watches_output_ = false;     // whether the socket is watched for output to read
  bool watches_room_ = false;
  bool user_full_ = false;        // whether input waits until the socket accepts something
  bool connection_full_ = false;  // whether output waits until the connection accepts something
  bool input_over_ = false;       // whether nothing more goes to the socket
  bool output_over_ = false;      // whether nothing more goes to the connection
  bool shut_ = false;             // whether the user was told the end of the peer's stream
  bool closed_ = false;   // whether the user has closed the descriptor, or ended both directions
  bool aborted_ = false;  // whether the user had not read everything when it closed the descriptor
  bool leaving_ = false;  // whether user_is_gone() was called
  bool over_ = false;
};

inline Pumps::~Pumps() {
  on_loop_end();
  forget_all();
  close_epoll();
}

inline void Pumps::on_loop_end() noexcept {
  if (owner_ != ::getpid()) return;
  while (!all_.empty()) all_.front()->loop_ends();
}

inline void Pumps::after_fork() noexcept {
  forget_all();
  close_epoll();
  owner_ = ::getpid();
}

inline void Pumps::forget_all() noexcept {
  for (const auto& each : all_) each->forget();
  all_.clear();
}

inline int Pumps::add(conn::ConnectionPtr& connection, Ended ended) {
  if (epoll_ < 0) open_epoll();
  all_.push_back(nullptr);
  std::array<int, 2> ends{-1, -1};
  bool begun = false;
  try {
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) refuse(errno);
    all_.back() = std::make_unique<Pump>(*this, ends[0], std::move(ended));
    Pump& pump = *all_.back();
    pump.place = std::prev(all_.end());
    epoll_event event{};
    event.events = EPOLLET;  // EPOLLHUP and EPOLLERR are reported in any case
    event.data.ptr = &pump;
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, ends[0], &event) != 0) refuse(errno);
    begun = true;
    pump.begin(*connection);
    pump.own(std::move(connection));
    return ends[1];
  } catch (...) {
    if (ends[0] >= 0 && !all_.back()) ::close(ends[0]);
    if (ends[1] >= 0) ::close(ends[1]);
    if (begun) {
      (void)::epoll_ctl(epoll_, EPOLL_CTL_DEL, ends[0], nullptr);
      all_.back()->give_back();
    }
    all_.pop_back();
    throw;
  }
}

inline void Pumps::remove(Pump& pump) noexcept {
  (void)::epoll_ctl(epoll_, EPOLL_CTL_DEL, pump.socket(), nullptr);
  std::unique_ptr<Pump> last = std::move(*pump.place);
  all_.erase(pump.place);
  loop_.destroy_later(std::move(last));
}

inline void Pumps::open_epoll() {
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) refuse(errno);
  try {
    loop_.add_file_event(epoll, ae::kReadable | ae::kTrusted,
                         [this](int, ae::Mask) { tell_closed(); });
  } catch (...) {
    ::close(epoll);
    throw;
  }
  epoll_ = epoll;
}

inline void Pumps::close_epoll() noexcept {
  if (epoll_ < 0) return;
  loop_.remove_file_event(epoll_, ae::kReadable);
  ::close(std::exchange(epoll_, -1));
}

inline void Pumps::tell_closed() noexcept {
  std::array<epoll_event, kBatch> events;
  const int count = ::epoll_wait(epoll_, events.data(), kBatch, 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    // A pump that has finished meanwhile still exists: the loop destroys it after its handlers.
    if ((event.events & EPOLLHUP) != 0) static_cast<Pump*>(event.data.ptr)->closed();
  }
}

}}}  // namespace adapters::detail
