// SPDX-License-Identifier: BSD-3-Clause
#if AECONN_RDMA
#include "tests/support/stream_link.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace rdma::test {

std::byte pattern(std::uint64_t stream, std::uint64_t index) {
  std::uint64_t x = (index + 1) * 0x9e3779b97f4a7c15u + stream * 0xd1342543de82ef95u;
  x ^= x >> 29;
  return static_cast<std::byte>((x * 0xbf58476d1ce4e5b9u) >> 56);
}

// --- Node ----------------------------------------------------------------------------------------

void Node::join(Node& a, Node& b) {
  a.peer_ = &b;
  b.peer_ = &a;
  a.stream_id = 1;
  b.stream_id = 2;
}

void Node::send(Message message) { peer_->wire_.push_back(std::move(message)); }

bool Node::deliver() {
  if (wire_.empty()) return false;
  if (receives_ == 0) {
    if (must_not_run_dry) blame("a message found no posted receive");
    return false;
  }
  --receives_;
  fewest_receives_ = std::min(fewest_receives_, receives_);
  Message message = std::move(wire_.front());
  wire_.pop_front();
  if (message.is_write) {
    const auto at = memory_.find(message.key);
    if (at == memory_.end()) {
      blame("a write into memory that is not registered");
      return false;
    }
    const auto start = reinterpret_cast<std::uint64_t>(at->second.second.get());
    const std::uint64_t length = at->second.first;
    if (message.address < start || message.address - start > length ||
        message.bytes.size() > length - (message.address - start)) {
      blame("a write outside the window");
      return false;
    }
    std::memcpy(at->second.second.get() + (message.address - start), message.bytes.data(),
                message.bytes.size());
    message.bytes.clear();
  }
  completions_.push_back(std::move(message));
  peer_->on_completed();
  return true;
}

bool Node::handle(ae::TimePoint now) {
  if (completions_.empty()) return false;
  on_message(completions_.front(), now);
  completions_.pop_front();
  ++receives_;
  return true;
}

WindowBuffer Node::add_memory(std::uint32_t length) {
  WindowBuffer buffer;
  auto memory = std::make_unique<std::byte[]>(length);
  buffer.data = memory.get();
  buffer.length = length;
  buffer.address = reinterpret_cast<std::uint64_t>(buffer.data);
  buffer.key = next_key_++;
  memory_[buffer.key] = {length, std::move(memory)};
  return buffer;
}

void Node::remove_memory(const WindowBuffer& buffer) {
  if (memory_.erase(buffer.key) != 1) blame("memory was freed twice");
}

std::vector<std::byte> Node::next_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = pattern(stream_id, bytes_sent_++);
  staged_ -= size;
  return bytes;
}

void Node::check_bytes(const std::byte* bytes, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i)
    if (bytes[i] != pattern(peer_->stream_id, bytes_taken_++))
      return blame("byte " + std::to_string(bytes_taken_ - 1) + " is wrong");
}

// --- StreamNode ----------------------------------------------------------------------------------

void StreamNode::on_message(const Message& message, ae::TimePoint now) {
  if (message.is_write)
    stream.on_data(message.immediate, now);
  else
    stream.on_control(message.bytes, now);
  stream.check();
}

bool StreamNode::work(ae::TimePoint now) {
  for (;;) {
    if (const WindowBuffer old = stream.inbound().take_discarded(); old.data != nullptr) {
      remove_memory(old);
      ++windows_discarded;
    } else if (const std::uint32_t length = stream.inbound().wanted_window(); length != 0) {
      if (stream.inbound().pinned_bytes() != 0 && refuse_windows != 0 &&
          (*random)() % 100 < refuse_windows) {
        stream.no_window(now);
        ++windows_refused;
      } else {
        stream.inbound().provide_window(add_memory(length));
        ++windows_provided;
      }
    } else {
      break;
    }
    stream.check();
  }
  bool sent = false;
  while (can_send()) {
    if (const auto control = stream.next_control(now)) {
      const ControlBytes bytes = encode(*control);
      send({false, 0, 0, 0, {bytes.begin(), bytes.end()}});
      stream.on_control_posted(*control, now);
      ++controls_sent[control->opcode];
      ++selects_sent[control->select];
      most_windows = std::max(most_windows, stream.inbound().windows_wanted());
    } else if (const std::uint32_t size = stream.outbound().sendable(staged(), now); size != 0) {
      const std::uint32_t immediate = stream.outbound().immediate(size);
      waits += immediate != size;
      send({true, stream.outbound().peer_windows().position(),
            stream.outbound().peer_windows().current().key, immediate, next_bytes(size)});
      stream.outbound().on_write_posted(size, now);
    } else {
      break;
    }
    sent = true;
    stream.check();
  }
  if (staged() != 0) stream.outbound().on_staged_left();
  if (stream.liveness().wants_probe()) {
    ++silent_probes;
    stream.liveness().on_probe_posted();
  }
  return sent;
}

