// A listening socket. Loopback or a unix name unless told otherwise; any other address needs a non-empty secret.
// Owner: the caller. Threads: any. Failure: Kind::usage for an address that needs a secret, Kind::system naming the address.
#pragma once
#include "cohort/base/deadline.h"
#include "cohort/base/fd.h"
#include "cohort/net/crypto/secret.h"
#include "cohort/net/socket/address.h"

namespace cohort::net {

struct Listener {
  Fd fd;
  Address address;  // with the port the system chose
};
Listener listen_on(const Address& address, const Secret& secret);
Fd accept_one(const Listener& listener, Deadline deadline);  // empty Fd when the deadline passed

}  // namespace cohort::net
