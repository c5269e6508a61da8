// SPDX-License-Identifier: BSD-3-Clause
#include "session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>
#include <utility>

#include "command.h"

namespace kv {
namespace {

/// A batch ends once its replies exceed this, so that large values of one client do not stall
/// others.
constexpr std::size_t kBatchOutput = 1 << 20;
constexpr std::size_t kSignOfLife = 4096;

}  // namespace

Session::Session(Server& server, SessionInfo info)
    : Session(server, std::function<SessionInfo()>()) {
  info_ = std::move(info);
}

Session::Session(Server& server, std::function<SessionInfo()> describe)
    : server_(&server),
      describe_(std::move(describe)),
      id_(server.together.next_session_id()),
      input_(&server.buffer_bytes),
      output_(&server.buffer_bytes),
      arriving_(server.spare_entry),
      reply_(output_),
      now_us_(server.now_us()),
      created_us_(now_us_),
      last_interaction_us_(now_us_) {
  authenticated_ = !server.password_needed();
  server_->sessions.emplace_hint(server_->sessions.end(), id_, this);
  ++server_->statistics.connections_received;
}

Session::~Session() {
  if (server_ == nullptr) return;
  server_->buffer_bytes -= metered_;
  server_->sessions.erase(id_);
}

const SessionInfo& Session::info() const {
  if (describe_) info_ = std::exchange(describe_, nullptr)();
  return info_;
}

// --- bytes ---------------------------------------------------------------------------------------

void Session::arrived(std::size_t size) {
  arriving_.commit(size);
  if (arriving_.missing() == 0) parser_.moved_to(arriving_.data());
  server_->statistics.bytes_in += size;
}

void Session::feed(std::string_view bytes) {
  for (std::span<char> to; !bytes.empty() && !(to = room()).empty();) {
    const std::size_t size = std::min(to.size(), bytes.size());
    std::copy_n(bytes.data(), size, to.data());
    arrived(size);
    bytes.remove_prefix(size);
  }
  input_.append(bytes);
  server_->statistics.bytes_in += bytes.size();
}

void Session::refer_to_values(std::function<void()> released) {
  references_.released = [this, released = std::move(released)] {
    meter();
    released();
  };
  reply_.set_references(&references_);
}

void Session::value_taken(SentValue* value) noexcept {
  references_.took(value);
  server_->statistics.bytes_out += value->bytes;
}

void Session::shrink() {
  input_.shrink();
  output_.shrink();
  parser_.shrink();
  meter();
}

void Session::drop_buffers() noexcept {
  input_.clear();
  output_.clear();
  input_.shrink();
  output_.shrink();
  arriving_.end();
  references_.drop();
  meter();
}

/// For `timeout`: single bytes do not count as activity; a request or kSignOfLife bytes of one do.
void Session::note_progress() noexcept {
  if (waiting_input() < heard_ + kSignOfLife) return;
  heard_ = waiting_input();
  last_interaction_us_ = now_us_;
}

/// Single bytes do not count here, either.
void Session::note_sent() noexcept {
  const std::size_t now = output_size();
  if (now != 0 && now + kSignOfLife > unsent_) {
    unsent_ = std::max(unsent_, now);
    return;
  }
  unsent_ = now;
  last_interaction_us_ = server_->now_us();
}

/// The output that the client has not taken, as far as it is known: what waits here, in the
/// connection, and below it.
std::uint64_t Session::untaken() const {
  std::uint64_t sum = output_.size() + references_.waiting_bytes();
  if (!info().facts) return sum;
  for (const auto& [name, value] : info().facts()) {
    if (name == "pending" || name == "unsent") sum += std::strtoull(value.c_str(), nullptr, 10);
  }
  return sum;
}

bool Session::takes_output() noexcept {
  // Without facts nothing is known besides what note_sent() tells.
  if (!info().facts && !has_values()) return false;
  const std::int64_t now = server_->now_us();
  const bool compares = untaken_at_us_ > last_interaction_us_;
  if (compares && now - untaken_at_us_ <= server_->config.timeout_seconds * 1'000'000) return true;
  std::uint64_t left = 0;
  try {
    left = untaken();
  } catch (const std::exception&) {  // for example without memory: until the next call
    return true;
  }
  if (left == 0 || (compares && left + kSignOfLife > untaken_)) return false;
  untaken_ = left;
  untaken_at_us_ = now;
  return true;
}

// --- moving to another loop ----------------------------------------------------------------------

void Session::leave() noexcept {
  server_->buffer_bytes -= std::exchange(metered_, 0);
  input_.count_in(nullptr);
  output_.count_in(nullptr);
  arriving_.use(nullptr);
  server_ = nullptr;
}

void Session::join(Server& server) noexcept {
  server_ = &server;
  input_.count_in(&server.buffer_bytes);
  output_.count_in(&server.buffer_bytes);
  arriving_.use(&server.spare_entry);
  meter();
}

// --- running -------------------------------------------------------------------------------------

/// The limit is for replies that accumulate: a single reply of any size is sent, but a client that
/// requests more while so much is unsent does not read.
inline std::size_t Session::output_limit() const noexcept {
  const std::uint64_t limit = server_->config.client_output_limit;
  return limit == 0 ? SIZE_MAX : limit;
}

/// The result of execute() for a session that must not run requests now; nullopt: it may.
[[gnu::noinline]] std::optional<Session::Progress> Session::stopped() noexcept {
  if (stops_.closing || stops_.killed) return Progress::kDone;
  if (stops_.waiting) return Progress::kWaits;
  stops_.held = stops_.held && now_us_ < held_until_us_;
  return stops_.held ? std::optional(Progress::kHeld) : std::nullopt;
}

/// Whether a client that has sent no whole request yet may send one: its bytes are not those of
/// TLS.
[[gnu::noinline]] bool Session::may_begin() {
  if (!begins_with_tls()) return true;
  server_->together.log_limited(fmt::format(
      "{} {} speaks TLS; this port is plain: use a tls:// one", info().transport, info().peer));
  ++server_->statistics.protocol_errors;
  kill();
  return false;
}

/// Returns what execute() returns after a request that has ended the batch with `progress`.
[[gnu::noinline]] Session::Progress Session::stopped_by_request(Progress progress) noexcept {
  if (stops_.closing) {
    input_.clear();
    arriving_.end();
  }
  return stops_.closing || stops_.killed ? Progress::kDone : progress;
}

Session::Progress Session::execute(std::size_t limit) {
  now_us_ = server_->now_us();
  if (stops_.any()) [[unlikely]] {
    if (const auto progress = stopped()) return *progress;
  }
  if (!begun_ && !may_begin()) [[unlikely]]
    return Progress::kDone;
  const std::size_t batch_limit = output_size() + kBatchOutput;
  Progress progress = Progress::kIdle;
  try {
    bool whole = true;  // false: an argument in memory of its own is incomplete
    if (arriving_.missing() != 0) [[unlikely]] {
      take_shown();
      whole = arriving_.missing() == 0;
      if (!whole) {
        check_query_limit();
        note_progress();
      }
    }
    for (std::size_t done = 0; whole;) {
      const bool from_shown = input_.empty();
      const std::string_view input = from_shown ? shown_ : input_.view();
      if (input.empty()) break;
      const auto result = parser_.next(input, server_->config.parser, authenticated());
      if (result == RequestParser::Result::kNeedMore) {
        if (wants_more(input)) continue;
        check_query_limit();
        note_progress();
        break;
      }
      begun_ = true;
      heard_ = 0;
      last_interaction_us_ = now_us_;
      if (result == RequestParser::Result::kError) {
        protocol_error();
      } else {
        if (output_size() > output_limit()) {
          give_up_on_reader();
          break;
        }
        reply_.set_limit(output_limit() - references_.bytes());
        if (!from_shown && arriving_.lost()) [[unlikely]]
          lose_request();
        else if (!parser_.arguments().empty())
          run(parser_.arguments());
        if (from_shown) {
          shown_.remove_prefix(parser_.size());
        } else {
          input_.consume(parser_.size());
          if (arriving_.active()) arriving_.end();
        }
      }
      if (stops_.any() || reply_.overflowed()) [[unlikely]] {
        if (stops_.closing || stops_.killed) break;
        if (reply_.overflowed())
          give_up_on_reader();
        else
          progress = stops_.waiting ? Progress::kWaits : Progress::kHeld;
        break;
      }
      if (++done >= limit || output_size() >= batch_limit) {
        if (!input_.empty() || !shown_.empty()) progress = Progress::kMore;
        break;
      }
    }
    if (!shown_.empty() && !stops_.closing && !stops_.killed) input_.append(shown_);
  } catch (const std::bad_alloc&) {
    // There may be no memory even for an error reply. Only this client is closed.
    server_->together.log_limited(fmt::format("client {} closed: out of memory", id_));
    stops_.killed = true;
  }
  shown_ = {};
  meter();
  if (stops_.any()) [[unlikely]]
    return stopped_by_request(progress);
  return progress;
}

/// Moves the large argument's bytes out of shown_.
void Session::take_shown() {
  for (std::span<char> to; !shown_.empty() && !(to = room()).empty();) {
    const std::size_t size = std::min(to.size(), shown_.size());
    std::copy_n(shown_.data(), size, to.data());
    arriving_.commit(size);
    shown_.remove_prefix(size);
  }
  if (arriving_.lost()) {
    const std::size_t size = std::min(arriving_.missing(), shown_.size());
    arriving_.commit(size);
    shown_.remove_prefix(size);
  }
  if (arriving_.missing() == 0) parser_.moved_to(arriving_.data());
}

/// Called when the input has no complete request. Returns true if there is more input to parse.
bool Session::wants_more(std::string_view input) {
  constexpr std::size_t kPiece = 64;
  const std::size_t size = parser_.large();
  const std::size_t begin = parser_.size();
  if (size >= Arriving::kLeast && size <= Arriving::kMost && input.size() - begin < size) {
    arriving_.begin(parser_.key_of_large(input), size, input.substr(begin));
    // The beginning of the request stays: it holds the other arguments.
    if (input_.empty()) {
      input_.append(input.substr(0, begin));
      shown_ = {};
    } else {
      input_.truncate(begin);
      input_.trim();
    }
    parser_.take_out();
    take_shown();
    return arriving_.missing() == 0;
  }
  if (input_.empty() || shown_.empty()) return false;
  const std::size_t part =
      std::min(shown_.size(), parser_.missing() != 0 ? parser_.missing() : kPiece);
  input_.append(shown_.substr(0, part));
  shown_.remove_prefix(part);
  return true;
}

[[gnu::noinline]] void Session::truncate_output(std::size_t size) noexcept {
  output_.truncate(size);
  references_.truncate(size);
}

void Session::give_up_on_reader() noexcept {
  ++server_->statistics.output_limit_closed;
  stops_.killed = true;
}

/// Limits a request of many arguments, each of which may be within its own limit.
void Session::check_query_limit() {
  const std::uint64_t limit = server_->config.client_query_limit;
  if (limit == 0 || waiting_input() <= limit) return;
  ++server_->statistics.query_limit_closed;
  server_->together.log_limited(
      fmt::format("client {} ({} {}) closed: a request of more than {} bytes", id_,
                  info().transport, info().peer, limit));
  stops_.killed = true;
}

/// Whether the first bytes are those of a ClientHello: a handshake record of SSL 3.0 or TLS. They
/// may be received one by one.
bool Session::begins_with_tls() const noexcept {
  if (input_.size() == 1) return input_.view()[0] == '\x16' && shown_.starts_with('\x03');
  return (input_.empty() ? shown_ : input_.view()).starts_with("\x16\x03");
}

/// Replies the error for a request with an argument for which memory ran out.
[[gnu::noinline]] void Session::lose_request() { reject(nullptr, "OOM out of memory"); }

/// The command of a request that repeats() is false for. Returns null after a reply that refuses
/// the request.
[[gnu::noinline]] const Command* Session::find(Arguments arguments) {
  const Command* const command = find_command(arguments);
  if (command == nullptr) {
    if (is_word(arguments[0], "host:") || is_word(arguments[0], "post"))
      suspect("An HTTP request, perhaps forged in a browser, came from");
    else
      reject(nullptr, unknown_command(arguments));
    return nullptr;
  }
  const auto count = static_cast<std::int64_t>(arguments.size());
  if (command->arity > 0 ? count == command->arity : count >= -command->arity) return command;
  reject(command, wrong_arity(*command));
  return nullptr;
}

[[gnu::always_inline]] inline void Session::run(Arguments arguments) {
  // Most clients repeat the same command, which is then found without a lookup.
  const bool again = repeats(arguments);
  const Command* command = last_command_;
  if (!again) [[unlikely]] {
    command = find(arguments);
    if (command == nullptr) return;
  }
  if (!authenticated() && (command->flags & kNoAuth) == 0) {
    return reject(command, "NOAUTH Authentication required.");
  }
  if ((command->flags & kDenyOom) != 0 && server_->out_of_memory()) {
    return reject(command, "OOM command not allowed when used memory > 'maxmemory'.");
  }
  if (!again) [[unlikely]]
    remember(arguments, *command);
  const std::uint64_t errors_before = reply_.errors();
  const std::size_t output_before = output_.size();
  Call call{*server_, *this, *command, arguments, reply_, arriving_};
  try {
    if ((command->flags & kOneKey) == 0) {
      command->handler(call);
    } else {
      call.key = server_->store.key(arguments[1]);
      Shard& shard = server_->store.of(call.key);
      call.shard = &shard;
      const auto serve = [&]() __attribute__((always_inline)) {
        const Growth growth(shard, server_->data_bytes);
        command->handler(call);
      };
      if (server_->store.locked()) [[unlikely]] {
        const std::lock_guard lock(shard.mutex);
        serve();
      } else {
        serve();
      }
    }
  } catch (const std::bad_alloc&) {
    truncate_output(output_before);  // a partial reply would corrupt the stream
    reply_.error("OOM out of memory");
  }
  if (!std::exchange(parked_, false)) count_call(*command, errors_before);
}

/// Keeps the command of a request for repeats().
[[gnu::noinline]] void Session::remember(Arguments arguments, const Command& command) noexcept {
  const std::string_view word = arguments[0];
  last_command_ = &command;
  count_ = 0;
  if (command.subcommand || word.size() > word_.size()) return;
  count_ = arguments.size();
  word_size_ = word.size();
  std::copy_n(word.data(), word.size(), word_.data());
}

inline void Session::count_call(const Command& command, std::uint64_t errors_before) {
  ++server_->statistics.commands_processed;
  ++server_->statistics.commands[command.index].calls;
  if (reply_.errors() == errors_before) return;
  server_->statistics.error_replies += reply_.errors() - errors_before;
  ++server_->statistics.commands[command.index].failed;
}

void Session::finish_wait(const std::function<void(Call&)>& reply) {
  stops_.waiting = false;
  const std::uint64_t errors_before = reply_.errors();
  const std::size_t output_before = output_.size();
  Call call{*server_, *this, *last_command_, {}, reply_, arriving_};
  try {
    try {
      reply(call);
    } catch (const std::bad_alloc&) {
      truncate_output(output_before);
      reply_.error("OOM out of memory");
    }
    count_call(*last_command_, errors_before);
    if (reply_.overflowed()) give_up_on_reader();
  } catch (const std::bad_alloc&) {
    kill();
  }
  if (!parked_ && server_->session_ready) server_->session_ready(*this);
}

void Session::reject(const Command* command, std::string_view error) {
  reply_.error(error);
  ++server_->statistics.error_replies;
  ++server_->statistics.commands_rejected;
  if (command != nullptr) ++server_->statistics.commands[command->index].rejected;
}

void Session::protocol_error() {
  reply_.error("ERR " + parser_.error());
  ++server_->statistics.error_replies;
  ++server_->statistics.protocol_errors;
  server_->together.log_limited(fmt::format("client {} ({} {}) closed: {}", id_, info().transport,
                                            info().peer, parser_.error()));
  stops_.closing = true;
}

// --- called by commands and by the server -------------------------------------------------------

void Session::suspect(std::string_view why) {
  server_->together.log_limited(
      fmt::format("{} {} {}. The connection is closed.", why, info().transport, info().peer));
  kill();
}

void Session::kill() {
  if (stops_.killed) return;
  stops_.killed = true;
  if (server_->session_killed) server_->session_killed(*this);
}

bool Session::log_in(std::string_view user, std::string_view password) {
  // Both comparisons always run, so that the time reveals nothing about either.
  const bool user_fits = equals_constant_time(user, "default");
  const bool password_fits =
      !server_->password_needed() || equals_constant_time(password, server_->config.requirepass);
  if (user_fits && password_fits) {
    failed_logins_ = 0;
    authenticated_ = true;
    return true;
  }
  ++server_->statistics.auth_failures;
  // Two wrong passwords cost nothing; from then on each costs 100 ms, 200 ms ... 3.2 s.
  if (++failed_logins_ >= 3) {
    held_until_us_ = now_us_ + (std::int64_t{100'000} << std::min(failed_logins_ - 3, 5));
    stops_.held = true;
  }
  return false;
}

std::string Session::describe(bool with_facts) const {
  const std::int64_t now = server_->now_us();
  std::string line = fmt::format(
      "id={} addr={} laddr={} fd={} name= age={} idle={} flags=N db=0 qbuf={} obl={} oll={} "
      "omem={} "
      "tot-mem={} cmd={} user=default resp={} transport={}",
      id_, info().peer, info().local, info().fd, (now - created_us_) / 1'000'000,
      (now - last_interaction_us_) / 1'000'000, waiting_input(), output_.size(),
      references_.count(), output_.capacity() + references_.bytes(), memory() + sizeof(Session),
      last_command_ != nullptr ? last_command_->name : "NULL", reply_.version(), info().transport);
  if (info().path) line.append(" path=").append(list_field(info().path()));
  if (server_->config.loops > 1) line += fmt::format(" loop={}", server_->loop);
  if (!with_facts || !info().facts) return line;
  for (const auto& [key, value] : info().facts()) {
    // Some values come from the peer, such as the name that a TLS client requests.
    if (key != "fd") line.append(" ").append(key).append("=").append(list_field(value));
  }
  return line;
}

}  // namespace kv
