// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The state of a resumable connection: two ends, the paths between them, and the messages of
// connection management under way. It consists of bytes only, so that states are compared and
// hashed as memory. README.md explains the model.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tests/models/resume/options.h"

namespace resume_model {

using Byte = std::uint8_t;
constexpr Byte byte(int value) { return static_cast<Byte>(value); }

constexpr int kMaxPaths = 5, kQueueLength = 8, kMaxMessages = 5;
constexpr int kMaxWindows = 3, kMaxWindowUnits = 3;

/// First in, first out. Unused items are zero, so that equal queues are equal memory.
template <class Item, int Capacity>
struct Queue {
  Byte size;
  Item items[Capacity];

  bool empty() const { return size == 0; }
  bool full() const { return size == Capacity; }
  void push(Item item) { items[size++] = item; }
  void erase(int index) {
    for (int i = index; i + 1 < size; ++i) items[i] = items[i + 1];
    items[--size] = {};
  }
  Item pop() {
    const Item first = items[0];
    erase(0);
    return first;
  }
  void clear() { *this = {}; }
};

enum class PacketKind : Byte { kData, kAnnouncement, kGoodbye, kGoodbyeTaken };

/// What a queue pair sends: a control message, or one byte written into a window of the peer.
struct Packet {
  PacketKind kind;
  Byte value;   ///< data: the byte; goodbye: bytes sent in all
  Byte slot;    ///< data: its place in the window
  Byte count;   ///< data: bytes that the immediate counts; 0 in all but the last packet of a write
  Byte window;  ///< data: where it goes; announcement: the window that is announced
  Byte received;  ///< announcement: bytes that the sender of this packet has counted

  /// The receiver gets a completion for it, and then the sender does.
  bool completes() const { return kind != PacketKind::kData || count != 0; }
};

enum class QueuePairState : Byte { kAbsent, kReady, kError };

/// One end of a path. `sent` outlives the queue pair: packets may come late.
struct QueuePair {
  QueuePairState state;
  Byte completed_sends;                  ///< acknowledged, not yet polled by the sender
  Queue<Packet, kQueueLength> sent;      ///< on their way to the peer
  Queue<Packet, kQueueLength> received;  ///< completions, not yet polled by the receiver
  Queue<Byte, kQueueLength> awaited;     ///< of each send without completion: see below
};
/// QueuePair::awaited: bytes of the stream that are sent when this completes, 0 for most control
/// messages.
constexpr Byte kGoodbyeAwaited = 0xfe;

/// A pair of queue pairs; its index is its generation. The first one is of the connection's set-up.
struct Path {
  QueuePair ends[2];
  Byte cut[2];  ///< packets of that end no longer arrive, nor do acknowledgements for its peer
  Byte used;
};

enum class WindowState : Byte { kFree, kOffered, kLeft };

/// Memory that the peer writes into while a key of it lives.
struct Window {
  Byte memory[kMaxWindowUnits];
  Byte keys;  ///< bit g: the queue pair of path g may write
  Byte filled, read;
  WindowState state;  ///< kLeft: its path is lost, and it has bytes that are not read
  Byte path;          ///< on which it was offered
};

/// A window of the peer, as its sender knows it.
struct PeerWindow {
  Byte window, used;
};

enum class Phase : Byte { kOpen, kLost, kDialing, kEnded };
enum class Reason : Byte { kNone, kClosed, kEndOfStream, kExpired, kRefused, kGap };
enum class Goodbye : Byte { kNone, kSent, kTaken };

/// One end of the connection: what its software knows, and the memory of its windows.
struct End {
  Phase phase;
  Reason reason;        ///< why it has ended
  Byte generation;      ///< client: of the last attempt; server: of the last request taken
  Byte path;            ///< the last one that was open
  Byte received, read;  ///< bytes counted, bytes given to the reader
  Byte released;        ///< bytes that can no longer be sent again
  Byte next;            ///< the next byte to be sent
  Byte sent;            ///< bytes that were ever sent
  Byte peer_total;      ///< 1 + the bytes the peer's goodbye names; 0: no goodbye has come
  Goodbye goodbye;      ///< ours
  Byte forgets;         ///< client: it has closed while lost, and wants no path any more
  Queue<PeerWindow, kMaxWindows> peer_windows;
  Queue<Byte, kMaxWindows> line;  ///< windows with bytes to read, or to be filled, in order
  Window windows[kMaxWindows];
};

enum class MessageKind : Byte {
  kRequest,
  kAnswer,
  kRefusal,
  kClientDisconnects,
  kServerDisconnects,
  kForget
};

/// A message of connection management. They arrive in any order.
struct Message {
  MessageKind kind;
  Byte generation;
  Byte value;  ///< request, answer: bytes received; forget: bytes sent in all; refusal: below
};

enum Refusal : Byte {
  kUnknown,   ///< the server has ended
  kGap,       ///< bytes are missing
  kForgotten  ///< the server has ended because the client asked it to, and has all bytes
};

struct State {
  End ends[2];
  Queue<Message, kMaxMessages> messages;
  Byte failures;  ///< that may still happen: a cut, a path given up that works, a message of
                  ///< connection management lost or doubled, completions lost with a device
  Byte dials;     ///< left to the client
  Byte newest;    ///< generation of the last attempt
  Path paths[kMaxPaths];

  const QueuePair& queue_pair(int end) const { return paths[ends[end].path].ends[end]; }
  QueuePair& queue_pair(int end) { return paths[ends[end].path].ends[end]; }
  /// The end's software sends and receives on its path.
  bool is_live(int end) const {
    return ends[end].phase == Phase::kOpen && queue_pair(end).state == QueuePairState::kReady;
  }
  bool is_over() const {
    return ends[kClient].phase == Phase::kEnded && ends[kServer].phase == Phase::kEnded;
  }
  /// How many bytes of this object can differ from zero.
  std::size_t used_size() const {
    return offsetof(State, paths) + (newest + std::size_t{1}) * sizeof(Path);
  }
};
static_assert(std::is_trivially_copyable_v<State>);
static_assert(std::has_unique_object_representations_v<State>);

/// Both ends open on path 0, each with its windows offered.
State initial_state(const Options& options);

/// States that differ only in what cannot matter any more become equal: packets of a path whose two
/// queue pairs are in error, the order of messages that arrive in any order.
void simplify(State& state);

/// Over, and at least one end that closed has a peer that was told the end of the stream. (Its own
/// end may not learn that: the peer knows the connection no longer.)
bool is_complete(const State& state, const Options& options);

}  // namespace resume_model
