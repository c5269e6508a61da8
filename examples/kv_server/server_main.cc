// kv-server: a key-value server over any transport of the library.

#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <functional>
#include <iostream>

#include "ae/libev_loop.h"
#include "command.h"
#include "conn/transports/transports.h"
#include "server.h"
#include "tls_settings.h"

namespace {

/// SIGINT and SIGTERM end the loop, from inside the loop; SIGHUP runs a function there.
class Signals {
 public:
  Signals(ae::EventLoop& loop, std::function<void()> hung_up)
      : loop_(loop), hung_up_(std::move(hung_up)) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd_ < 0) throw conn::Error("signalfd: " + conn::errno_text(errno));
    loop_.add_file_event(fd_, ae::kReadable, [this](int, ae::Mask) { take(); });
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals() {
    loop_.remove_file_event(fd_, ae::kReadable);
    close(fd_);
  }

 private:
  void take() {
    signalfd_siginfo info;
    while (read(fd_, &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGHUP)
        hung_up_();
      else
        loop_.stop();
    }
  }

  ae::EventLoop& loop_;
  std::function<void()> hung_up_;
  int fd_ = -1;
};

void reload_certificates(const kv::Server& server, kv::TlsSettings& tls) {
  if (!tls.attached()) return;
  const std::string reason = tls.reload();
  server.log(reason.empty() ? "TLS certificates reloaded"
                            : "TLS certificates not reloaded, the old ones stay: " + reason);
}

void serve(kv::Server& server, kv::TlsSettings& tls, const std::vector<std::string>& urls) {
  const conn::Registry registry = conn::all_transports();  // outlives what is made of it
  tls.attach(registry);
  server.more_parameters = &tls;
  ae::LibevLoop loop;
  const Signals signals(loop, [&] { reload_certificates(server, tls); });
  kv::NetworkServer network(loop, registry, server);
  for (const std::string& url : urls) network.listen(url);
  for (const std::string& url : network.urls()) std::cout << "listening on " << url << std::endl;
  loop.run();
}

}  // namespace

int main(int argc, char** argv) try {
  kv::TlsSettings tls;
  const std::vector<const char*> arguments = tls.take_pass_phrase(argc, argv);
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
  setting("--client-query-limit", "client-query-buffer-limit",
          "Longest request; a client that sends more is closed (1gb)");
  setting("--maxmemory-clients", "maxmemory-clients",
          "Memory of all clients' requests and replies; the largest are closed beyond it (4gb)");
  setting("--timeout", "timeout", "Close clients idle for so many seconds (0: never)");
  app.add_flag("--enable-debug-command", server.config.debug_command,
               "Let clients use DEBUG SLEEP, which stops the server for everybody");
  for (const auto& [flags, parameter, description] : kv::TlsSettings::options()) {
    app.add_option_function<std::string>(
           flags,
           [&tls, flag = flags, name = parameter](const std::string& value) {
             const std::string reason = tls.store(name, value);
             if (!reason.empty()) throw CLI::ValidationError(flag, reason);
           },
           description)
        ->group("TLS, for tls:// and other tls URLs; SIGHUP reads the files again");
  }
  app.set_version_flag("--version", "kv-server " + std::string(kv::kVersion));
  try {
    app.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }

  serve(server, tls, urls);
  return 0;
} catch (const std::exception& error) {
  std::cerr << "kv-server: " << error.what() << '\n';
  return 1;
}
