// The Coordinator is where the ranks of a job meet: every rank joins, and once all have, each gets the Roster.
// It lives in the launcher (or in rank 0 when somebody else's launcher started the job) as one thread that polls. Strangers, other jobs,
// other versions and second claims to a rank are refused without harm to the job. What it decides is Membership's; this file only moves
// bytes. Owner: `cohort run`, or join_as_first() in rank 0. Threads: any may call. Failure: the constructor throws; later troubles are told
// to the ranks they concern and to `say`. The frames are described in docs/launching.md.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/base/deadline.h"
#include "cohort/base/error.h"
#include "cohort/base/ids.h"
#include "cohort/net/wire.h"

namespace cohort::group {

struct CoordinatorOptions {
  std::string job;
  int size = 1;
  net::Secret secret;
  Seconds start_timeout{30};
  Seconds warn_after{3};
  // One line for people, called on the coordinator's thread. Empty: silent.
  std::function<void(const std::string&)> say;
  // Called on the coordinator's thread when a roster is complete, before any rank is told.
  std::function<void()> before_welcome;
};

class Coordinator {
 public:
  Coordinator(CoordinatorOptions options, net::Listener listener);
  ~Coordinator();  // sends what it has begun to send, then ends: within a second
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  const net::Address& address() const;
  // The process of that rank is gone: whoever waits for it is told at once. how: "exit status 1", "killed by SIGKILL".
  void rank_ended(Rank rank, std::string how);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Control frames between coordinator and worker.
inline constexpr std::uint16_t kJoinFrame = 0x0101;     // worker: Join
inline constexpr std::uint16_t kRosterFrame = 0x0102;   // coordinator: Roster, and the end of the connection
inline constexpr std::uint16_t kWaitingFrame = 0x0103;  // coordinator: a line to show
inline constexpr std::uint16_t kRefusedFrame = 0x0104;  // coordinator: kind byte, rank, text, and the end of the connection

std::vector<std::byte> encode_error(const Error& error);
Error decode_error(ConstBytes bytes);

}  // namespace cohort::group
