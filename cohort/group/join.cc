#include "cohort/group/join.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/group/rendezvous.h"
#include "cohort/group/secret_server.h"
#include "cohort/net/auth/dialer.h"
#include "cohort/net/socket/interfaces.h"

namespace cohort::group {
namespace {

constexpr Seconds kAnswerMargin{5};  // the coordinator ends a wait by naming the missing; this limit is for a coordinator that is silent
constexpr Seconds kFirstNotice{3};   // of a wait for the coordinator
constexpr Seconds kPollInterval{0.5};

// This host's name in the roster. Where the launcher gives several hosts without names, network namespaces count as hosts: they share a
// kernel, and so could share memory, but were set up to be separate.
std::string host_name(const RankInfo& info) {
  if (!info.host.empty()) return info.host;
  std::array<char, 65> name{};
  gethostname(name.data(), name.size() - 1);
  std::array<char, 64> space{};
  if (info.one_host() || readlink("/proc/self/ns/net", space.data(), space.size() - 1) <= 0) return name.data();
  return fmt::format("{} {}", name.data(), space.data());
}

// Peers reach this rank by the interface that reached the coordinator, unless one is set: loopback stays loopback.
net::Address listening_address(const RankInfo& info, const net::Address& coordinator, const net::ControlConnection& connection) {
  if (!info.interface.empty()) return {net::interface_address(info.interface), 0};
  if (coordinator.is_unix()) return {"127.0.0.1", 0};
  return {net::local_address(connection.fd()).host, 0};
}

// The job's name in the handshake: at most 64 printable bytes.
std::string job_name(const RankInfo& info) {
  std::string name = info.job;
  if (name.empty()) name = fmt::format("parent-{}", getppid());  // launchers that name no job start all ranks of a host themselves
  if (!info.from_cohort()) name = fmt::format("{}:{}", info.source, name);
  for (char& c : name)
    if (c < 0x20 || c > 0x7e) c = '_';
  if (name.size() <= 64) return name;
  return name.substr(0, 31) + secret_socket_name(name).substr(std::string_view("unix:@cohort.").size() + std::to_string(geteuid()).size());
}

void report(const JoinOptions& options, const std::string& text) {
  if (options.say) return options.say(text);
  log_warning("{}", text);
}

// Reports a line the first time after kFirstNotice, then every ten seconds.
class WaitNotice {
 public:
  WaitNotice(const JoinOptions& options, std::string text) : options_(options), text_(std::move(text)) {}
  void operator()() {
    if (!next_.passed()) return;
    report(options_, text_);
    next_ = Deadline::in(10s);
  }

