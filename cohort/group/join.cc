#include "cohort/group/join.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/group/handover.h"
#include "cohort/group/rendezvous.h"
#include "cohort/net/dial.h"
#include "cohort/net/interfaces.h"

namespace cohort::group {
namespace {

constexpr Seconds kAnswerMargin{5};  // the coordinator ends a wait by naming the missing; only when it is silent do we end it ourselves
constexpr Seconds kFirstWord{3};     // of a wait for rank 0
constexpr Seconds kLook{0.5};

// What the roster calls our host. Where the launcher says that there are several without naming them, network namespaces count as hosts:
// they share a kernel, and so could share memory, but somebody meant them to be apart.
std::string host_name(const Place& place) {
  if (!place.host.empty()) return place.host;
  std::array<char, 65> name{};
  gethostname(name.data(), name.size() - 1);
  std::array<char, 64> space{};
  if (place.one_host() || readlink("/proc/self/ns/net", space.data(), space.size() - 1) <= 0) return name.data();
  return fmt::format("{} {}", name.data(), space.data());
}

// Peers reach us by the way we reached the coordinator, unless told otherwise: loopback stays loopback.
net::Address listening_address(const Place& place, const net::Address& coordinator, const net::Wire& wire) {
  if (!place.interface.empty()) return {net::interface_address(place.interface), 0};
  if (coordinator.is_unix()) return {"127.0.0.1", 0};
  return {net::local_address(wire.fd()).host, 0};
}

// What the handshake calls a job: at most 64 printable bytes.
std::string job_name(const Place& place) {
  std::string name = place.job;
  if (name.empty())
    name = fmt::format("parent-{}", getppid());  // launchers without a name for the job start all ranks of a host themselves
  if (!place.from_cohort()) name = fmt::format("{}:{}", place.source, name);
  for (char& c : name)
    if (c < 0x20 || c > 0x7e) c = '_';
  if (name.size() <= 64) return name;
  return name.substr(0, 31) + handover_name(name).substr(std::string_view("unix:@cohort.").size() + std::to_string(geteuid()).size());
}

void speak(const JoinOptions& options, const std::string& text) {
  if (options.say) return options.say(text);
  log_warning("{}", text);
}

// Says a line the first time after kFirstWord, then every ten seconds.
class Patiently {
 public:
  Patiently(const JoinOptions& options, std::string text) : options_(options), text_(std::move(text)) {}
  void operator()() {
    if (!next_.passed()) return;
    speak(options_, text_);
    next_ = Deadline::in(10s);
  }

