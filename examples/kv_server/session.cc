// SPDX-License-Identifier: BSD-3-Clause
#include "session.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "command.h"
#include "together.h"

namespace kv {
namespace {

/// A batch ends once its replies exceed this, so that large values of one client do not stall
/// others.
constexpr std::size_t kBatchOutput = 1 << 20;
constexpr std::size_t kSignOfLife = 4096;

}  // namespace

struct Session::OneLoop {
  static constexpr bool kDivided = false;
  static bool out_of_memory(const Server& server) noexcept { return server.out_of_memory(); }
  static Database* database(Server& server, std::size_t index) noexcept {
    return &server.store.database(index);
  }
  static void call(Call& call) { call.command.handler(call); }
};

struct Session::Divided {
  static constexpr bool kDivided = true;
  static bool out_of_memory(const Server& server) noexcept { return server.out_of_memory_of_all(); }
  static Database* database(Server&, std::size_t) noexcept { return nullptr; }
  static void call(Call& call) {
    if (call.command.divided != nullptr) return call.command.divided(call);
    if (call.command.first_key == 0) return call.command.handler(call);
    Shards& shards = call.server.together->shards;
    const auto key = call.argv[static_cast<std::size_t>(call.command.first_key)];
    ShardLock lock(shards[shards.index_of(key)], call.server.data_bytes);
    call.db = &lock.store().database(call.session.database_index());
    call.command.handler(call);
  }
};

Session::Session(Server& server, SessionInfo info)
    : Session(server, std::function<SessionInfo()>()) {
  info_ = std::move(info);
}

Session::Session(Server& server, std::function<SessionInfo()> describe)
    : server_(server),
      describe_(std::move(describe)),
      id_(server.next_session_id()),
      input_(&server.buffer_bytes),
      output_(&server.buffer_bytes),
      arriving_(server.spare_entry),
      reply_(output_),
      now_us_(server.now_us()),
      created_us_(now_us_),
      last_interaction_us_(now_us_) {
  authenticated_ = !server.password_needed();
  server_.sessions.emplace_hint(server_.sessions.end(), id_, this);
  ++server_.statistics.connections_received;
}

Session::~Session() {
  server_.buffer_bytes -= metered_;
  server_.sessions.erase(id_);
}

const SessionInfo& Session::info() const {
  if (describe_) info_ = std::exchange(describe_, nullptr)();
  return info_;
}

// --- bytes ---------------------------------------------------------------------------------------

void Session::arrived(std::size_t size) {
  arriving_.commit(size);
  if (arriving_.missing() == 0) parser_.moved_to(arriving_.data());
  bytes_in_ += size;
  server_.statistics.bytes_in += size;
}

void Session::show(std::string_view bytes) {
  shown_ = bytes;
  bytes_in_ += bytes.size();
  server_.statistics.bytes_in += bytes.size();
}

void Session::feed(std::string_view bytes) {
  for (std::span<char> to; !bytes.empty() && !(to = room()).empty();) {
    const std::size_t size = std::min(to.size(), bytes.size());
    std::copy_n(bytes.data(), size, to.data());
    arrived(size);
    bytes.remove_prefix(size);
  }
  input_.append(bytes);
  bytes_in_ += bytes.size();
  server_.statistics.bytes_in += bytes.size();
}

void Session::consume_output(std::size_t size) noexcept {
  output_.consume(size);
  references_.text_sent(size);
  bytes_out_ += size;
  server_.statistics.bytes_out += size;
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
  bytes_out_ += value->bytes;
  server_.statistics.bytes_out += value->bytes;
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

std::size_t Session::own_memory() const noexcept {
  return parser_.memory() + heap_bytes(name_) + arriving_.memory() + references_.bytes();
}

/// Updates the meter; the buffers update it themselves.
void Session::meter() noexcept {
  const std::size_t now = own_memory();
  server_.buffer_bytes += now - metered_;
  metered_ = now;
}

// --- running -------------------------------------------------------------------------------------

template <class Data>
Session::Progress Session::execute_on(std::size_t limit) {
  if (closing_ || killed_) return Progress::kDone;
  if constexpr (Data::kDivided) {
    if (waiting_) return Progress::kWaits;
  }
  now_us_ = server_.now_us();
  if (now_us_ < held_until_us_) return Progress::kHeld;
  if (begins_with_tls()) {
    server_.log_limited(fmt::format("{} {} speaks TLS; this port is plain: use a tls:// one",
                                    info().transport, info().peer));
    ++server_.statistics.protocol_errors;
    kill();
    return Progress::kDone;
  }
  const std::size_t output_limit = output_size() + kBatchOutput;
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
      const auto result = parser_.next(input, server_.config.parser, authenticated());
      if (result == RequestParser::Result::kNeedMore) {
        if (wants_more(input)) continue;
        check_query_limit();
        note_progress();
        break;
      }
      heard_ = 0;
      last_interaction_us_ = now_us_;
      if (result == RequestParser::Result::kError) {
        protocol_error();
      } else {
        if (over_output_limit()) break;
        if (!from_shown && arriving_.lost()) [[unlikely]]
          lose_request();
        else if (!parser_.arguments().empty())
          run<Data>(parser_.arguments());
        if (from_shown) {
          shown_.remove_prefix(parser_.size());
        } else {
          input_.consume(parser_.size());
          if (arriving_.active()) arriving_.end();
        }
      }
      if (closing_ || killed_) break;
      if constexpr (Data::kDivided) {
        if (waiting_) {
          progress = Progress::kWaits;
          break;
        }
      }
      if (held_until_us_ > now_us_) {
        progress = Progress::kHeld;
        break;
      }
      if (++done >= limit || output_size() >= output_limit) {
        if (!input_.empty() || !shown_.empty()) progress = Progress::kMore;
        break;
      }
    }
    if (!shown_.empty() && !closing_ && !killed_) input_.append(shown_);
  } catch (const std::bad_alloc&) {
    // There may be no memory even for an error reply. Only this client is closed.
    server_.log_limited(fmt::format("client {} closed: out of memory", id_));
    killed_ = true;
  }
  shown_ = {};
  meter();
  if (closing_) {
    input_.clear();
    arriving_.end();
    return Progress::kDone;
  }
  return killed_ ? Progress::kDone : progress;
}

