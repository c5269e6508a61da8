// SPDX-License-Identifier: BSD-3-Clause
// Contexts of hiredis, or with -DLIBVALKEY of libvalkey, over one URL with a running server:
// resp_contexts URL PROCESS [idle]. PROCESS is the server's process id; it is stopped and continued
// in the cases about a server that does not answer. Ends with "N passed, N failed".
#ifdef LIBVALKEY
#include "adapters/libvalkey.h"
#else
#include "adapters/hiredis.h"
#endif

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ae/libev_loop.h"
#include "conn/transports/transports.h"

#ifdef LIBVALKEY
#define LIB(name) valkey##name
#define CONST(name) VALKEY_##name
namespace lib = adapters::libvalkey;
#else
#define LIB(name) redis##name
#define CONST(name) REDIS_##name
namespace lib = adapters::hiredis;
#endif

namespace {

using namespace std::chrono_literals;
using Context = LIB(Context);
using Async = LIB(AsyncContext);
using Options = LIB(Options);

int passed = 0, failed = 0;
std::string url;
pid_t server = 0;
const conn::Registry registry = conn::all_transports();

void check(bool fine, std::string_view what, std::string_view got = {}) {
  ++(fine ? passed : failed);
  if (!fine) std::cout << "FAIL " << what << (got.empty() ? "" : ": ") << got << std::endl;
}
bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

struct Free {
  void operator()(Context* context) const { LIB(Free)(context); }
};
using ContextPtr = std::unique_ptr<Context, Free>;

// Short time-outs that expire when the server is stopped, but not when it is only slow.
timeval brief{0, 0};
std::string brief_words;
void set_brief() {
  const char* slower = ::getenv("AECONN_SLOWER");
  const long tenths = 3 * (slower != nullptr && atol(slower) > 0 ? atol(slower) : 1);
  brief = {tenths / 10, tenths % 10 * 100000};
  brief_words = std::to_string(tenths / 10) +
                (tenths % 10 != 0 ? "." + std::to_string(tenths % 10) : "") + " s";
}
bool kernel_connects() { return url.starts_with("tcp://") || url.starts_with("unix:"); }

struct Stopped {  // stops the server, so that it does not answer
  Stopped() { ::kill(server, SIGSTOP); }
  ~Stopped() { ::kill(server, SIGCONT); }
};

std::string text(const LIB(Reply) * reply) {
  if (reply == nullptr) return "no reply";
  switch (reply->type) {
    case CONST(REPLY_NIL):
      return "nil";
    case CONST(REPLY_INTEGER):
      return std::to_string(reply->integer);
    case CONST(REPLY_STRING):
    case CONST(REPLY_STATUS):
    case CONST(REPLY_ERROR):
      return {reply->str, reply->len};
    default:
      return "type " + std::to_string(reply->type);
  }
}
template <class... Arguments>
std::string ask(Context* context, const char* format, Arguments... arguments) {
  auto* reply = static_cast<LIB(Reply)*>(LIB(Command)(context, format, arguments...));
  std::string answer = reply != nullptr ? text(reply) : std::string("error: ") + context->errstr;
  if (reply != nullptr) freeReplyObject(reply);
  return answer;
}
int again(Context* context) {
#ifdef LIBVALKEY
  return valkeyReconnect(context);
#else
  return lib::reconnect(context);
#endif
}
Options with_times(const timeval* connecting, const timeval* command) {
  Options options{};
  options.connect_timeout = connecting;
  options.command_timeout = command;
  return options;
}
std::string large() {
  std::string value(8 << 20, '\0');
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 31 + i / 4096);
  return value;
}

