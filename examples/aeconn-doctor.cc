// aeconn-doctor: which limits this machine has for connections of a URL's options, before they are
// met. Ends with 0 where all are high enough, 1 where one is not, 2 where it could not look.

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "conn/transports/transports.h"
#include "examples/manual/manual.h"

namespace {

struct Options {
  std::vector<std::string> urls;
  std::uint64_t connections = 1000;
  bool json = false;
};

nlohmann::ordered_json json_of(const conn::Capacity& each, std::uint64_t asked_for) {
  return {{"limit", each.name},
          {"most", each.most},
          {"used", each.used},
          {"needed", each.needed},
          {"unit", each.bytes ? "bytes" : "count"},
          {"connections", each.connections},
          {"enough", each.enough()},
          {"text", each.text(asked_for)}};
}

/// Whether all is enough.
bool examine(const conn::Registry& registry, const Options& options, const std::string& url) {
  const conn::Endpoint endpoint = conn::Endpoint::parse(url);
  bool enough = true;
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const conn::Capacity& each :
       registry.require(endpoint.scheme).capacity(endpoint, options.connections)) {
    enough = enough && each.enough();
    if (options.json)
      all.push_back(json_of(each, options.connections));
    else
      std::cout << (each.enough() ? "ok   " : "LOW  ") << each.text(options.connections) << '\n';
  }
  if (options.json)
    std::cout << nlohmann::ordered_json{{"url", url},
                                        {"connections", options.connections},
                                        {"enough", enough},
                                        {"limits", all}}
                     .dump()
              << '\n';
  return enough;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Says which limits there are for connections of a URL's options.", "aeconn-doctor");
  app.add_option("url", options.urls, "Where a server would listen, with its options")->required();
  app.add_option("--connections", options.connections, "How many there are to be")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{100000000}));
  app.add_flag("--json", options.json, "One line of JSON for each URL");
  manual::add_to(
      app, {.description =
                {"For each limit that such connections meet: how high it is, what this process "
                 "uses of it, what so many connections need, and where that is too much, how "
                 "many have room and how to raise it."},
            .sections =
                {{"EXIT STATUS",
                  {"0 where all limits are high enough, 1 where one is not, 2 where it could not "
                   "look, with one line on standard error."}}},
            .examples = {{"Five thousand connections over RDMA:",
                          "aeconn-doctor --connections 5000 'rdma://10.0.0.1:6379?window=256k'"}},
            .see_also = {"kv-server(1)", "conn(7)"},
            .version = AECONN_VERSION});
  app.set_version_flag("--version", "aeconn-doctor " AECONN_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    const conn::Registry registry = conn::all_transports();
    bool enough = true;
    for (const std::string& url : options.urls) enough = examine(registry, options, url) && enough;
    return enough ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "aeconn-doctor: " << error.what() << '\n';
    return 2;
  }
}
