// kv-server: a key-value server over any transport of the library.

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "ae/libev_loop.h"
#include "command.h"
#include "conn/transports/transports.h"
#include "server.h"

namespace {

/// SIGINT and SIGTERM end the loop, from inside the loop.
class StopSignals {
 public:
  explicit StopSignals(ae::EventLoop& loop) : loop_(loop) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd_ < 0) throw conn::Error("signalfd: " + conn::errno_text(errno));
    loop_.add_file_event(fd_, ae::kReadable, [this](int, ae::Mask) { loop_.stop(); });
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals() {
    loop_.remove_file_event(fd_, ae::kReadable);
    close(fd_);
  }

 private:
  ae::EventLoop& loop_;
  int fd_ = -1;
};

void serve(kv::Server& server, const std::vector<std::string>& urls) {
  const conn::Registry registry = conn::all_transports();  // outlives what is made of it
  ae::LibevLoop loop;
  const StopSignals signals(loop);
  kv::NetworkServer network(loop, registry, server);
  for (const std::string& url : urls) network.listen(url);
  for (const std::string& url : network.urls()) std::cout << "listening on " << url << std::endl;
  loop.run();
}

}  // namespace

int main(int argc, char** argv) {
  kv::Server server;
  server.log = [](std::string_view text) { std::cerr << "kv-server: " << text << std::endl; };

  CLI::App app("A key-value server that speaks RESP over any transport of aeconn.", "kv-server");
  std::vector<std::string> urls = {"tcp://127.0.0.1:6379"};
  app.add_option("--listen", urls, "Where to listen, a URL; may be repeated")
      ->capture_default_str()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  const auto setting = [&](const char* option, const char* parameter, const char* description) {
    app.add_option_function<std::string>(
        option,
        [&server, option, parameter](const std::string& value) {
          const std::string reason = kv::configure(server, parameter, value);
          if (!reason.empty()) throw CLI::ValidationError(option, reason);
        },
        description);
  };
  setting("--requirepass", "requirepass", "Password that clients must AUTH with");
  setting("--maxclients", "maxclients", "Most clients at one time (10000)");
  setting("--maxmemory", "maxmemory", "Memory limit, such as 100mb; writes fail beyond it");
  setting("--proto-max-bulk-len", "proto-max-bulk-len", "Largest argument (512mb)");
  setting("--client-output-limit", "client-output-buffer-limit",
          "Unsent replies after which a client is closed (64mb)");
  setting("--timeout", "timeout", "Close clients idle for so many seconds (0: never)");
  app.set_version_flag("--version", "kv-server " + std::string(kv::kVersion));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }

  try {
    serve(server, urls);
  } catch (const std::exception& error) {
    std::cerr << "kv-server: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