 private:
  const JoinOptions& options_;
  const std::string text_;
  Deadline next_ = Deadline::in(kFirstWord);
};

net::Wire reach(const Place& place, const net::Address& to, const net::Secret& secret, const net::Hello& mine, const JoinOptions& options,
                Deadline deadline) {
  const std::string_view whom = place.from_cohort() ? "the launcher" : "rank 0";
  Patiently waiting(options, fmt::format("waiting for {} of {} ranks: nobody answers at {}", whom, place.size, to.text()));
  net::Dial dial(to, secret, mine, {}, deadline);
  while (true) {
    if (auto wire = dial.advance()) return std::move(*wire);
    pollfd one{dial.fd(), dial.events(), 0};
    poll(&one, 1, dial.look_again().sooner(Deadline::in(kLook)).left_ms());
    waiting();
  }
}

Roster wait_for_roster(net::Wire& wire, const Place& place, const JoinOptions& options, Deadline deadline) {
  while (true) {
    net::Frame frame;
    try {
      frame = wire.recv(deadline);
    } catch (const Failure& failure) {
      throw Failure{{failure.kind(),
                     fmt::format("rendezvous: rank {} waited for the others, but the coordinator {}: {}", place.rank.value,
                                 failure.kind() == Kind::timeout ? "is silent" : "ended", failure.what()),
                     kNoRank}};
    }
    if (frame.type == kRosterFrame) return decode_roster(frame.body);
    if (frame.type == kRefusedFrame) throw Failure{decode_error(frame.body)};
    if (frame.type == kWaitingFrame) speak(options, {reinterpret_cast<const char*>(frame.body.data()), frame.body.size()});
  }
}

Joined join_others(const Place& place, const std::string& job, const JoinOptions& options) {
  Patiently waiting(options, fmt::format("waiting for rank 0 of {}: it has not opened the job's meeting point on this host", place.size));
  Handed handed = receive_handover(handover_name(job), Deadline::in(options.start_timeout), [&] { waiting(); });
  handed.secret.use_tls(options.tls);
  return join_at(place, job, handed.coordinator, handed.secret, options);
}

Joined join_as_first(const Place& place, const std::string& job, const JoinOptions& options) {
  const bool given = !place.rendezvous.empty() && !place.secret_file.empty();
  const auto secret = (given ? net::Secret::from_file(place.secret_file) : net::Secret::random()).use_tls(options.tls);
  auto listener = net::listen_on(given ? net::Address::parse(place.rendezvous) : net::Address{"127.0.0.1", 0}, secret);
  const net::Address address = listener.address;
  if (!place.one_host() && address.is_loopback())
    log_warning("rank 0 listens on {}, which other hosts cannot reach: set COHORT_RENDEZVOUS to an address that they can", address.text());
  std::unique_ptr<Handover> handover;
  if (!given) handover = std::make_unique<Handover>(handover_name(job), Handed{secret, address}, Deadline::in(options.start_timeout));
  CoordinatorOptions how{.job = job, .size = place.size, .secret = secret, .start_timeout = options.start_timeout};
  how.say = [](const std::string& text) { log_debug("{}", text); };  // we are told the same as a worker
  how.before_welcome = [&] {
    if (handover) handover->close();  // a rank that starts its next job at once must not meet this one again
  };
  Coordinator coordinator(std::move(how), std::move(listener));
  return join_at(place, job, address, secret, options);
}

}  // namespace

Joined join_at(const Place& place, const std::string& job, const net::Address& coordinator, const net::Secret& secret,
               const JoinOptions& options) {
  const Deadline deadline = Deadline::in(options.start_timeout + kAnswerMargin);
  net::Wire wire = reach(place, coordinator, secret, {job, Epoch{}, place.rank, net::Role::worker}, options, deadline);
  net::Listener listener = net::listen_on(listening_address(place, coordinator, wire), secret);
  const Join wish{{place.rank, listener.address.text(), getpid(), host_name(place)}, static_cast<std::uint32_t>(place.size)};
  wire.send(kJoinFrame, encode(wish), deadline);
  Roster roster = wait_for_roster(wire, place, options, deadline);
  if (roster.size() != place.size)
    throw_failure(Kind::corrupt, "rendezvous: the roster has {} members instead of {}", roster.size(), place.size);
  return {std::move(roster), secret, std::move(listener)};
}

Joined join(const Place& place, const JoinOptions& options) {
  const std::string job = job_name(place);
  if (place.from_cohort())
    return join_at(place, job, net::Address::parse(place.rendezvous), net::Secret::from_file(place.secret_file).use_tls(options.tls),
                   options);
  const bool given = !place.rendezvous.empty() && !place.secret_file.empty();
  if (!given && !place.one_host())
    throw_failure(
        Kind::usage,
        "{} ranks on several hosts ({} on this one), started by {}: set COHORT_SECRET_FILE (32 random bytes, mode 600, the same on every "
        "host) and COHORT_RENDEZVOUS=host:port of rank 0{}",
        place.size, place.local_size, place.source,
        place.rendezvous.empty() ? "" : fmt::format(" ({} from MASTER_ADDR and MASTER_PORT + 1 is used when unset)", place.rendezvous));
  if (place.rank == Rank{0}) return join_as_first(place, job, options);
  if (!given) return join_others(place, job, options);
  return join_at(place, job, net::Address::parse(place.rendezvous), net::Secret::from_file(place.secret_file).use_tls(options.tls),
                 options);
}

}  // namespace cohort::group
