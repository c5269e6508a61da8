// SPDX-License-Identifier: BSD-3-Clause
// Goal: no hostile peer makes the stream crash, fail an assertion, allocate, hand out bytes that
// were not announced, or send where it may not. Method: the input's bytes are actions of the peer,
// the user, the memory and the clock. The peer may announce anything at any time and send control
// messages of any content and length; check() runs after each action, and the stream's results are
// compared with simple sums kept here. Run by `make fuzz`, with the seeds in corpus/stream.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ae/event_loop.h"
#include "conn/rdma/protocol/stream.h"

namespace {

using namespace conn::rdma;
using std::chrono::nanoseconds;

void require(bool condition) {
  if (!condition) std::abort();
}

// The rest of the input; zeros after its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  std::uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  // 1 to 8 bytes, as the first one says: small and huge values are equally likely.
  std::uint64_t number() {
    const std::uint8_t first = byte();
    if (first < 0xe0) return first;
    std::uint64_t value = 0;
    for (int i = (first & 7) + 1; i > 0; --i) value = value << 8 | byte();
    return (first & 8) != 0 ? ~value : value;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

constexpr std::size_t kMaxWindow = 4096;

class Run {
 public:
  explicit Run(Input& input) : in_(input), config_(configure(input)), stream_(config_, now_) {
    if (in_.byte() % 2 != 0) {
      hello_ = {in_.byte(), static_cast<std::uint32_t>(in_.number()), in_.byte()};
      stream_.on_hello(hello_);
    }
    after();
  }

  void run() {
    while (!in_.empty()) {
      move(in_.byte());
      after();
    }
    // End of the connection: everything announced can be read, and all memory is returned.
    stream_.on_peer_closed();
    after();
    (void)read(in_.byte());
    after();
    const auto left = std::make_unique<std::byte[]>(stream_.inbound().unread_bytes());
    stream_.inbound().leave_windows(left.get());
    memory_.clear();
    ended_ = true;
    while (read(1 + in_.byte()) != 0) stream_.check();
    require(stream_.at_end() && claimed_ == read_);
    require(!stream_.inbound().take_discarded() && stream_.inbound().wanted_window() == 0);
  }

 private:
  static StreamConfig configure(Input& in) {
    StreamConfig config;
    const std::uint8_t bits = in.byte();
    config.role = (bits & 1) != 0 ? Role::kClient : Role::kServer;
    config.window = 1 + in.byte() % 64;
    config.max_window = (bits & 2) != 0 ? kMaxWindow : config.window;
    config.max_peer_window = (bits & 4) != 0 ? 1000 : 16u << 20;
    config.peer_receives = (bits & 8) != 0 ? 16 : 1024;
    config.control_burst = (bits & 16) != 0 ? 20 : 2048;
    config.completions_prove = (bits & 64) == 0;
    config.max_windows = (bits & 128) != 0 ? ReceiveWindowQueue::kSlots : 3;
    if ((bits & 32) != 0) config.keepalive = nanoseconds::zero();
    return config;
  }

  void move(std::uint8_t what) {
    switch (what % 24) {
      case 0:
      case 1:
        return claim(static_cast<std::uint32_t>(in_.number()));
      case 2: {  // exactly what is left, or nearly
        const std::uint8_t how = in_.byte();
        return claim((room() + (how % 3) - 1) | ((how & 64) != 0 ? kWaited : 0));
      }
      case 3:
      case 4:
        return control(Opcode::kRegisterXferMemory);
      case 5:
        return control(Opcode::kGetServerFeature);
      case 6:
        return control(static_cast<Opcode>(in_.byte() % 5));
      case 7:
        return garbage();
      case 8: {  // the correct answer, or the mark
        ControlMessage message;
        message.select = probe_;
        if (leave_ && in_.byte() % 2 == 0) {
          message.opcode = Opcode::kSetClientFeature;
          message.select = kWindowMark;
        }
        return send(message);
      }
      case 9:
      case 10:
      case 11:
        (void)read(in_.number() % 10000);
        return;
      case 12:
        (void)read(2 * kMaxWindow);
        return;
      case 13:
      case 14:
        return post_control();
      case 15:
      case 16:
        return write();
      case 17:
        return windows(true);
      case 18:
        return windows(false);
      case 19:
        now_ += nanoseconds(in_.number() % 1000) * 1000;
        return;
      case 20:
        now_ += std::chrono::milliseconds(in_.number() % 100000);
        return;
      case 21:
        stream_.tick(now_, in_.byte() % 4 == 0);
        return;
      case 22:
        if (stream_.liveness().wants_probe()) stream_.liveness().on_probe_posted();
        if (done_ < stream_.outbound().proof().sent()) {
          stream_.outbound().proof().on_completed(1);
          ++done_;
        }
        return;
      case 23:  // many at once: long floods from short inputs
        for (int n = in_.byte() * 8, kind = in_.byte() % 4; n > 0; --n) {
          if (kind == 0) claim(0);
          if (kind == 1) send({.opcode = Opcode::kKeepalive});
          if (kind == 2) write_bytes(1);
          if (kind == 3) claim(1);
          after();
        }
        if (in_.byte() % 16 == 0) stream_.on_peer_closed();
        return;
    }
  }

  void claim(std::uint32_t immediate) {
    const bool failed = stream_.failure() != nullptr;
    const std::uint32_t most = room();
    stream_.on_data(immediate, now_);
    const std::uint32_t length =
        (hello_.flags & Hello::kTakesAhead) != 0 ? immediate & ~kWaited : immediate;
    if (failed) return;
    // Nothing beyond the next window to be filled, and everything within it.
    if (length > most) require(stream_.failure() != nullptr);
    if (length == 0 || length > most) return;
    require(stream_.failure() == nullptr);
    claimed_ += length;
    filled_ += length;
    if (filled_ != announced_.front().length) return;
    announced_.pop_front();
    filled_ = 0;
    if (leave_) --*leave_;
  }

  std::uint32_t room() const {
    if (announced_.empty() || (leave_ && *leave_ == 0)) return 0;
    return announced_.front().length - filled_;
  }

  // The peer switches to the window that was announced while others were not full.
  void change_over() {
    announced_.erase(announced_.begin(), announced_.begin() + static_cast<std::ptrdiff_t>(*leave_));
    leave_.reset();
    filled_ = 0;
  }

  void control(Opcode opcode) {
    ControlMessage message;
    message.opcode = opcode;
    message.select = static_cast<std::uint16_t>(in_.number());
    if (message.select % 4 == 1) message.select = kWindowAhead;
    message.address = in_.number();
    message.length = static_cast<std::uint32_t>(in_.number());
    message.key = in_.byte();
    send(message);
  }

  void send(const ControlMessage& message) {
    const ControlBytes bytes = encode(message);
    const bool failed = stream_.failure() != nullptr;
    stream_.on_control(bytes, now_);
    if (failed || stream_.failure() != nullptr) return;
    if (message.opcode == Opcode::kRegisterXferMemory) registered(message);
    marked(message);
  }

  void registered(const ControlMessage& message) {
    require(message.length != 0 && message.length <= config_.max_peer_window);
    const bool ahead = message.select == kWindowAhead && (hello_.flags & Hello::kTakesAhead) != 0;
    const bool full = !peer_.empty() && used_ == peer_.front().length;
    if (!ahead || full) peer_.clear();
    if (peer_.empty()) used_ = 0;
    peer_.push_back(message);
    require(peer_.size() <= kMostAnnounced);
  }

  void marked(const ControlMessage& message) {
    const bool mark = message.opcode == Opcode::kSetClientFeature && message.select == kWindowMark;
    if (mark && leave_) change_over();
  }

  void garbage() {
    std::vector<std::byte> bytes(in_.byte() % 66);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(in_.byte());
    // An allocation of exactly the size, so that ASan detects overruns.
    const auto exact = std::make_unique<std::byte[]>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), exact.get());
    const auto message = decode(bytes);
    const bool failed = stream_.failure() != nullptr;
    stream_.on_control({exact.get(), bytes.size()}, now_);
    if (!message) return require(stream_.failure() != nullptr);
    if (failed || stream_.failure() != nullptr) return;
    marked(*message);
    if (message->opcode == Opcode::kRegisterXferMemory) registered(*message);
  }

