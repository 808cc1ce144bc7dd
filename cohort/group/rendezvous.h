// The RendezvousServer makes the roster of a job: every rank joins, and once all have, each gets the Roster.
// It is one polling thread of the launcher (or of rank 0 when another launcher started the job). Unauthenticated peers, other jobs, other
// versions and second claims to a rank are refused without harm to the job. RendezvousState decides; this file only moves bytes.
// Owner: `cohort run`, or join_as_first() in rank 0. Threads: any may call. Failure: the constructor throws; later errors are sent to the
// ranks they concern and to `say`. The frames are described in docs/launching.md.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/base/deadline.h"
#include "cohort/base/error.h"
#include "cohort/base/ids.h"
#include "cohort/base/version.h"
#include "cohort/net/auth/control_connection.h"
#include "cohort/net/socket/listener.h"

namespace cohort::group {

struct RendezvousOptions {
  std::string job;
  int size = 1;
  net::Secret secret;
  Seconds start_timeout{30};
  Seconds warn_after{3};
  std::string version{cohort::version()};
  // One line for the log of the job, called on the server's thread. Empty: silent.
  std::function<void(const std::string&)> say;
  // Called on the server's thread when a roster is complete, before it is sent to any rank.
  std::function<void()> before_welcome;
};

class RendezvousServer {
 public:
  RendezvousServer(RendezvousOptions options, net::Listener listener);
  ~RendezvousServer();  // finishes sends under way; within a second
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  const net::Address& address() const;
  // The process of that rank has ended: ranks that wait for it fail at once. how: "exit status 1", "killed by SIGKILL".
  void rank_ended(Rank rank, std::string how);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Control frames between server and worker.
inline constexpr std::uint16_t kJoinFrame = 0x0101;     // worker: Join
inline constexpr std::uint16_t kRosterFrame = 0x0102;   // server: Roster, and the end of the connection
inline constexpr std::uint16_t kWaitingFrame = 0x0103;  // server: a line to show
inline constexpr std::uint16_t kRefusedFrame = 0x0104;  // server: kind byte, rank, text, and the end of the connection

std::vector<std::byte> encode_error(const Error& error);
Error decode_error(ConstBytes bytes);

}  // namespace cohort::group
