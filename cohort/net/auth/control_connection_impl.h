// The state of a ControlConnection. For control_connection.cc and handshake_session.cc only.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/fd.h"
#include "cohort/net/auth/control_connection.h"
#include "cohort/net/socket/tls.h"

namespace cohort::net {

struct ControlConnection::Impl {
  Impl(Fd fd, std::unique_ptr<Tls> session, std::string address, Hello who, const Key& out, const Key& in)
      : socket(std::move(fd)), tls(std::move(session)), where(std::move(address)), peer(std::move(who)), outgoing(out), reader(in) {}
  std::string name() const { return peer.rank ? "rank " + std::to_string(peer.rank.value) + " at " + where : where; }

  SocketView socket_view() const { return {socket.get(), tls.get()}; }

  const Fd socket;
  const std::unique_ptr<Tls> tls;  // null: plain
  const std::string where;
  const Hello peer;
  // of the sender
  Key outgoing;
  std::uint64_t sequence = 0;
  std::optional<Error> send_broken;
  // of the receiver
  ControlFrameReader reader;
  std::optional<Error> recv_broken;
};

}  // namespace cohort::net
