// The stream between a launcher and an agent: frames over two descriptors (the standard input and output of a remote shell), nothing waits.
//
//   the agent's banner       "cohort agent 2\n"; what a login script printed before it is skipped
//   then, both ways          u32 length of the body, u16 type, body; little-endian
//
// Authentication and encryption are the remote shell's: ssh has done both. See docs/adr/0010-agents.md.
// Owner: RemoteRanks, the agent. Threads: one. Failure: Kind::corrupt for a stream of anything else; its end is open() == false.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/base/deadline.h"
#include "cohort/base/fd.h"

namespace cohort::launch {

enum class AgentFrame : std::uint16_t {
  init = 1,        // launcher: the job, its secret, addresses of the coordinator
  ready,           // agent: the coordinator is reached; our address
  start,           // launcher: the program and its variables
  started,         // agent: the processes
  output,          // agent: bytes of a rank
  closed,          // agent: a rank's stream has ended
  ended,           // agent: a rank has ended
  error,           // agent: what cannot be done, and the exit status
  signal,          // launcher: a signal for every rank
  input,           // launcher: bytes for rank 0; none: their end
  input_ack,       // agent: so many bytes of input have been read
  heartbeat,       // both
  start_worker,    // launcher: one more worker of an elastic job
  worker_started,  // agent: it is this process
  worker_failed,   // agent: it could not be started, and why
  leaving,         // agent: it was signalled to end and asks that the workers of its host may leave
};

struct AgentMessage {
  AgentFrame type;
  std::vector<std::byte> body;
};

inline constexpr Seconds kHeartbeatInterval{1};
inline constexpr int kMaxMissedHeartbeats = 15;  // intervals that both sides counted: time in which a process was stopped does not count
inline constexpr std::string_view kAgentBanner = "cohort agent 2\n";
inline constexpr std::size_t kMaxLoginOutput = 64 << 10;  // printed by login scripts
inline constexpr std::size_t kMaxMessage = 16 << 20;      // an environment has at most a few MiB
inline constexpr std::size_t kFullChannel = 1 << 20;      // more unsent output than this holds the ranks back

class Channel {
 public:
  enum class Side : unsigned char { launcher, agent };
  Channel(Side side, Fd in, Fd out);  // both become non-blocking; an agent sends its banner at once

  void send(AgentFrame type, ConstBytes body = {});
  std::optional<AgentMessage> next();
  void move();       // reads and writes whatever goes without waiting
  void write_all();  // the second half of it
  void close();

  bool open() const { return open_; }  // bytes may still come
  bool banner_seen() const { return banner_seen_; }
  bool take_received();              // whether anything has come since this was asked last
  std::string login_output() const;  // what came before a banner, for messages
  std::size_t unsent() const { return out_bytes_.size() - sent_; }
  int in() const { return open_ ? in_.get() : -1; }
  int out() const { return unsent() > 0 ? out_.get() : -1; }

 private:
  void read_all();
  void find_banner();

  Fd in_, out_;
  bool open_ = true, banner_seen_, received_ = false;
  std::string in_bytes_, out_bytes_;
  std::size_t sent_ = 0, taken_ = 0;
};

}  // namespace cohort::launch
