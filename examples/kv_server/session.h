// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One client, without I/O. The network part shows what it reads, calls execute(), and writes
// next_output(); the session knows nothing else of the connection.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "buffer.h"
#include "reply_writer.h"
#include "resp_parser.h"
#include "server_state.h"

namespace kv {

struct Call;

/// What CLIENT LIST shows of the connection below.
struct SessionInfo {
  std::string transport, peer, local;
  int fd = -1;
  using Facts = std::vector<std::pair<std::string, std::string>>;
  /// What CLIENT INFO adds (Connection::info()); asked each time, since it changes. May be empty.
  std::function<Facts()> facts = {};
  /// Connection::path(), for CLIENT LIST; as `facts`.
  std::function<std::string()> path = {};
};

class Session {
 public:
  /// `describe` is called once, when somebody first wants to know; most sessions nobody asks about.
  Session(Server& server, std::function<SessionInfo()> describe);
  Session(Server& server, SessionInfo info);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  // --- bytes -------------------------------------------------------------------------------------
  /// Where the next bytes go while a large argument arrives: the value's memory. Empty: anywhere.
  std::span<char> room() noexcept {
    return arriving_.active() && arriving_.missing() != 0 ? arriving_.room() : std::span<char>();
  }
  /// So many have been read there.
  void arrived(std::size_t size);
  /// Bytes that were read elsewhere. They are parsed where they are, and the caller's again after
  /// the next execute(), which keeps what it has not run. The memory must be writable: passwords in
  /// it are overwritten once they have been used.
  void show(std::string_view bytes);
  /// Bytes that were read elsewhere, to keep. Throws std::bad_alloc.
  void feed(std::string_view bytes);

  enum class Progress {
    kIdle,   ///< nothing to do before more bytes come
    kMore,   ///< complete requests may be waiting: call again, after other sessions had their turn
    kHeld,   ///< waits after failed AUTHs: call again a little later
    kWaits,  ///< for other loops: call again after Server::session_ready
    kDone,   ///< close once the output is sent (see wants_close())
  };
  /// Runs at most `limit` requests, fewer if their replies get long.
  Progress execute(std::size_t limit = 1000) { return execute_on<OneLoop>(limit); }

  /// The output, or what of it comes before the first value that is sent from where it lies.
  std::string_view pending_output() const noexcept {
    if (references_.waits()) [[unlikely]]
      return output_.view().substr(0, references_.text_before());
    return output_.view();
  }
  void consume_output(std::size_t size) noexcept;
  /// All of it but for such values.
  std::string_view text_output() const noexcept { return output_.view(); }
  /// From now on large values are sent from where they lie: when pending_output() is empty and
  /// value_waits(), begin_value() is what comes next. `released` is called when one of them has
  /// been handed on.
  void refer_to_values(std::function<void()> released);
  bool value_waits() const noexcept { return references_.waits(); }
  /// Some are on their way.
  bool values_on_way() const noexcept { return references_.on_way(); }
  /// Some wait or are on their way.
  bool has_values() const noexcept { return references_.bytes() != 0; }
  /// Throws std::bad_alloc. Then value_taken() or value_refused().
  SentValue* begin_value() { return references_.begin(*server_.sent_values); }
  void value_taken(SentValue* value) noexcept;
  void value_refused(SentValue* value) noexcept { references_.refused(value); }
  bool output_waits() const noexcept { return !output_.empty() || has_values(); }

  /// Close the connection once pending_output() is empty.
  bool wants_close() const noexcept { return closing_; }
  /// Close it at once, whatever is pending.
  bool killed() const noexcept { return killed_; }
  void kill();
  /// Of a killed one, at once: the end of its connection may take a turn.
  void drop_buffers() noexcept;
  /// Bytes that its peer made it hold: input, output, what was parsed of it, names.
  std::size_t memory() const noexcept {
    return input_.capacity() + output_.capacity() + own_memory();
  }
  /// Frees the buffers if nothing is in them.
  void shrink();

