// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The session of one client, without I/O. The network part passes what it reads to show(), calls
// execute(), and writes pending_output(); the session does not access the connection.

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "buffer.h"
#include "reply_writer.h"
#include "resp_parser.h"
#include "same_bytes.h"
#include "server_state.h"

namespace kv {

struct Call;
struct Command;

/// The connection's part of CLIENT LIST.
struct SessionInfo {
  std::string transport, peer, local;
  int fd = -1;
  using Facts = std::vector<std::pair<std::string, std::string>>;
  /// Connection::info(), which CLIENT INFO adds; called each time, since it changes. May be empty.
  std::function<Facts()> facts = {};
  /// Connection::path(), for CLIENT LIST; called each time, like `facts`. May be empty.
  std::function<std::string()> path = {};
};

class Session {
 public:
  /// `describe` is called once, when the info is first needed; for most sessions it never is.
  Session(Server& server, std::function<SessionInfo()> describe);
  Session(Server& server, SessionInfo info);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  // --- bytes -------------------------------------------------------------------------------------
  /// Where the next bytes go while a large argument is received: the value's memory. Empty:
  /// anywhere.
  std::span<char> room() noexcept { return has_room() ? arriving_.room() : std::span<char>(); }
  /// Whether room() may return memory; if this is false, it does not.
  bool has_room() const noexcept { return arriving_.missing() != 0; }
  /// Tells how many bytes were read into room().
  void arrived(std::size_t size);
  /// Passes bytes that were read elsewhere. They are parsed in place and belong to the caller again
  /// after the next execute(), which copies what it has not run. The memory must be writable:
  /// passwords in it are overwritten after use.
  void show(std::string_view bytes) {
    shown_ = bytes;
    server_->statistics.bytes_in += bytes.size();
  }
  /// Like show(), but copies the bytes. Throws std::bad_alloc.
  void feed(std::string_view bytes);

  enum class Progress {
    kIdle,   ///< nothing to do before more bytes come
    kMore,   ///< complete requests may wait: call again after the other sessions
    kHeld,   ///< delayed after failed AUTHs: call again a little later
    kWaits,  ///< waits for other loops: call again after Server::session_ready
    kDone,   ///< close after the output was sent (see wants_close())
  };
  /// Runs at most `limit` requests, fewer if the replies get long.
  Progress execute(std::size_t limit = 1000);

  /// The output up to the first value that is sent in place.
  std::string_view pending_output() const noexcept {
    if (references_.waits()) [[unlikely]]
      return output_.view().substr(0, references_.text_before());
    return output_.view();
  }
  void consume_output(std::size_t size) noexcept {
    output_.consume(size);
    references_.text_sent(size);
    server_->statistics.bytes_out += size;
  }
  /// The whole output without values that are sent in place.
  std::string_view text_output() const noexcept { return output_.view(); }
  /// Enables sending large values in place: when pending_output() is empty and value_waits(), call
  /// begin_value() next. `released` is called when the connection has released a value.
  void refer_to_values(std::function<void()> released);
  bool value_waits() const noexcept { return references_.waits(); }
  /// Whether the connection holds values.
  bool values_on_way() const noexcept { return references_.on_way(); }
  /// Whether values wait or are held by the connection.
  bool has_values() const noexcept { return references_.bytes() != 0; }
  /// Must be followed by value_taken() or value_refused(). Throws std::bad_alloc.
  SentValue* begin_value() { return references_.begin(*server_->sent_values); }
  void value_taken(SentValue* value) noexcept;
  void value_refused(SentValue* value) noexcept { references_.refused(value); }
  /// For `timeout`: call this after the connection has accepted output again, or has released a
  /// value. A client that takes a long reply slowly is not idle.
  void note_sent() noexcept;
  /// For `timeout`, of a session that has been idle for longer: whether its client takes what waits
  /// here, in the connection and below. The connection may accept output again, and note_sent() be
  /// called, only after much of it. The first call after an activity begins to compare: if the
  /// client takes nothing, it is closed after twice the time.
  bool takes_output() noexcept;
  bool output_waits() const noexcept { return !output_.empty() || has_values(); }

  /// Whether a request has arrived in part, or was not executed yet.
  bool midway() const noexcept { return waiting_input() != 0; }
  /// Whether the connection is to be closed once the output was sent.
  bool wants_close() const noexcept { return stops_.closing; }
  /// Whether no request runs now: it is to be closed, or waits for other loops or for time to pass.
  bool stops() const noexcept { return stops_.any(); }
  /// Whether the connection is to be closed at once, whatever is pending.
  bool killed() const noexcept { return stops_.killed; }
  void kill();
  /// Frees the memory of a killed session before its connection is closed.
  void drop_buffers() noexcept;
  /// The memory that the peer made it hold: input, output, parsed arguments.
  std::size_t memory() const noexcept {
    return input_.capacity() + output_.capacity() + own_memory();
  }
  /// Frees empty buffers.
  void shrink();