  std::size_t read(std::size_t size) {
    const auto into = std::make_unique<std::byte[]>(size);
    const std::uint64_t unread = stream_.inbound().unread_bytes();
    const std::size_t got =
        size % 2 == 0 ? stream_.inbound().read(into.get(), size) : look({into.get(), size});
    require(got == std::min<std::uint64_t>(size, unread));
    read_ += got;
    return got;
  }

  // The same bytes, by peek().
  std::size_t look(std::span<std::byte> into) {
    std::size_t done = 0;
    while (done < into.size()) {
      std::array<std::span<const std::byte>, 2> pieces;
      const std::size_t count = stream_.inbound().peek(pieces);
      require((count == 0) == (stream_.inbound().unread_bytes() == 0));
      std::size_t taken = 0;
      for (std::size_t i = 0; i < count; ++i) {
        require(!pieces[i].empty());
        const std::size_t part = std::min(pieces[i].size(), into.size() - done - taken);
        std::copy_n(pieces[i].begin(), part, into.data() + done + taken);
        taken += part;
      }
      require(stream_.inbound().read(nullptr, taken) == taken);
      stream_.check();
      if (taken == 0) break;
      done += taken;
    }
    return done;
  }

  void post_control() {
    const auto message = stream_.next_control(now_);
    if (!message) return;
    require(stream_.failure() == nullptr);
    if (message->opcode == Opcode::kRegisterXferMemory) {
      require(!leave_ && memory_.count(message->key) == 1);
      require(memory_.at(message->key).second == message->length);
      // Before the others are full, as far as this end knows: one more window, or one in their
      // place. The peer may have filled them meanwhile, and still reports that it switches.
      if (message->select == kWindowMark) {
        require((hello_.flags & Hello::kMarksWindows) != 0);
        leave_ = announced_.size();
      } else {
        require((message->select == kWindowAhead) == !announced_.empty());
        if (!announced_.empty()) require((hello_.flags & Hello::kTakesAhead) != 0);
      }
      announced_.push_back(*message);
    }
    if (message->opcode == Opcode::kGetServerFeature) probe_ = message->select;
    stream_.on_control_posted(*message, now_);
  }

