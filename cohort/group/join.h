// How a worker joins its job: authenticate to the rendezvous server, send the address where peers can reach it, wait for the roster.
// Owner: cohort::init. Threads: one at a time. Failure: Kind::timeout naming the missing ranks, Kind::peer_lost when a rank or the
// coordinator ended, Kind::usage for a rank that is taken or does not exist, Kind::corrupt for a wrong secret. Every wait is bounded.
#pragma once
#include <functional>
#include <string>

#include "cohort/base/deadline.h"
#include "cohort/base/version.h"
#include "cohort/group/rank_info.h"
#include "cohort/group/roster.h"
#include "cohort/net/auth/control_connection.h"
#include "cohort/net/socket/listener.h"

namespace cohort::group {

struct JoinOptions {
  Seconds start_timeout{30};
  // Called with the lines of a long wait ("waiting for rank 3 of 4 ..."). Empty: they are logged as warnings.
  std::function<void(const std::string&)> say;
  bool tls = false;  // TLS for all connections, here and between the ranks
  std::string version{cohort::version()};
};

// What a rank needs to connect to its peers.
struct Joined {
  Roster roster;
  net::Secret secret;
  net::Listener listener;  // at the address in the roster
};

// Joins the job, whichever launcher started it:
//   cohort run            the coordinator at info.rendezvous, with the secret of info.secret_file
//   others, one host      rank 0 coordinates and sends a new secret over a unix socket to processes of the same user
//   others, several hosts rank 0 coordinates at info.rendezvous, with the secret of info.secret_file; Kind::usage when they are not set
Joined join(const RankInfo& info, const JoinOptions& options = {});

// The last step of all of these; public for launchers and tests.
Joined join_at(const RankInfo& info, const std::string& job, const net::Address& coordinator, const net::Secret& secret,
               const JoinOptions& options);

}  // namespace cohort::group