  // --- facts -------------------------------------------------------------------------------------
  Server& server() noexcept { return server_; }
  std::uint64_t id() const noexcept { return id_; }
  const SessionInfo& info() const;
  std::int64_t last_interaction_us() const noexcept { return last_interaction_us_; }
  /// The line of CLIENT LIST, without its end.
  std::string describe() const;
  /// The same with what the transport says of the connection, for CLIENT INFO.
  std::string describe_with_facts() const;
  int resp_version() const noexcept { return reply_.version(); }
  /// Who came in while there was no password stays in, as in Redis.
  bool authenticated() const noexcept { return authenticated_ || !server_.password_needed(); }

  // --- for command handlers ----------------------------------------------------------------------
  void close_after_reply() noexcept { closing_ = true; }
  void set_resp_version(int version) noexcept { reply_.set_version(version); }
  bool log_in(std::string_view user, std::string_view password);
  bool select(std::int64_t index) noexcept;
  std::size_t database_index() const noexcept { return database_; }
  /// The reply comes from finish_wait(), and until then no further request runs.
  void begin_wait() noexcept { parked_ = waiting_ = true; }
  void cancel_wait() noexcept { parked_ = waiting_ = false; }
  /// `reply` writes it; the call has no arguments any more.
  void finish_wait(const std::function<void(Call&)>& reply);
  const std::string& name() const noexcept { return name_; }
  void set_name(std::string_view name) { name_ = name; }
  /// Back to a new connection's state (RESET).
  void reset();
  /// Aborts: the peer is not speaking our protocol.
  void suspect(std::string_view why);

 protected:
  /// How requests get at the data; chosen when it is compiled, so that one loop pays nothing.
  struct OneLoop;
  struct Divided;
  template <class Data>
  Progress execute_on(std::size_t limit);

 private:
  template <class Data>
  void run(std::span<const std::string_view> arguments);
  template <class Data>
  void dispatch(std::span<const std::string_view> arguments);
  bool asks_again(std::string_view name) const noexcept;
  void count_call(const Command& command, std::uint64_t errors_before);
  void end_request();
  void lose_request();
  void reject(const Command* command, std::string_view error);
  void protocol_error();
  bool over_output_limit() noexcept;
  void give_up_on_reader() noexcept;
  void check_query_limit();
  void note_progress() noexcept;
  void meter() noexcept;
  std::size_t own_memory() const noexcept;
  /// Bytes that have come and were not run.
  std::size_t waiting_input() const noexcept {
    return input_.size() + shown_.size() + arriving_.size();
  }
  // Out of the way of small requests.
  [[gnu::noinline]] void take_shown();
  [[gnu::noinline]] bool wants_more(std::string_view input);
  std::size_t output_size() const noexcept { return output_.size() + references_.bytes(); }
  void truncate_output(std::size_t size) noexcept;
  bool begins_with_tls() const noexcept;

  Server& server_;
  mutable SessionInfo info_;
  mutable std::function<SessionInfo()> describe_;  // until info_ is known
  const std::uint64_t id_;
  Buffer input_, output_;
  std::string_view shown_;  ///< behind what is in input_
  Arriving arriving_;
  References references_;
  RequestParser parser_;
  ReplyWriter reply_;
  std::size_t database_ = 0;
  const Command* last_command_ = nullptr;
  std::int64_t now_us_;  ///< time of the batch that is running
  bool authenticated_ = false, closing_ = false, killed_ = false;
  bool waiting_ = false;  ///< for other loops' answers
  bool parked_ = false;   ///< the request that runs ends in finish_wait()
  std::string name_;
  const std::int64_t created_us_;
  std::int64_t last_interaction_us_;
  std::int64_t held_until_us_ = 0;
  std::size_t heard_ = 0;    ///< bytes of the request under way, at the last interaction
  std::size_t metered_ = 0;  ///< what server_.buffer_bytes has of own_memory()
  int failed_logins_ = 0;
  std::uint64_t bytes_in_ = 0, bytes_out_ = 0, commands_ = 0;
};

/// One of several loops: its requests take the shards they need.
class DividedSession final : public Session {
 public:
  using Session::Session;
  Progress execute(std::size_t limit = 1000) { return execute_on<Divided>(limit); }
};

}  // namespace kv
