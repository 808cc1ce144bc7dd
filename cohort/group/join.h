// A worker's way into its job: prove itself to the coordinator, say where its peers can reach it, wait for the roster.
// Owner: cohort::init. Threads: one at a time. Failure: Kind::timeout naming the missing ranks, Kind::peer_lost when a rank or the
// coordinator ended, Kind::usage for a place that is taken or does not exist, Kind::corrupt for a wrong secret. Every wait is bounded.
#pragma once
#include <functional>
#include <string>

#include "cohort/base/deadline.h"
#include "cohort/group/place.h"
#include "cohort/group/roster.h"
#include "cohort/net/wire.h"

namespace cohort::group {

struct JoinOptions {
  Seconds start_timeout{30};
  // What to do with the lines of a wait that takes long ("waiting for rank 3 of 4 ..."). Empty: they are logged as warnings.
  std::function<void(const std::string&)> say;
  bool tls = false;  // connections go through TLS, here and between the ranks
};

// What a rank needs to open its mesh.
struct Joined {
  Roster roster;
  net::Secret secret;
  net::Listener listener;  // where the roster says that we listen
};

// Joins the job of this place, whoever launched it:
//   cohort run            the coordinator at place.rendezvous, with the secret of place.secret_file
//   others, one host      rank 0 coordinates and hands a fresh secret over a unix socket to processes of the same user
//   others, several hosts rank 0 coordinates at place.rendezvous, with the secret of place.secret_file; Kind::usage when they are not set
Joined join(const Place& place, const JoinOptions& options = {});

// The last step of all of them; open for launchers and tests.
Joined join_at(const Place& place, const std::string& job, const net::Address& coordinator, const net::Secret& secret,
               const JoinOptions& options);

}  // namespace cohort::group
