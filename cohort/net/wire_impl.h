// What stands behind a Wire. For wire.cc and greeting.cc only.
#pragma once
#include <optional>
#include <string>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/fd.h"
#include "cohort/net/wire.h"

namespace cohort::net {

struct Wire::Impl {
  Impl(Fd fd, std::string place, Hello who, const Key& out, const Key& in)
      : socket(std::move(fd)), where(std::move(place)), peer(std::move(who)), outgoing(out), reader(in) {}
  std::string name() const { return peer.rank ? "rank " + std::to_string(peer.rank.value) + " at " + where : where; }

  const Fd socket;
  const std::string where;
  const Hello peer;
  // of the sender
  Key outgoing;
  std::uint64_t sequence = 0;
  std::optional<Error> send_broken;
  // of the receiver
  SealedReader reader;
  std::optional<Error> recv_broken;
};

}  // namespace cohort::net