 private:
  const JoinOptions& options_;
  const std::string text_;
  Deadline next_ = Deadline::in(kFirstNotice);
};

net::ControlConnection connect_coordinator(const RankInfo& info, const net::Address& to, const net::Secret& secret, const net::Hello& mine,
                                           const JoinOptions& options, Deadline deadline) {
  const std::string_view peer = info.from_cohort() ? "the launcher" : "rank 0";
  WaitNotice waiting(options, fmt::format("waiting for {} of {} ranks: no answer at {}", peer, info.size, to.text()));
  net::Dialer dialer(to, secret, mine, {}, deadline);
  while (true) {
    if (auto connection = dialer.advance()) return std::move(*connection);
    pollfd one{dialer.fd(), dialer.events(), 0};
    poll(&one, 1, dialer.look_again().sooner(Deadline::in(kPollInterval)).left_ms());
    waiting();
  }
}

Roster wait_for_roster(net::ControlConnection& connection, const RankInfo& info, const JoinOptions& options, Deadline deadline) {
  while (true) {
    net::Frame frame;
    try {
      frame = connection.recv(deadline);
    } catch (const Failure& failure) {
      throw Failure{{failure.kind(),
                     fmt::format("rendezvous: rank {} waited for the others, but the coordinator {}: {}{}", info.rank.value,
                                 failure.kind() == Kind::timeout ? "does not answer" : "ended", failure.what(),
                                 failure.kind() == Kind::peer_lost
                                     ? fmt::format(" (one that is older than Cohort {}, which this rank runs, does so)", options.version)
                                     : ""),
                     kNoRank}};
    }
    if (frame.type == kRosterFrame) return decode_roster(frame.body);
    if (frame.type == kRefusedFrame) throw Failure{decode_error(frame.body)};
    if (frame.type == kWaitingFrame) report(options, {reinterpret_cast<const char*>(frame.body.data()), frame.body.size()});
  }
}

Joined join_others(const RankInfo& info, const std::string& job, const JoinOptions& options) {
  WaitNotice waiting(options,
                     fmt::format("waiting for rank 0 of {}: it has not opened the job's rendezvous socket on this host", info.size));
  JobCredentials credentials = fetch_secret(secret_socket_name(job), Deadline::in(options.start_timeout), [&] { waiting(); });
  credentials.secret.use_tls(options.tls);
  return join_at(info, job, credentials.coordinator, credentials.secret, options);
}

Joined join_as_first(const RankInfo& info, const std::string& job, const JoinOptions& options) {
  const bool given = !info.rendezvous.empty() && !info.secret_file.empty();
  const auto secret = (given ? net::Secret::from_file(info.secret_file) : net::Secret::random()).use_tls(options.tls);
  auto listener = net::listen_on(given ? net::Address::parse(info.rendezvous) : net::Address{"127.0.0.1", 0}, secret);
  const net::Address address = listener.address;
  if (!info.one_host() && address.is_loopback())
    log_warning("rank 0 listens on {}, which other hosts cannot reach: set COHORT_RENDEZVOUS to an address that they can", address.text());
  std::unique_ptr<SecretServer> secret_server;
  if (!given)
    secret_server =
        std::make_unique<SecretServer>(secret_socket_name(job), JobCredentials{secret, address}, Deadline::in(options.start_timeout));
  RendezvousOptions how{.job = job, .size = info.size, .secret = secret, .start_timeout = options.start_timeout};
  how.say = [](const std::string& text) { log_debug("{}", text); };  // this rank gets the same lines as a worker
  how.before_welcome = [&] {
    if (secret_server) secret_server->close();  // a rank that starts its next job at once must not get the secret of this one
  };
  RendezvousServer coordinator(std::move(how), std::move(listener));
  return join_at(info, job, address, secret, options);
}

}  // namespace

Joined join_at(const RankInfo& info, const std::string& job, const net::Address& coordinator, const net::Secret& secret,
               const JoinOptions& options) {
  const Deadline deadline = Deadline::in(options.start_timeout + kAnswerMargin);
  net::ControlConnection connection =
      connect_coordinator(info, coordinator, secret, {job, Epoch{}, info.rank, net::Role::worker}, options, deadline);
  net::Listener listener = net::listen_on(listening_address(info, coordinator, connection), secret);
  const Join request{
      {info.rank, listener.address.text(), getpid(), host_name(info)}, static_cast<std::uint32_t>(info.size), options.version};
  connection.send(kJoinFrame, encode(request), deadline);
  Roster roster = wait_for_roster(connection, info, options, deadline);
  if (roster.size() != info.size)
    throw_failure(Kind::corrupt, "rendezvous: the roster has {} members instead of {}", roster.size(), info.size);
  return {std::move(roster), secret, std::move(listener)};
}

Joined join(const RankInfo& info, const JoinOptions& options) {
  const std::string job = job_name(info);
  if (info.from_cohort())
    return join_at(info, job, net::Address::parse(info.rendezvous), net::Secret::from_file(info.secret_file).use_tls(options.tls), options);
  const bool given = !info.rendezvous.empty() && !info.secret_file.empty();
  if (!given && !info.one_host())
    throw_failure(
        Kind::usage,
        "{} ranks on several hosts ({} on this one), started by {}: set COHORT_SECRET_FILE (32 random bytes, mode 600, the same on every "
        "host) and COHORT_RENDEZVOUS=host:port of rank 0{}",
        info.size, info.local_size, info.source,
        info.rendezvous.empty() ? "" : fmt::format(" ({} from MASTER_ADDR and MASTER_PORT + 1 is used when unset)", info.rendezvous));
  if (info.rank == Rank{0}) return join_as_first(info, job, options);
  if (!given) return join_others(info, job, options);
  return join_at(info, job, net::Address::parse(info.rendezvous), net::Secret::from_file(info.secret_file).use_tls(options.tls), options);
}

}  // namespace cohort::group