  void write() { write_bytes(in_.number()); }

  void write_bytes(std::size_t staged) {
    const std::uint32_t length = stream_.outbound().sendable(staged, now_);
    if (length == 0) {
      if (staged != 0) stream_.outbound().on_staged_left();
      return;
    }
    require((stream_.outbound().immediate(length) & ~kWaited) == length);
    if (stream_.outbound().immediate(length) != length)
      require((hello_.flags & Hello::kTakesAhead) != 0);
    require(length <= staged && !peer_.empty() && used_ + length <= peer_.front().length);
    require(stream_.outbound().peer_windows().position() == peer_.front().address + used_);
    require(stream_.outbound().peer_windows().current().key == peer_.front().key);
    stream_.outbound().on_write_posted(length, now_);
    used_ += length;
    if (used_ != peer_.front().length || peer_.size() == 1) return;
    peer_.pop_front();
    used_ = 0;
  }

  // Like the connection: frees, then provides or refuses windows.
  void windows(bool memory) {
    for (;;) {
      if (const WindowBuffer old = stream_.inbound().take_discarded(); old.data != nullptr) {
        release(old);
      } else if (const std::uint32_t length = stream_.inbound().wanted_window(); length != 0) {
        if (!memory && (stream_.inbound().pinned_bytes() != 0 || in_.byte() % 8 == 0)) {
          stream_.no_window(now_);
        } else {
          auto bytes = std::make_unique<std::byte[]>(length);
          WindowBuffer buffer;
          buffer.data = bytes.get();
          buffer.length = length;
          buffer.address = reinterpret_cast<std::uint64_t>(bytes.get());
          buffer.key = next_key_++;
          memory_[buffer.key] = {std::move(bytes), length};
          stream_.inbound().provide_window(buffer);
        }
      } else {
        return;
      }
      after();
    }
  }

  void release(const WindowBuffer& window) {
    for (const ControlMessage& each : announced_) require(each.key != window.key);
    require(memory_.erase(window.key) == 1);
  }

  void after() {
    stream_.check();
    const bool several = (hello_.flags & Hello::kTakesAhead) != 0;
    require(memory_.size() <= (several ? config_.max_windows : 2));
    // The last window is never freed before there is another one.
    require(next_key_ == 1 || ended_ || !memory_.empty());
    std::uint64_t pinned = 0;
    for (const auto& [key, memory] : memory_) pinned += memory.second;
    require(pinned == stream_.inbound().pinned_bytes() && pinned <= memory_.size() * kMaxWindow);
    require(claimed_ >= read_);
    if (!memory_.empty()) require(stream_.inbound().unread_bytes() == claimed_ - read_);
    require(stream_.outbound().proof().unproven() <= stream_.outbound().proof().sent());
  }

  Input& in_;
  ae::TimePoint now_{std::chrono::hours(1)};
  StreamConfig config_;
  Stream stream_;
  std::map<std::uint32_t, std::pair<std::unique_ptr<std::byte[]>, std::uint32_t>> memory_;
  std::uint32_t next_key_ = 1, filled_ = 0;
  Hello hello_;
  std::deque<ControlMessage> announced_;  // this end's windows that are not full, as the peer knows
  std::optional<std::size_t> leave_;      // how many of these, from the first on, are to be left
  std::deque<ControlMessage> peer_;       // the peer's windows, as announced
  std::uint64_t used_ = 0;
  std::uint16_t probe_ = 0;
  bool ended_ = false;
  std::uint64_t claimed_ = 0, read_ = 0, done_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  Run(input).run();
  return 0;
}
