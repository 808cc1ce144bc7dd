#include "cohort/net/socket/interfaces.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <memory>

#include "cohort/base/error.h"
#include "cohort/base/fd.h"
#include "cohort/base/text.h"

namespace cohort::net {
namespace {

std::string text_of(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text.data(), text.size());
  } else if (address->sa_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (!IN6_IS_ADDR_LINKLOCAL(&v6)) inet_ntop(AF_INET6, &v6, text.data(), text.size());
  }
  return text.data();
}

}  // namespace

std::vector<Interface> list_interfaces() {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) throw_system("getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(raw, freeifaddrs);
  std::vector<Interface> all;
  for (const ifaddrs* at = raw; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    if (std::string text = text_of(at->ifa_addr); !text.empty()) all.push_back({at->ifa_name, text, (at->ifa_flags & IFF_LOOPBACK) != 0});
  }
  std::stable_sort(all.begin(), all.end(), [](const Interface& a, const Interface& b) {
    return (a.address.find(':') != a.address.npos) < (b.address.find(':') != b.address.npos);
  });
  return all;
}

std::string interface_address(const std::string& wanted) {
  const auto all = list_interfaces();
  for (const auto name : split(wanted, ','))
    for (const Interface& i : all)
      if (i.name == name || i.address == name) return i.address;
  std::vector<std::string> there;
  for (const Interface& i : all) there.push_back(fmt::format("{} ({})", i.name, i.address));
  throw_failure(Kind::usage, "no interface '{}' is up on this host; there are {}", printable(wanted), join(there, ", "));
}

std::string address_towards(const Address& to) {
  if (to.is_unix()) return "127.0.0.1";
  const SocketAddress there = SocketAddress::of(to);
  const Fd asked{::socket(there.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  if (!asked || ::connect(asked.get(), there.get(), there.length) != 0) throw_system(fmt::format("no route to {}", to.text()));
  return local_address(asked.get()).host;
}

}  // namespace cohort::net
