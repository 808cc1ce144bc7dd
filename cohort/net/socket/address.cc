#include "cohort/net/socket/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <charconv>
#include <cstddef>
#include <cstring>
#include <memory>

#include "cohort/base/error.h"

namespace cohort::net {
namespace {

constexpr std::string_view kUnix = "unix:";

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw_failure(Kind::usage, "'{}' is no address: {}; write 127.0.0.1:4000, [::1]:4000, node7:4000, unix:@name or unix:/path", text, why);
}

std::uint16_t parse_port(std::string_view digits, std::string_view text) {
  unsigned port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc{} || end != digits.data() + digits.size() || port > 65535) refuse(text, "the port must be 0 to 65535");
  return static_cast<std::uint16_t>(port);
}

SocketAddress unix_address(const Address& address) {
  const std::string_view name = std::string_view(address.host).substr(kUnix.size());
  SocketAddress out;
  auto* un = reinterpret_cast<sockaddr_un*>(&out.storage);
  un->sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof un->sun_path) refuse(address.host, "a unix name has 1 to 107 bytes");
  std::memcpy(un->sun_path, name.data(), name.size());
  if (name.front() == '@') un->sun_path[0] = '\0';  // abstract namespace: no file, freed with its last socket
  out.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + (name.front() == '@' ? 0 : 1));
  return out;
}

}  // namespace

Address Address::parse(std::string_view text) {
  if (text.starts_with(kUnix)) {
    Address address{std::string(text), 0};
    if (text.find('\0') != std::string_view::npos) refuse(text, "it holds a zero byte");
    unix_address(address);  // for its length check
    return address;
  }
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) refuse(text, "it has no port");
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[')) {
    if (!host.ends_with(']')) refuse(text, "a bracket is missing");
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    refuse(text, "an IPv6 host stands in brackets");
  }
  if (host.empty() || host.size() > 253) refuse(text, "the host has 1 to 253 bytes");
  if (host.find_first_of(std::string_view(" \t\r\n/@[]\0", 9)) != std::string_view::npos) refuse(text, "the host holds a forbidden byte");
  return {std::string(host), parse_port(text.substr(colon + 1), text)};
}

std::string Address::text() const {
  if (is_unix()) return host;
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

bool Address::is_loopback() const {
  if (is_unix() || host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

SocketAddress SocketAddress::of(const Address& address) {
  if (address.is_unix()) return unix_address(address);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  // "localhost" must not be answered by a resolver on the network: it decides whether a bind is safe.
  const std::string host = address.host == "localhost" ? "127.0.0.1" : address.host;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) throw_failure(Kind::system, "cannot resolve '{}': {}", address.host, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  SocketAddress out;
  std::memcpy(&out.storage, found->ai_addr, found->ai_addrlen);
  out.length = found->ai_addrlen;
  return out;
}

Address SocketAddress::address() const {
  char host[INET6_ADDRSTRLEN] = "?";
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host);
    return {host, ntohs(v4.sin_port)};
  }
  if (storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host);
    return {host, ntohs(v6.sin6_port)};
  }
  const auto& un = reinterpret_cast<const sockaddr_un&>(storage);
  const std::size_t bytes = length > offsetof(sockaddr_un, sun_path) ? length - offsetof(sockaddr_un, sun_path) : 0;
  std::string name(un.sun_path, bytes);
  if (!name.empty() && name.front() == '\0') name.front() = '@';
  while (!name.empty() && name.back() == '\0') name.pop_back();
  return {std::string(kUnix) + name, 0};
}

Address local_address(int socket) {
  SocketAddress a;
  a.length = sizeof a.storage;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&a.storage), &a.length) != 0) throw_system("getsockname");
  return a.address();
}

std::string peer_text(int socket) {
  SocketAddress a;
  a.length = sizeof a.storage;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&a.storage), &a.length) != 0) return "a peer that is gone";
  if (a.storage.ss_family != AF_UNIX) return a.address().text();
  ucred who{};
  socklen_t size = sizeof who;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return "unix:peer";
  return fmt::format("unix:peer pid {}", who.pid);
}

}  // namespace cohort::net