// ---- blocking contexts --------------------------------------------------------------------------
void blocking() {
  ae::LibevLoop loop;
  const ContextPtr c(lib::connect(registry, loop, url));
  check(c && c->err == 0, "connects", c->errstr);
  if (c->err != 0) return;
  check((c->flags & CONST(CONNECTED)) != 0, "is connected");
  check(lib::connection(c.get()) != nullptr && !lib::connection(c.get())->peer_address().empty(),
        "knows its peer");
  std::string got = ask(c.get(), "PING");
  check(got == "PONG", "PING", got);
  const char bytes[] = "\0\xff\r\n";
  check(ask(c.get(), "SET bytes %b", bytes, sizeof bytes) == "OK", "SET of bytes");
  check(ask(c.get(), "GET bytes") == std::string(bytes, sizeof bytes), "GET of bytes");
  check(ask(c.get(), "GET missing-%s", "key") == "nil", "a missing key");
  check(has(ask(c.get(), "INCR bytes"), "ERR "), "an error of the server");
  check(c->err == 0, "which is none of the context");

  const std::string value = large();
  got = ask(c.get(), "SET large %b", value.data(), value.size());
  check(got == "OK", "SET of 8 MB", got);
  check(ask(c.get(), "GET large") == value, "GET of 8 MB");
  check(ask(c.get(), "DEL large counter") != "", "DEL");

  for (int i = 0; i < 10000; ++i) LIB(AppendCommand)(c.get(), "INCR counter");
  bool in_order = true;
  for (int i = 1; i <= 10000 && in_order; ++i) {
    void* reply = nullptr;
    in_order = LIB(GetReply)(c.get(), &reply) == CONST(OK) &&
               text(static_cast<LIB(Reply)*>(reply)) == std::to_string(i);
    if (reply != nullptr) freeReplyObject(reply);
  }
  check(in_order, "10000 commands at once", c->errstr);

  const ContextPtr other(lib::connect(registry, loop, url));
  bool turns = other && other->err == 0;
  for (int i = 0; i < 100 && turns; ++i)
    turns =
        ask(c.get(), "SET turn %d", i) == "OK" && ask(other.get(), "GET turn") == std::to_string(i);
  check(turns, "two contexts of one loop take turns", other->errstr);
}

void ends_and_starts_again() {
  ae::LibevLoop loop;
  const ContextPtr c(lib::connect(registry, loop, url));
  const std::string quit = ask(c.get(), "QUIT");
  check(quit == "OK", "QUIT", quit);
  const std::string after = ask(c.get(), "PING");
  check(c->err == CONST(ERR_EOF) || c->err == CONST(ERR_IO), "after QUIT", after);
  if (c->err == CONST(ERR_EOF)) check(has(after, "has closed the connection"), "its words", after);
  check(has(ask(c.get(), "PING"), "error: "), "the error stays");
  const int status = again(c.get());
  check(status == CONST(OK), "reconnects", c->errstr);
  check(c->err == 0 && ask(c.get(), "PING") == "PONG", "after reconnecting", c->errstr);
  check(
      again(c.get()) == CONST(OK) && again(c.get()) == CONST(OK) && ask(c.get(), "PING") == "PONG",
      "reconnects without an error", c->errstr);
}

void times_out() {
  ae::LibevLoop loop;
  const Options options = with_times(nullptr, &brief);
  for (const bool later : {false, true}) {
    const ContextPtr c(lib::connect(registry, loop, url, later ? nullptr : &options));
    if (later) check(LIB(SetTimeout)(c.get(), brief) == CONST(OK), "sets a time-out", c->errstr);
    check(ask(c.get(), "PING") == "PONG", "in time", c->errstr);
    {
      const Stopped stopped;
      const std::string answer = ask(c.get(), "PING");
      check(c->err == CONST(ERR_TIMEOUT), "a time-out's kind", std::to_string(c->err));
      check(has(answer, ": no reply within " + brief_words), "a time-out's words", answer);
    }
    timeval longer{20, 0};
    if (!later) LIB(SetTimeout)(c.get(), longer);
    // A late answer to the first command must not be taken for the answer to the next.
    check(again(c.get()) == CONST(OK), "reconnects after a time-out", c->errstr);
    LIB(SetTimeout)(c.get(), longer);
    check(ask(c.get(), "SET late %s", "1") == "OK", "after a time-out", c->errstr);
  }
}