template Session::Progress Session::execute_on<Session::OneLoop>(std::size_t);
template Session::Progress Session::execute_on<Session::Divided>(std::size_t);

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

/// The limit is for replies that accumulate: a single reply of any size is sent, but a client that
/// requests more while so much is unsent does not read.
bool Session::over_output_limit() noexcept {
  const std::uint64_t limit = server_.config.client_output_limit;
  if (limit == 0 || output_size() <= limit) return false;
  give_up_on_reader();
  return true;
}

void Session::give_up_on_reader() noexcept {
  ++server_.statistics.output_limit_closed;
  killed_ = true;
}

/// Limits a request of many arguments, each of which may be within its own limit.
void Session::check_query_limit() {
  const std::uint64_t limit = server_.config.client_query_limit;
  if (limit == 0 || waiting_input() <= limit) return;
  ++server_.statistics.query_limit_closed;
  server_.log_limited(fmt::format("client {} ({} {}) closed: a request of more than {} bytes", id_,
                                  info().transport, info().peer, limit));
  killed_ = true;
}

/// Whether the first bytes are those of a ClientHello: a handshake record of SSL 3.0 or TLS. They
/// may be received one by one.
bool Session::begins_with_tls() const noexcept {
  if (bytes_in_ != input_.size() + shown_.size()) [[likely]]
    return false;
  if (input_.size() == 1) return input_.view()[0] == '\x16' && shown_.starts_with('\x03');
  return (input_.empty() ? shown_ : input_.view()).starts_with("\x16\x03");
}

[[gnu::always_inline]] inline void Session::end_request() {
  ++commands_;
  if (reply_.overflowed()) give_up_on_reader();
}

/// Replies the error for a request with an argument for which memory ran out.
[[gnu::noinline]] void Session::lose_request() {
  reject(nullptr, "OOM out of memory");
  end_request();
}

template <class Data>
void Session::run(Arguments arguments) {
  const std::uint64_t limit = server_.config.client_output_limit;
  std::size_t room = limit == 0 ? SIZE_MAX : limit;
  if (references_.bytes() != 0 && limit != 0) [[unlikely]] {
    room -= std::min<std::size_t>(room, references_.bytes());
  }
  reply_.set_limit(room);
  dispatch<Data>(arguments);
  if constexpr (Data::kDivided) {
    if (std::exchange(parked_, false)) return;
  }
  end_request();
}

/// Most clients repeat the same command, which is then found without a lookup.
bool Session::asks_again(std::string_view name) const noexcept {
  return last_command_ != nullptr && equals_ignore_case(last_command_->name, name) &&
         !last_command_->subcommand;
}

template <class Data>
void Session::dispatch(Arguments arguments) {
  const Command* command = asks_again(arguments[0]) ? last_command_ : find_command(arguments);
  if (command == nullptr) {
    if (is_word(arguments[0], "host:") || is_word(arguments[0], "post")) {
      return suspect("An HTTP request, perhaps forged in a browser, came from");
    }
    return reject(nullptr, unknown_command(arguments));
  }
  const auto count = static_cast<std::int64_t>(arguments.size());
  if (command->arity > 0 ? count != command->arity : count < -command->arity) {
    return reject(command, wrong_arity(*command));
  }
  if (!authenticated() && (command->flags & kNoAuth) == 0) {
    return reject(command, "NOAUTH Authentication required.");
  }
  if ((command->flags & kDenyOom) != 0 && Data::out_of_memory(server_)) {
    return reject(command, "OOM command not allowed when used memory > 'maxmemory'.");
  }
  last_command_ = command;
  const std::uint64_t errors_before = reply_.errors();
  const std::size_t output_before = output_.size();
  Call call{server_,        *this,     Data::database(server_, database_),
            *command,       arguments, reply_,
            now_us_ / 1000, arriving_};
  try {
    Data::call(call);
  } catch (const std::bad_alloc&) {
    truncate_output(output_before);  // a partial reply would corrupt the stream
    reply_.error("OOM out of memory");
  }
  if constexpr (Data::kDivided) {
    if (parked_) return;
  }
  count_call(*command, errors_before);
}

