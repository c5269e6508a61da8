// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the kernel reports about RDMA on this machine, read from /sys, /proc and /dev without
// special privileges. The rows (rows.h) judge these facts and read nothing else.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "conn/kit/resolver.h"
#include "conn/transports/transports.h"

namespace doctor {

/// An entry of a port's GID table; all-zero entries are left out.
struct Gid {
  int index = 0;
  std::string text;       ///< as in sysfs, all eight groups
  std::string type;       ///< "RoCE v2"; "" if unknown
  std::string interface;  ///< network interface; "" in another network namespace
};

struct Port {
  int number = 0;
  std::string state;       ///< "ACTIVE", "DOWN", "INIT"
  std::string physical;    ///< "LinkUp", "Disabled"
  std::string link_layer;  ///< "Ethernet", "InfiniBand"
  std::size_t gid_entries = 0;
  std::vector<Gid> gids;
  std::string cm_mode;  ///< "RoCE v2": used by rdma_cm; "" without a configfs folder
  std::string cm_tos;   ///< the default type of service of rdma_cm; "" without a configfs folder

  bool active() const noexcept { return state == "ACTIVE"; }
  bool ethernet() const noexcept { return link_layer == "Ethernet"; }
};

struct Device {
  std::string name;             ///< "mlx5_0"
  std::string driver;           ///< "mlx5_core", "rdma_rxe"; "" if unknown
  std::string kind;             ///< "CA", "RNIC", "usNIC UDP", "unspecified"
  std::string network;          ///< network interface, if sysfs lists it for the device; else ""
  int node = -1;                ///< NUMA node of the device; -1: none
  std::vector<int> processors;  ///< processors local to the device; empty: all are equal
  std::vector<Port> ports;
};

/// A device file and the errno of opening it; 0: it can be opened.
struct DeviceFile {
  std::string path;
  int error = 0;
};

/// An address in this network namespace.
struct LocalAddress {
  std::string interface;
  conn::SocketAddress address;
};

struct Facts {
  bool built_with_rdma = false;
  conn::RdmaLibraries libraries;
  bool core = false, verbs = false, manager = false;  ///< presence of ib_core, ib_uverbs, rdma_ucm
  /// whether all network namespaces see the devices (ib_core.netns_mode)
  std::optional<bool> shared;
  std::vector<DeviceFile> files;
  std::vector<Device> devices;
  std::map<std::string, unsigned> mtu;  ///< MTU by network interface
  std::vector<LocalAddress> addresses;  ///< local addresses, without loopback
  std::vector<int> processors;          ///< processors on which this process may run
  /// How many descriptors this process may open (RLIMIT_NOFILE), and could if it asked for more.
  std::uint64_t descriptors = 0, most_descriptors = 0;
};

/// Reads the facts of this machine. `root`: the folder that contains /sys and /dev. Addresses,
/// processors and limits are always those of this process.
Facts read_facts(const std::filesystem::path& root = "/");

/// Returns the IP address that a RoCE GID encodes; no value if it encodes none.
std::optional<conn::SocketAddress> address_of(const Gid& gid);
/// The port through which packets from this local address leave; null if none.
struct Place {
  const Device* device = nullptr;
  const Port* port = nullptr;
  explicit operator bool() const noexcept { return device != nullptr; }
};
Place place_of(const Facts& facts, const conn::SocketAddress& address);
/// Returns the name of a port for people, such as "rxe0/1".
std::string name_of(const Device& device, const Port& port);
/// Returns the network interface of a port, or "".
std::string interface_of(const Device& device, const Port& port);
/// Returns the RoCE MTU for an interface's MTU: 256 to 4096, or 0 if the interface's MTU is too
/// small.
unsigned roce_mtu(unsigned of_interface) noexcept;

}  // namespace doctor