void cannot_connect() {
  ae::LibevLoop loop;
  const ContextPtr nobody(lib::connect(registry, loop, "tcp://127.0.0.1:1"));
  check(nobody->err == CONST(ERR_IO) && has(nobody->errstr, "refused"), "nobody listens",
        nobody->errstr);
  check((nobody->flags & CONST(CONNECTED)) == 0, "is not connected");
  check(ask(nobody.get(), "PING").find("error: ") == 0, "a command fails");
  check(again(nobody.get()) == CONST(ERR) && has(nobody->errstr, "refused"), "nor again",
        nobody->errstr);
  for (const char* bad : {"nonsense", "carrier://127.0.0.1:1", "tcp://127.0.0.1:1?wings=2"}) {
    const ContextPtr c(lib::connect(registry, loop, bad));
    check(c->err == CONST(ERR_OTHER) && strlen(c->errstr) > 10, bad, c->errstr);
  }
  if (kernel_connects()) return;
  const Options options = with_times(&brief, nullptr);
  const Stopped stopped;
  const ContextPtr slow(lib::connect(registry, loop, url, &options));
  check(slow->err == CONST(ERR_IO), "a connection that does not come", slow->errstr);
}

void does_not_wait() {
  ae::LibevLoop loop;
  Options options{};
  options.options = CONST(OPT_NONBLOCK);
  const ContextPtr c(lib::connect(registry, loop, url, &options));
  check(c->err == 0, "a context that does not block", c->errstr);
  LIB(AppendCommand)(c.get(), "PING");
  int done = 0;
  check(LIB(BufferWrite)(c.get(), &done) == CONST(OK) && done == 1, "writes", c->errstr);
  void* reply = nullptr;
  for (int i = 0; i < 20000 && reply == nullptr && c->err == 0; ++i) {
    loop.process_events(ae::kFullIteration | ae::kDontWait);
    LIB(BufferRead)(c.get());
    LIB(GetReplyFromReader)(c.get(), &reply);
    if (reply == nullptr) ::usleep(1000);  // such a context gets no events
  }
  check(text(static_cast<LIB(Reply)*>(reply)) == "PONG", "and reads", c->errstr);
  if (reply != nullptr) freeReplyObject(reply);
}

// This library's server treats an rdma client that promised keepalives as dead after ten silent
// seconds.
void idle() {
  ae::LibevLoop loop;
  const ContextPtr c(lib::connect(registry, loop, url));
  ::sleep(13);
  const std::string got = ask(c.get(), "PING");
  check(got == "PONG", "after 13 s in which nobody ran the loop", got);
}

// ---- asynchronous contexts ----------------------------------------------------------------------
// What a context's callbacks have seen; its `data` points here.
struct Seen {
  ae::LibevLoop loop;
  Async* context = nullptr;
  std::optional<int> connected, disconnected;
  int error = 0;
  std::string words;
  std::vector<std::string> replies;
  std::function<void(Async*)> on_connect;
  std::function<void(Async*, const std::string&)> on_reply;

