// Interfaces, loopback, congestion control.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

#include "cohort/base/error.h"
#include "cohort/base/fd.h"
#include "cohort/base/text.h"
#include "cohort/bench/doctor/doctor.h"

namespace cohort::bench::doctor {
namespace {

constexpr int kLoopbackMs = 2000;

std::vector<std::string> interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw_system("getifaddrs");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner{list, freeifaddrs};
  std::vector<std::string> found;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & IFF_UP) == 0) continue;
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, text, sizeof text);
    found.push_back(fmt::format("{} {}", i->ifa_name, text));
  }
  return found;
}

// Listens, connects and accepts on 127.0.0.1, as the rendezvous of a job on one host does; empty when that works.
std::string loopback_trouble() {
  const Fd listener{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}, client{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!listener || !client) return "no IPv4 socket";
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* address = reinterpret_cast<sockaddr*>(&at);
  socklen_t length = sizeof at;
  if (bind(listener.get(), address, length) != 0 || listen(listener.get(), 1) != 0) return "cannot listen on 127.0.0.1";
  if (getsockname(listener.get(), address, &length) != 0) return "no port was assigned";
  if (connect(client.get(), address, length) != 0 && errno != EINPROGRESS) return "cannot connect to 127.0.0.1";
  pollfd ready{listener.get(), POLLIN, 0};
  return poll(&ready, 1, kLoopbackMs) == 1 ? "" : "a connection to 127.0.0.1 does not arrive";
}

}  // namespace

void look_at_network(Findings& findings) {
  const auto trouble = loopback_trouble();
  if (trouble.empty())
    findings.push_back({Level::ok, "loopback", "connections to 127.0.0.1 work", ""});
  else
    findings.push_back(
        {Level::fail, "loopback", trouble, "ranks find each other over it: `ip link set lo up`, and look at firewall rules"});
  const auto all = interfaces();
  const bool alone = std::all_of(all.begin(), all.end(), [](const std::string& i) { return i.starts_with("lo "); });
  findings.push_back({alone ? Level::note : Level::ok, "interfaces", fmt::format("{}", fmt::join(all, ", ")),
                      alone ? "only loopback is up: jobs on this host alone" : ""});
}

Finding judge_congestion(std::string_view current, std::string_view available) {
  const auto words = split(available, ' ');
  const auto text = fmt::format("{} by default; {} can be chosen", current, available);
  const bool cubic = std::find(words.begin(), words.end(), "cubic") != words.end();
  if (current == "bbr" && cubic)
    return {Level::note, "tcp", text,
            "bbr paces also on fast local links; cohort asks for cubic on its own sockets (--congestion changes that)"};
  if (current == "bbr")
    return {Level::warn, "tcp", text,
            "bbr paces also on fast local links: load tcp_cubic or add it to net.ipv4.tcp_allowed_congestion_control"};
  return {Level::ok, "tcp", text, ""};
}

void look_at_congestion(Findings& findings) {
  const auto current = setting_file("/proc/sys/net/ipv4/tcp_congestion_control");
  if (current.empty()) return findings.push_back({Level::note, "tcp", "congestion control cannot be read", ""});
  findings.push_back(judge_congestion(current, setting_file("/proc/sys/net/ipv4/tcp_available_congestion_control")));
}

}  // namespace cohort::bench::doctor
