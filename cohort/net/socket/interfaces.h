// The addresses of this host, by network interface.
// Threads: any. Failure: Kind::usage naming the interfaces that exist, Kind::system.
#pragma once
#include <string>
#include <vector>

#include "cohort/net/socket/address.h"

namespace cohort::net {

struct Interface {
  std::string name;     // "eth0"
  std::string address;  // "10.0.0.1", "fd00::1"
  bool loopback = false;
};
// Those that are up, IPv4 first. IPv6 link-local addresses are left out: they mean nothing without an interface.
std::vector<Interface> list_interfaces();

// The first address of an interface; wanted: "eth0", or several in order of preference, "ib0,eth0", or an address itself.
std::string interface_address(const std::string& wanted);

// The source address the routing table picks for packets to that address; nothing is sent. Loopback stays loopback.
std::string address_towards(const Address& to);

}  // namespace cohort::net
