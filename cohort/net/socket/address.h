// Where a process listens: "127.0.0.1:40123", "[::1]:40123", "node7:40123", or "unix:@name" / "unix:/path".
// Owner: values. Threads: any. Failure: Kind::usage for text that is no address, Kind::system when a name does not resolve.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::net {

struct Address {
  std::string host;  // without brackets; "unix:..." whole for unix sockets
  std::uint16_t port = 0;
  static Address parse(std::string_view text);  // Kind::usage with the text when it is none
  std::string text() const;
  bool is_unix() const { return host.starts_with("unix:"); }
  bool is_loopback() const;  // unix sockets count; decided by the address, not by the name
};

// What bind(2) and connect(2) want. Resolves names (the first answer counts).
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  static SocketAddress of(const Address& address);
  Address address() const;  // back to text, for messages and for the port the system chose
};

Address local_address(int socket);
std::string peer_text(int socket);  // "127.0.0.1:40123", "unix:peer pid 77"; never throws: it serves error messages

}  // namespace cohort::net