void Session::count_call(const Command& command, std::uint64_t errors_before) {
  ++server_.statistics.commands_processed;
  ++server_.statistics.commands[command.index].calls;
  if (reply_.errors() == errors_before) return;
  server_.statistics.error_replies += reply_.errors() - errors_before;
  ++server_.statistics.commands[command.index].failed;
}

void Session::finish_wait(const std::function<void(Call&)>& reply) {
  waiting_ = false;
  const std::uint64_t errors_before = reply_.errors();
  const std::size_t output_before = output_.size();
  Call call{server_, *this, nullptr, *last_command_, {}, reply_, now_us_ / 1000, arriving_};
  try {
    try {
      reply(call);
    } catch (const std::bad_alloc&) {
      truncate_output(output_before);
      reply_.error("OOM out of memory");
    }
    count_call(*last_command_, errors_before);
    end_request();
  } catch (const std::bad_alloc&) {
    kill();
  }
  if (!parked_ && server_.session_ready) server_.session_ready(*this);
}

void Session::reject(const Command* command, std::string_view error) {
  reply_.error(error);
  ++server_.statistics.error_replies;
  ++server_.statistics.commands_rejected;
  if (command != nullptr) ++server_.statistics.commands[command->index].rejected;
}

void Session::protocol_error() {
  reply_.error("ERR " + parser_.error());
  ++server_.statistics.error_replies;
  ++server_.statistics.protocol_errors;
  server_.log_limited(fmt::format("client {} ({} {}) closed: {}", id_, info().transport,
                                  info().peer, parser_.error()));
  closing_ = true;
}

// --- called by commands and by the server -------------------------------------------------------

void Session::suspect(std::string_view why) {
  server_.log_limited(
      fmt::format("{} {} {}. The connection is closed.", why, info().transport, info().peer));
  kill();
}

void Session::kill() {
  if (killed_) return;
  killed_ = true;
  if (server_.session_killed) server_.session_killed(*this);
}

bool Session::log_in(std::string_view user, std::string_view password) {
  // Both comparisons always run, so that the time reveals nothing about either.
  const bool user_fits = equals_constant_time(user, "default");
  const bool password_fits =
      !server_.password_needed() || equals_constant_time(password, server_.config.requirepass);
  if (user_fits && password_fits) {
    failed_logins_ = 0;
    authenticated_ = true;
    return true;
  }
  ++server_.statistics.auth_failures;
  // Two wrong passwords cost nothing; from then on each costs 100 ms, 200 ms ... 3.2 s.
  if (++failed_logins_ >= 3) {
    held_until_us_ = now_us_ + (std::int64_t{100'000} << std::min(failed_logins_ - 3, 5));
  }
  return false;
}

bool Session::select(std::int64_t index) noexcept {
  if (index < 0 || static_cast<std::size_t>(index) >= server_.database_count) return false;
  database_ = static_cast<std::size_t>(index);
  return true;
}

void Session::reset() {
  database_ = 0;
  reply_.set_version(2);
  authenticated_ = !server_.password_needed();
  name_.clear();
}

std::string Session::describe() const {
  const std::int64_t now = server_.now_us();
  std::string line = fmt::format(
      "id={} addr={} laddr={} fd={} name={} age={} idle={} flags=N db={} sub=0 psub=0 ssub=0 "
      "multi=-1 qbuf={} qbuf-free={} argv-mem=0 multi-mem=0 rbs={} rbp=0 obl={} oll={} omem={} "
      "tot-mem={} events=r cmd={} user=default redir=-1 resp={} "
      "tot-net-in={} tot-net-out={} tot-cmds={} transport={}",
      id_, info().peer, info().local, info().fd, name_, (now - created_us_) / 1'000'000,
      (now - last_interaction_us_) / 1'000'000, database_, waiting_input(),
      input_.capacity() + arriving_.memory() -
          std::min(input_.capacity() + arriving_.memory(), waiting_input()),
      output_.capacity(), output_.size(), references_.count(),
      output_.capacity() + references_.bytes(), memory() + sizeof(Session),
      last_command_ != nullptr ? last_command_->name : "NULL", reply_.version(), bytes_in_,
      bytes_out_, commands_, info().transport);
  if (info().path) {
    line.append(" path=").append(list_field(info().path()));
  }
  if (server_.together != nullptr) line += fmt::format(" loop={}", server_.loop);
  return line;
}

std::string Session::describe_with_facts() const {
  std::string line = describe();
  if (!info().facts) return line;
  for (const auto& [key, value] : info().facts()) {
    if (key == "fd") continue;  // describe() has it
    // Some values come from the peer, such as the name that a TLS client requests.
    line.append(" ").append(key).append("=").append(list_field(value));
  }
  return line;
}

}  // namespace kv