std::size_t StreamNode::take(std::size_t size, ae::TimePoint /*now*/) {
  std::vector<std::byte> into(size);
  const std::uint64_t unread = stream.inbound().unread_bytes();
  const bool looks = random != nullptr && (*random)() % 2 == 0;
  const std::size_t got = looks ? look(into) : stream.inbound().read(into.data(), size);
  stream.check();
  if (got != std::min<std::uint64_t>(size, unread)) blame("a read returned fewer than there are");
  if (stream.inbound().unread_bytes() != unread - got) blame("unread_bytes() is wrong");
  check_bytes(into.data(), got);
  return got;
}

// Copies what peek() shows, in as many steps as needed.
std::size_t StreamNode::look(std::span<std::byte> into) {
  std::size_t done = 0;
  for (bool more = true; more && done < into.size();) {
    std::array<std::span<const std::byte>, 2> pieces;
    const std::uint64_t unread = stream.inbound().unread_bytes();
    const std::size_t count = stream.inbound().peek(pieces);
    std::size_t seen = 0, taken = 0;
    for (const auto& piece : std::span(pieces).first(count)) {
      if (piece.empty()) blame("a piece of no bytes");
      const std::size_t part = std::min(piece.size(), into.size() - done - taken);
      std::copy_n(piece.begin(), part, into.begin() + static_cast<std::ptrdiff_t>(done + taken));
      seen += piece.size();
      taken += part;
    }
    if (seen > unread || (count < pieces.size() && seen != unread) || (seen == 0) != (unread == 0))
      blame("a look shows more or less than there is");
    if (stream.inbound().unread_bytes() != unread) blame("a look took something");
    if (stream.inbound().read(nullptr, taken) != taken) blame("fewer were consumed than were seen");
    stream.check();
    done += taken;
    more = taken != 0;
  }
  return done;
}

// --- PlainNode -----------------------------------------------------------------------------------

PlainNode::PlainNode(Role role, std::uint32_t window, std::uint32_t receives)
    : Node(receives), role_(role), new_length_(window) {}

void PlainNode::on_message(const Message& message, ae::TimePoint) {
  if (message.is_write) {
    if (message.immediate > window_.length - filled_) return blame("valkey: assertion rx.pos");
    filled_ += message.immediate;
    return;
  }
  ++controls_received;
  const auto control = decode(message.bytes);
  if (!control) return blame("valkey: protocol error");
  switch (control->opcode) {
    case Opcode::kGetServerFeature:
      if (role_ == Role::kClient) return blame("libvalkey: fatal opcode");
      answers_.push_back(control->select);
      break;
    case Opcode::kSetClientFeature:
      if (role_ == Role::kClient) return blame("libvalkey: fatal opcode");
      break;
    case Opcode::kKeepalive:
      break;
    case Opcode::kRegisterXferMemory:
      if (first_length_ == 0) first_length_ = control->length;
      if (role_ == Role::kServer && control->length != first_length_)
        return blame("valkey: SIGSEGV, the window's length changed");
      peer_address_ = control->address;
      peer_length_ = control->length;
      peer_key_ = control->key;
      peer_used_ = 0;
      break;
  }
}

void PlainNode::send_register() {
  if (window_.length != new_length_) {
    if (window_.data != nullptr) remove_memory(window_);
    window_ = add_memory(new_length_);
  }
  filled_ = consumed_ = 0;
  ControlMessage message;
  message.opcode = Opcode::kRegisterXferMemory;
  message.address = window_.address;
  message.length = window_.length;
  message.key = window_.key;
  const ControlBytes bytes = encode(message);
  send({false, 0, 0, 0, {bytes.begin(), bytes.end()}});
  register_due_ = false;
}

bool PlainNode::can_register_early() const {
  return !register_due_ && filled_ == consumed_ && on_the_wire() == 0 && unhandled() == 0;
}

void PlainNode::register_early(std::uint32_t length) {
  new_length_ = length;
  send_register();
}

bool PlainNode::work(ae::TimePoint) {
  bool sent = false;
  while (can_send()) {
    if (register_due_) {
      send_register();
    } else if (!answers_.empty()) {
      ControlMessage message;
      message.opcode = Opcode::kGetServerFeature;
      message.select = answers_.front();
      answers_.pop_front();
      const ControlBytes bytes = encode(message);
      send({false, 0, 0, 0, {bytes.begin(), bytes.end()}});
    } else if (staged() != 0 && peer_used_ < peer_length_) {
      const auto size =
          static_cast<std::uint32_t>(std::min<std::size_t>(staged(), peer_length_ - peer_used_));
      send({true, peer_address_ + peer_used_, peer_key_, size, next_bytes(size)});
      peer_used_ += size;
    } else {
      break;
    }
    sent = true;
  }
  return sent;
}

std::size_t PlainNode::take(std::size_t size, ae::TimePoint) {
  const std::size_t got = std::min<std::size_t>(size, filled_ - consumed_);
  if (got != 0) check_bytes(window_.data + consumed_, got);
  consumed_ += static_cast<std::uint32_t>(got);
  if (window_.length != 0 && consumed_ == window_.length) register_due_ = true;
  return got;
}

}}}  // namespace conn::rdma::test

#endif  // AECONN_RDMA
