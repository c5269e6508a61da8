// Echo server: sends back what it receives, on every URL of its command line, over any transport.
#include <cerrno>
#include <iostream>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ae/libev_loop.h"
#include "conn/transports/transports.h"

struct Client {
  conn::ConnectionPtr connection;
  std::string unsent;  // while not empty, nothing is read: slows down a peer that does not read
};
using Clients = std::unordered_map<conn::Connection*, Client>;

void serve(Clients& clients, Client& client) {
  conn::Connection& peer = *client.connection;
  char buffer[16 * 1024];
  ssize_t size = -1;
  if (client.unsent.empty() && (size = peer.read(buffer, sizeof buffer)) > 0)
    client.unsent.assign(buffer, static_cast<std::size_t>(size));
  if (!client.unsent.empty() && (size = peer.write(client.unsent.data(), client.unsent.size())) > 0)
    client.unsent.erase(0, static_cast<std::size_t>(size));  // a write may be partial
  if (size == 0 || (size < 0 && errno != EAGAIN)) return void(clients.erase(&peer));  // closes it
  const conn::Connection::Handler again = [&](conn::Connection&) { serve(clients, client); };
  peer.set_read_handler(client.unsent.empty() ? again : nullptr);
  peer.set_write_handler(client.unsent.empty() ? nullptr : again);
}

conn::AcceptHandler echo() {
  return [clients = std::make_shared<Clients>()](conn::ConnectionPtr peer) {
    Client& client = (*clients)[peer.get()];
    client.connection = std::move(peer);
    serve(*clients, client);
  };
}

int main(int argc, char** argv) try {
  if (argc < 2) throw conn::Error("name the URLs to listen on, such as tcp://127.0.0.1:7000");
  const conn::Registry registry = conn::all_transports();  // must outlive the loop
  ae::LibevLoop loop;
  std::vector<conn::ListenerPtr> listeners;
  for (int i = 1; i < argc; ++i) {
    listeners.push_back(registry.listen(loop, argv[i], echo()));
    for (const auto& at : listeners.back()->endpoints()) std::cout << at.to_string() << std::endl;
  }
  loop.run();
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
