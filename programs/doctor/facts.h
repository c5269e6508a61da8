// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the kernel says of RDMA on this machine: from /sys, /proc and /dev, so that nothing is
// needed but to read. The rows (rows.h) judge it; they look at nothing else.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "conn/kit/resolver.h"
#include "conn/transports/transports.h"

namespace doctor {

/// An entry of a port's table of GIDs; entries of zeros are left out.
struct Gid {
  int index = 0;
  std::string text;       ///< as sysfs has it, all eight groups
  std::string type;       ///< "RoCE v2"; "" where it does not say
  std::string interface;  ///< its network interface; "" in another network namespace
};

struct Port {
  int number = 0;
  std::string state;       ///< "ACTIVE", "DOWN", "INIT"
  std::string physical;    ///< "LinkUp", "Disabled"
  std::string link_layer;  ///< "Ethernet", "InfiniBand"
  std::size_t gid_entries = 0;
  std::vector<Gid> gids;
  std::string cm_mode;  ///< "RoCE v2": what rdma_cm takes; "" where configfs has no folder for it
  std::string cm_tos;   ///< the same of its default type of service

  bool active() const noexcept { return state == "ACTIVE"; }
  bool ethernet() const noexcept { return link_layer == "Ethernet"; }
};

struct Device {
  std::string name;     ///< "mlx5_0"
  std::string driver;   ///< "mlx5_core", "rdma_rxe"; "" where it does not say
  std::string kind;     ///< "CA", "RNIC", "usNIC UDP", "unspecified"
  std::string network;  ///< its network interface, where sysfs has it beside the device; or ""
  int node = -1;        ///< NUMA; -1: none
  std::vector<int> processors;  ///< near it; empty: all alike
  std::vector<Port> ports;
};

/// A device file and the errno of opening it; 0: it may be opened.
struct DeviceFile {
  std::string path;
  int error = 0;
};

/// An address of this network namespace.
struct LocalAddress {
  std::string interface;
  conn::SocketAddress address;
};

struct Facts {
  bool built_with_rdma = false;
  conn::RdmaLibraries libraries;
  bool core = false, verbs = false, manager = false;  ///< ib_core, ib_uverbs, rdma_ucm are there
  std::optional<bool> shared;  ///< devices are seen by all network namespaces (ib_core.netns_mode)
  std::vector<DeviceFile> files;
  std::vector<Device> devices;
  std::map<std::string, unsigned> mtu;  ///< of network interfaces
  std::vector<LocalAddress> addresses;  ///< loopback left out
  std::vector<int> processors;          ///< this process may run on
};

/// `root`: where /sys and /dev are looked for. Addresses and processors are the process's own.
Facts read_facts(const std::filesystem::path& root = "/");

/// The address a GID of RoCE stands for.
std::optional<conn::SocketAddress> address_of(const Gid& gid);
/// The port that packets of this address of ours leave by; null: none here.
struct Place {
  const Device* device = nullptr;
  const Port* port = nullptr;
  explicit operator bool() const noexcept { return device != nullptr; }
};
Place place_of(const Facts& facts, const conn::SocketAddress& address);
/// "rxe0/1".
std::string name_of(const Device& device, const Port& port);
/// The network interface of a port, or "".
std::string interface_of(const Device& device, const Port& port);
/// What RoCE makes of an interface's MTU: 256 to 4096, 0 where not even that.
unsigned roce_mtu(unsigned of_interface) noexcept;

}  // namespace doctor
