// SPDX-License-Identifier: BSD-3-Clause
// Minimum cost of an echo over RDMA: Valkey Over RDMA directly on libibverbs and librdmacm.
//
//   verbs-echo server ADDRESS:PORT [--window BYTES] [--spin]
//   verbs-echo client ADDRESS:PORT [--size S] [--connections C] [--depth D] [--requests N] [--spin]
//   verbs-echo client ADDRESS:PORT --connect-rate [--connections C] [--requests N]
//   verbs-echo client ADDRESS:PORT --burst N [--text "PING\r\n" --reply "+PONG\r\n"]

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>

#include "verbs_client.h"
#include "verbs_server.h"

namespace {

/// Replaces the escapes \r and \n, which a shell passes unchanged.
std::string unescaped(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 1 < text.size();
    if (escape && text[i + 1] == 'r') {
      bytes += '\r';
    } else if (escape && text[i + 1] == 'n') {
      bytes += '\n';
    } else {
      bytes += text[i];
      continue;
    }
    ++i;
  }
  return bytes;
}

void serve(const std::string& address, std::size_t window, bool spin) {
  limits::VerbsServer server(address, window, spin);
  std::printf("listening on rdma://%s:%u\n", address.substr(0, address.rfind(':')).c_str(),
              unsigned{server.port()});
  std::fflush(stdout);
  server.run();
}

void drive(limits::ClientSettings& settings) {
  if (settings.connect_rate) {
    settings.depth = 1;
    settings.connections = std::min<std::size_t>(settings.connections, settings.requests);
  }
  if (settings.burst == 0) {
    limits::LoopClient(settings).measure();
    return;
  }
  settings.connections = 1;
  settings.text = unescaped(settings.text.empty() ? "x" : settings.text);
  settings.reply = settings.reply.empty() ? settings.text : unescaped(settings.reply);
  limits::BurstClient(settings).measure();
}

}  // namespace

int main(int argc, char** argv) try {
  limits::ClientSettings settings;
  CLI::App app("A minimal echo on bare verbs that speaks Valkey Over RDMA.", "verbs-echo");
  app.require_subcommand(1);
  CLI::App* const server = app.add_subcommand("server", "Echoes until SIGTERM");
  CLI::App* const client =
      app.add_subcommand("client", "Loads any echo server; prints a line of JSON");
  const CLI::Range window_range(std::size_t{16}, std::size_t{1} << 30);
  for (CLI::App* const each : {server, client}) {
    each->add_option("address", settings.address, "ADDRESS:PORT")->required();
    each->add_option("--window", settings.window, "Bytes of a receive window (16384)")
        ->check(window_range);
    each->add_flag("--spin", settings.spin, "Poll without sleeping");
  }
  const auto positive = CLI::PositiveNumber;
  client->add_option("--size", settings.size, "Bytes of a message (64)")
      ->check(CLI::Range(1, 1 << 24));
  client->add_option("--connections", settings.connections)->check(positive);
  client->add_option("--depth", settings.depth, "Messages in flight on each connection")
      ->check(positive);
  client->add_option("--requests", settings.requests, "Total number of messages (10000)")
      ->check(positive);
  client->add_flag("--separate", settings.separate, "One RDMA write per message");
  client->add_flag("--connect-rate", settings.connect_rate, "A new connection for each message");
  client->add_option("--burst", settings.burst, "Number of one-byte messages to send at once");
  client->add_option("--text", settings.text, "Text that the bytes of the burst repeat");
  client->add_option("--reply", settings.reply, "Expected reply to the text (the same)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }
  if (server->parsed()) {
    serve(settings.address, settings.window, settings.spin);
  } else {
    drive(settings);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "verbs-echo: %s\n", error.what());
  return 1;
}