  explicit Seen(const Options* options = nullptr, std::string to = url) {
    context = lib::connect_async(registry, loop, to, options);
    context->data = this;
    LIB(AsyncSetConnectCallback)(context, &Seen::connect);
    LIB(AsyncSetDisconnectCallback)(context, &Seen::disconnect);
  }
  static Seen& of(const Async* context) { return *static_cast<Seen*>(context->data); }
  void keep_error(const Async* of) {
    error = of->err;
    words = of->errstr != nullptr ? of->errstr : "";
  }
#ifdef LIBVALKEY
  static void connect(Async* context, int status){
#else
  static void connect(const Async* context, int status) {
#endif
      Seen& seen = of(context);
  seen.connected = status;
  seen.keep_error(context);
  if (seen.on_connect) seen.on_connect(const_cast<Async*>(context));
  if (status != CONST(OK)) seen.context = nullptr;
} static void disconnect(const Async* context, int status) {
  Seen& seen = of(context);
  seen.disconnected = status;
  seen.keep_error(context);
  seen.context = nullptr;
}
static void reply(Async* context, void* reply, void*) {
  Seen& seen = of(context);
  seen.replies.push_back(text(static_cast<LIB(Reply)*>(reply)));
  if (reply == nullptr) seen.keep_error(context);
  if (seen.on_reply) seen.on_reply(context, seen.replies.back());
}
template <class... Arguments>
int command(const char* format, Arguments... arguments) {
  return LIB(AsyncCommand)(context, &Seen::reply, nullptr, format, arguments...);
}
/// Runs the loop until the condition holds; false after 30 s.
template <class Condition>
bool until(Condition condition) {
  bool over = false;
  const ae::TimerId limit = loop.add_time_event(30s, [&] {
    over = true;
    return ae::kNoMore;
  });
  while (!condition() && !over) loop.process_events(ae::kFullIteration);
  if (!over) loop.remove_time_event(limit);
  return condition();
}
bool until_replies(std::size_t count) {
  return until([&] { return replies.size() >= count; });
}
bool until_gone() {
  return until([&] { return context == nullptr; });
}
};  // namespace

void asynchronous() {
  Seen seen;
  check(seen.context->err == 0, "async: begins", seen.words);
  check(!seen.connected, "async: no callback inside connect_async()");
  check(seen.command("DEL list") == CONST(OK), "async: a command before it is connected");
  check(seen.until_replies(1), "async: its reply");
  check(seen.connected == CONST(OK), "async: the connect callback");
  seen.replies.clear();
  for (int i = 0; i < 1000; ++i) {
    seen.command("SET number %d", i);
    seen.command("GET number");
  }
  check(seen.until_replies(2000), "async: 2000 commands at once");
  bool in_order = seen.replies.size() == 2000;
  for (std::size_t i = 0; in_order && i < 1000; ++i)
    in_order = seen.replies[2 * i] == "OK" && seen.replies[2 * i + 1] == std::to_string(i);
  check(in_order, "async: replies in their order");

  const std::string value = large();
  seen.replies.clear();
  seen.command("SET large %b", value.data(), value.size());
  seen.command("GET large");
  seen.command("DEL large");
  check(seen.until_replies(3) && seen.replies[0] == "OK" && seen.replies[1] == value,
        "async: 8 MB there and back");

  // One command after the other, each sent by the reply handler of the one before.
  seen.replies.clear();
  seen.on_reply = [&](Async*, const std::string&) {
    if (seen.replies.size() < 100) seen.command("PING");
  };
  seen.command("PING");
  check(seen.until_replies(100), "async: commands from callbacks");
  seen.on_reply = nullptr;

  seen.replies.clear();
  seen.command("PING");
  LIB(AsyncDisconnect)(seen.context);
  check(seen.command("PING") == CONST(ERR), "async: no command after the disconnect");
  check(seen.until_gone() && seen.replies == std::vector<std::string>{"PONG"},
        "async: a disconnect waits for replies");
  check(seen.disconnected == CONST(OK), "async: the disconnect callback");
}

void asynchronous_ends() {
  {
    Seen seen;
    seen.command("QUIT");
    seen.command("PING");
    check(seen.until_gone(), "async: the server's end");
    check(seen.replies.size() == 2 && seen.replies[0] == "OK" && seen.replies[1] == "no reply",
          "async: replies at the end");
    check(seen.disconnected == CONST(ERR), "async: the end is an error");
    check(!seen.words.empty(), "async: with words");
  }
  {
    Seen seen;
    seen.on_reply = [](Async* context, const std::string&) { LIB(AsyncFree)(context); };
    seen.command("PING");
    seen.command("PING");
    check(seen.until_gone(), "async: freed in a reply's callback");
    check(seen.disconnected == CONST(OK), "async: freed, the status");
  }
  {
    Seen seen;
    seen.on_connect = [](Async* context) { LIB(AsyncFree)(context); };
    check(seen.until_gone(), "async: freed in the connect callback");
  }
  {
    Seen seen;
    seen.on_connect = [](Async* context) { LIB(AsyncDisconnect)(context); };
    check(seen.until_gone() && seen.disconnected == CONST(OK),
          "async: disconnected in the connect callback");
  }
  {
    Seen seen;
    seen.command("PING");
    seen.on_connect = [](Async* context) { LIB(AsyncDisconnect)(context); };
    check(seen.until_gone() && seen.replies == std::vector<std::string>{"PONG"},
          "async: disconnected in the connect callback, with a command");
  }
  {
    Seen seen;
    seen.command("PING");
    LIB(AsyncFree)(seen.context);
    check(seen.replies == std::vector<std::string>{"no reply"}, "async: freed at once");
  }
  {
    auto seen = std::make_unique<Seen>();
    Seen* const raw = seen.get();
    check(raw->until([&] { return raw->connected.has_value(); }), "async: stands");
    Async* const context = raw->context;
    LIB(AsyncSetTimeout)(context, timeval{5, 0});
    raw->command("PING");
    context->replies.head->fn = nullptr;  // its result ends with the loop
    context->data = nullptr;
    context->onDisconnect = nullptr;
    static bool dropped;
    dropped = false;
    context->dataCleanup = [](void*) { dropped = true; };
    raw->loop.process_events(ae::kFullIteration | ae::kDontWait);
    seen.reset();
    LIB(AsyncFree)(context);
    check(dropped, "async: freed after its loop");
  }
}

void asynchronous_failures() {
  {
    Seen seen(nullptr, "tcp://127.0.0.1:1");
    seen.command("PING");
    check(seen.until_gone(), "async: nobody listens");
    check(seen.connected == CONST(ERR) && !seen.disconnected, "async: which the callback hears");
    check(has(seen.words, "refused"), "async: with the reason", seen.words);
    check(seen.replies == std::vector<std::string>{"no reply"}, "async: commands are told");
  }
  {
    Seen seen(nullptr, "tcp://127.0.0.1:1?wings=2");
    check(seen.context->err == CONST(ERR_OTHER) && has(seen.context->errstr, "wings"),
          "async: a bad URL");
    LIB(AsyncFree)(seen.context);
  }
  {
    Options options{};
    options.options = CONST(OPT_NOAUTOFREE);
    Seen seen(&options, "tcp://127.0.0.1:1");
    Async* const context = seen.context;
    check(seen.until_gone() && has(context->errstr, "refused"), "async: not freed by itself");
    LIB(AsyncFree)(context);
  }
  {
    const Options options = with_times(nullptr, &brief);
    Seen seen(&options);
    seen.command("PING");
    check(seen.until_replies(1) && seen.replies[0] == "PONG", "async: in time");
    const Stopped stopped;
    seen.command("PING");
    check(seen.until_gone(), "async: a command's time-out");
    check(seen.error == CONST(ERR_TIMEOUT) && has(seen.words, ": no reply within " + brief_words),
          "async: in words", seen.words);
    check(seen.disconnected == CONST(ERR) && seen.replies.back() == "no reply",
          "async: everybody is told");
  }
  if (kernel_connects()) return;
  const Options options = with_times(&brief, nullptr);
  const Stopped stopped;
  Seen seen(&options);
  check(seen.until_gone() && seen.connected == CONST(ERR), "async: a connect's time-out");
  check(has(seen.words, ": not connected within " + brief_words), "async: in words", seen.words);
}

void publishes() {
  Seen listener, speaker;
  speaker.command("PUBLISH nobody 1");
  check(speaker.until_replies(1), "async: PUBLISH");
  if (has(speaker.replies[0], "unknown")) {  // kv-server has no PUBLISH
    LIB(AsyncFree)(listener.context);
    LIB(AsyncFree)(speaker.context);
    return;
  }
  // Each has a loop of its own; they run in turn.
  const auto both = [&](auto condition) {
    for (int i = 0; i < 30000 && !condition(); ++i) {
      listener.loop.process_events(ae::kFullIteration | ae::kDontWait);
      speaker.loop.process_events(ae::kFullIteration | ae::kDontWait);
      if (!condition()) ::usleep(200);
    }
    return condition();
  };
  listener.command("SUBSCRIBE news");
  check(both([&] { return listener.replies.size() == 1; }), "async: subscribes");
  for (int i = 0; i < 100; ++i) speaker.command("PUBLISH news %d", i);
  check(both([&] { return listener.replies.size() == 101; }), "async: 100 messages");
  listener.command("UNSUBSCRIBE");
  check(both([&] { return listener.replies.size() == 102; }), "async: unsubscribes");
  LIB(AsyncDisconnect)(listener.context);
  LIB(AsyncDisconnect)(speaker.context);
  check(both([&] { return listener.context == nullptr && speaker.context == nullptr; }),
        "async: both disconnect");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  url = argv[1];
  server = static_cast<pid_t>(atoi(argv[2]));
  set_brief();
  if (argc > 3) {
    idle();
  } else {
    blocking();
    if (failed == 0) {
      ends_and_starts_again();
      times_out();
      cannot_connect();
      does_not_wait();
      asynchronous();
      asynchronous_ends();
      asynchronous_failures();
      publishes();
    }
  }
  std::cout << passed << " passed, " << failed << " failed" << std::endl;
  return failed == 0 ? 0 : 1;
}