  // --- facts -------------------------------------------------------------------------------------
  std::uint64_t id() const noexcept { return id_; }
  const SessionInfo& info() const;
  std::int64_t last_interaction_us() const noexcept { return last_interaction_us_; }
  /// The line of CLIENT LIST, without the line end; with Connection::info(), that of CLIENT INFO.
  std::string describe(bool with_facts = false) const;
  int resp_version() const noexcept { return reply_.version(); }
  /// A client that connected while no password was set stays authenticated, as in Redis.
  bool authenticated() const noexcept { return authenticated_ || !server_->password_needed(); }

  // --- moving to another loop --------------------------------------------------------------------
  /// Whether it may leave its loop: not while it waits for other loops or the connection holds
  /// values.
  bool can_leave() const noexcept { return !stops_.waiting && !values_on_way(); }
  /// Takes the session out of its server's counts, though not out of Server::sessions. Then join()
  /// or the destructor must follow.
  void leave() noexcept;
  /// Adds the session to the counts of `server`, though not to Server::sessions.
  void join(Server& server) noexcept;

  // --- for command handlers ----------------------------------------------------------------------
  void close_after_reply() noexcept { stops_.closing = true; }
  void set_resp_version(int version) noexcept { reply_.set_version(version); }
  bool log_in(std::string_view user, std::string_view password);
  /// Defers the reply to finish_wait(); no further request runs until then.
  void begin_wait() noexcept { parked_ = stops_.waiting = true; }
  void cancel_wait() noexcept { parked_ = stops_.waiting = false; }
  /// `reply` writes the reply; its Call has no arguments.
  void finish_wait(const std::function<void(Call&)>& reply);
  /// Logs `why` and closes: the peer speaks another protocol.
  void suspect(std::string_view why);

 private:
  /// Why no request runs; all false for most sessions, so that one comparison looks at all.
  struct Stops {
    bool closing = false, killed = false;
    bool waiting = false;  ///< for other loops' answers
    bool held = false;     ///< until held_until_us_
    bool any() const noexcept { return std::bit_cast<std::uint32_t>(*this) != 0; }
  };
  std::optional<Progress> stopped() noexcept;
  Progress stopped_by_request(Progress progress) noexcept;
  bool may_begin();
  void run(std::span<const std::string_view> arguments);
  const Command* find(std::span<const std::string_view> arguments);
  void remember(std::span<const std::string_view> arguments, const Command& command) noexcept;
  /// Whether these arguments, as those of the last request, are some of last_command_, as
  /// remember() knows it.
  bool repeats(std::span<const std::string_view> arguments) const noexcept {
    const std::string_view word = arguments[0];
    return arguments.size() == count_ && word.size() == word_size_ &&
           same_bytes(word.data(), word_.data(), word.size());
  }
  void count_call(const Command& command, std::uint64_t errors_before);
  void lose_request();
  void reject(const Command* command, std::string_view error);
  void protocol_error();
  std::size_t output_limit() const noexcept;
  void give_up_on_reader() noexcept;
  void check_query_limit();
  void note_progress() noexcept;
  std::uint64_t untaken() const;
  /// Updates the meter; the buffers update it themselves.
  void meter() noexcept {
    const std::size_t now = own_memory();
    server_->buffer_bytes += now - metered_;
    metered_ = now;
  }
  std::size_t own_memory() const noexcept {
    return parser_.memory() + arriving_.memory() + references_.bytes();
  }
  /// The bytes received and not yet executed.
  std::size_t waiting_input() const noexcept {
    return input_.size() + shown_.size() + arriving_.size();
  }
  // Not inlined, to keep the path of small requests short.
  [[gnu::noinline]] void take_shown();
  [[gnu::noinline]] bool wants_more(std::string_view input);
  std::size_t output_size() const noexcept { return output_.size() + references_.bytes(); }
  void truncate_output(std::size_t size) noexcept;
  bool begins_with_tls() const noexcept;

  Server* server_;  ///< null between two loops
  mutable SessionInfo info_;
  mutable std::function<SessionInfo()> describe_;  // called for info_, then empty
  const std::uint64_t id_;
  Buffer input_, output_;
  std::string_view shown_;  ///< follows the bytes in input_
  Arriving arriving_;
  References references_;
  RequestParser parser_;
  ReplyWriter reply_;
  const Command* last_command_ = nullptr;
  /// The first argument of the last request, if that alone selects last_command_, and the number of
  /// arguments, or 0. See repeats().
  std::array<char, 16> word_{};
  std::size_t word_size_ = 0, count_ = 0;
  std::int64_t now_us_;  ///< the time of the current batch
  Stops stops_;
  bool authenticated_ = false;
  bool begun_ = false;   ///< whether the first request was parsed
  bool parked_ = false;  ///< the current request ends in finish_wait()
  const std::int64_t created_us_;
  std::int64_t last_interaction_us_;
  std::int64_t held_until_us_ = 0;
  std::size_t heard_ = 0;   ///< bytes of the incomplete request at the last interaction
  std::size_t unsent_ = 0;  ///< bytes of replies that note_sent() compares with
  /// Bytes that takes_output() compares with, and the time at which it found them.
  std::uint64_t untaken_ = 0;
  std::int64_t untaken_at_us_ = 0;
  std::size_t metered_ = 0;  ///< the part of own_memory() counted in server_->buffer_bytes
  int failed_logins_ = 0;
};

}  // namespace kv
