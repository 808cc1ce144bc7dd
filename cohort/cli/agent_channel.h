// The stream between a launcher and an agent: frames over two descriptors (the standard input and output of a remote shell), nothing waits.
//
//   the agent's first line   "cohort agent 2\n"; what a login script printed before it is passed over
//   then, both ways          u32 length of the body, u16 type, body; little-endian
//
// Who may speak on it is the remote shell's business: ssh has authenticated both ends and encrypts. See docs/adr/0010-agents.md.
// Owner: RemoteRanks, the agent. Threads: one. Failure: Kind::corrupt for a stream that is none of ours; the end is open() == false.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/base/fd.h"

namespace cohort::cli {

enum class AgentFrame : std::uint16_t {
  call = 1,  // launcher: the job, its secret, where to reach it
  ready,     // agent: reached; our address
  start,     // launcher: the program and its variables
  started,   // agent: the processes
  output,    // agent: bytes of a rank
  closed,    // agent: a rank's stream has ended
  ended,     // agent: a rank has ended
  trouble,   // agent: what cannot be done, and the exit status
  signal,    // launcher: a signal for every rank
  input,     // launcher: bytes for rank 0; none: their end
  taken,     // agent: so many bytes of input have been read
  beat,      // both: still there
  more,      // launcher: one more worker of an elastic job
  added,     // agent: it is this process
  failed,    // agent: it could not be started, and why
  leaving,   // agent: told to end, it asks that the workers of its host may leave
};

struct AgentMessage {
  AgentFrame type;
  std::vector<std::byte> body;
};

inline constexpr std::string_view kAgentGreeting = "cohort agent 2\n";
inline constexpr std::size_t kMostNoise = 64 << 10;    // of login scripts
inline constexpr std::size_t kMostMessage = 16 << 20;  // an environment has at most a few MiB
inline constexpr std::size_t kFullChannel = 1 << 20;   // more unsent output than this holds the ranks back

class Channel {
 public:
  enum class Side : unsigned char { launcher, agent };
  Channel(Side side, Fd in, Fd out);  // both become non-blocking; an agent greets at once

  void send(AgentFrame type, ConstBytes body = {});
  std::optional<AgentMessage> next();
  void move();       // reads and writes whatever goes without waiting
  void write_all();  // the second half of it
  void close();

  bool open() const { return open_; }  // bytes may still come
  bool greeted() const { return greeted_; }
  bool heard();               // anything since this was asked last
  std::string noise() const;  // what came before a greeting, for messages
  std::size_t unsent() const { return out_bytes_.size() - sent_; }
  int in() const { return open_ ? in_.get() : -1; }
  int out() const { return unsent() > 0 ? out_.get() : -1; }

 private:
  void read_all();
  void look_for_greeting();

  Fd in_, out_;
  bool open_ = true, greeted_, heard_ = false;
  std::string in_bytes_, out_bytes_;
  std::size_t sent_ = 0, taken_ = 0;
};

}  // namespace cohort::cli
