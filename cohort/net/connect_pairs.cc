#include "cohort/net/connect_pairs.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/net/auth/acceptor.h"
#include "cohort/net/auth/dialer.h"

namespace cohort::net {
namespace {

constexpr Seconds kWarnAfter{5};
constexpr Seconds kCheckInterval{0.02};  // of plan.given_up
constexpr Seconds kUnreachableAfter{
    4};                              // where all ranks are known to run, a host that answers no SYN is cut off: six SYNs, the last at 3.1 s
constexpr Seconds kSuspectAfter{3};  // .. earlier when other ranks have given up already

class PairConnector {
 public:
  // Streams first .. last - 1 of the links to the ranks of `wanted`.
  PairConnector(const ConnectPlan& plan, const Listener& listener, int first, int last, std::vector<bool> wanted, Deadline deadline)
      : plan_(plan),
        first_(first),
        last_(last),
        wanted_(std::move(wanted)),
        deadline_(deadline),
        mine_{plan.job, plan.epoch, plan.me, Role::worker, 0, plan.streams},
        connections_(plan.addresses.size()),
        dialers_(plan.addresses.size()),
        acceptor_(listener, plan.secret, mine_, [this](const Hello& peer) { return check_accepted(peer); }) {
    for (int r = 0; r < ranks(); ++r) {
      connections_[index(r)].resize(static_cast<std::size_t>(last - first));
      if (wanted_[index(r)]) missing_ += last - first;
      if (wanted_[index(r)] && r < plan.me.value) start_dial(r);
    }
  }

  using ControlConnections = std::vector<std::vector<std::optional<ControlConnection>>>;  // by rank and stream
  ControlConnections run() {
    Deadline warn = Deadline::in(kWarnAfter);
    while (true) {
      advance();
      if (missing_ == 0) break;
      if (plan_.given_up != nullptr) check_given_up();
      if (deadline_.passed()) give_up(Kind::timeout, "timed out waiting for", first_missing());
      if (warn.passed()) {
        log_warning("still waiting for {}", missing_text());
        warn = Deadline::in(6 * kWarnAfter);
      }
      sleep(warn);
    }
    const Acceptor::Counts& counts = acceptor_.counts();
    if (counts.refused > 0)
      log_warning("refused {} connections while the ranks connected; the last: {}", counts.refused, counts.last_refusal);
    if (counts.unserved > 0) log_info("closed {} connections that came before the ranks connected", counts.unserved);
    return std::move(connections_);
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  int ranks() const { return static_cast<int>(connections_.size()); }
  std::optional<Dialer>& dialer(int rank) { return dialers_[index(rank)]; }
  std::optional<ControlConnection>& slot(int rank, int stream) {
    return connections_[index(rank)][static_cast<std::size_t>(stream - first_)];
  }
  const std::optional<ControlConnection>& slot(int rank, int stream) const {
    return connections_[index(rank)][static_cast<std::size_t>(stream - first_)];
  }
  bool complete(int rank) const {
    return std::all_of(connections_[index(rank)].begin(), connections_[index(rank)].end(), [](auto& w) { return w.has_value(); });
  }

  // The streams to a rank one after the other: an Acceptor has limited room for open handshakes.
  int next_stream(int r) const {
    int stream = first_;
    while (slot(r, stream)) ++stream;
    return stream;
  }
  void start_dial(int r) {
    Hello mine = mine_;
    mine.stream = next_stream(r);
    const auto admit = [r, of = mine_.streams](const Hello& peer) { return check_dialed(r, of, peer); };
    dialer(r).emplace(plan_.addresses[index(r)], plan_.secret, mine, admit, deadline_);
  }

  std::string check_accepted(const Hello& peer) const {
    if (peer.role != Role::worker || peer.rank <= plan_.me || peer.rank.value >= ranks())
      return fmt::format("only workers with ranks {} to {} connect here", plan_.me.value + 1, ranks() - 1);
    if (peer.streams != mine_.streams) return uneven(peer.streams, mine_.streams);
    if (!wanted_[index(peer.rank.value)] || peer.stream < first_ || peer.stream >= last_)
      return fmt::format("stream {} is not expected", peer.stream);
    return slot(peer.rank.value, peer.stream) ? fmt::format("rank {} is already connected", peer.rank.value) : std::string();
  }
  static std::string check_dialed(int rank, int streams, const Hello& peer) {
    if (peer.role != Role::worker || peer.rank != Rank{rank}) return fmt::format("rank {} was expected at this address", rank);
    return peer.streams == streams ? std::string() : uneven(peer.streams, streams);
  }
  static std::string uneven(int theirs, int ours) {
    return fmt::format("links of {} and of {} sockets do not fit; set COHORT_STREAMS alike on all ranks", theirs, ours);
  }

  [[noreturn]] void give_up(Kind kind, std::string_view how, Rank about) const {
    throw Failure{{kind, fmt::format("rank {} of {} {} {}", plan_.me.value, connections_.size(), how, missing_text()), about}};
  }
  // A rank that cannot be reached is named: the others may go on without it, or without us.
  void check_given_up() const {
    const bool given_up = *plan_.given_up;
    for (int r = 0; r < plan_.me.value; ++r)
      if (const auto& d = dialers_[index(r)]; d && d->unreachable_for(given_up ? kSuspectAfter : kUnreachableAfter))
        give_up(Kind::timeout, "cannot reach", Rank{r});
    if (given_up) give_up(Kind::aborted, "gave up waiting for", kNoRank);
  }
  Rank first_missing() const {
    int r = 0;
    while (!wanted_[index(r)] || complete(r)) ++r;
    return Rank{r};
  }

  void store(ControlConnection connection, int stream) {
    auto& place = slot(connection.peer().rank.value, stream);
    if (place) return;  // two handshakes of one rank completed at the same time: the first counts
    place = std::move(connection);
    --missing_;
  }

  void advance() {
    for (int r = 0; r < plan_.me.value; ++r) {
      if (!dialer(r) || deadline_.passed()) continue;
      if (auto connection = dial(r)) {
        store(std::move(*connection), next_stream(r));
        dialer(r).reset();
        if (!complete(r)) start_dial(r);
      }
    }
    while (auto connection = acceptor_.advance()) {
      const int stream = connection->peer().stream;
      store(std::move(*connection), stream);
    }
  }

  std::optional<ControlConnection> dial(int r) {
    try {
      return dialer(r)->advance();
    } catch (const Failure& f) {
      if (f.kind() == Kind::timeout) return std::nullopt;  // run() names all that are missing
      throw Failure{{f.kind(), fmt::format("rank {} cannot join rank {}: {}", plan_.me.value, r, f.what()), Rank{r}}};
    }
  }

  void sleep(Deadline warn) {
    Deadline until = deadline_.sooner(warn).sooner(acceptor_.look_again());
    if (plan_.given_up != nullptr) until = until.sooner(Deadline::in(kCheckInterval));
    polls_.clear();
    acceptor_.watch(polls_);
    for (const auto& d : dialers_) {
      if (!d) continue;
      until = until.sooner(d->look_again());
      if (d->fd() >= 0) polls_.push_back({d->fd(), d->events(), 0});
    }
    if (poll(polls_.data(), polls_.size(), until.left_ms()) < 0 && errno != EINTR) throw_system("poll");
  }

  std::string missing_text() const {
    std::string text;
    for (int r = 0; r < ranks(); ++r) {
      if (!wanted_[index(r)] || complete(r)) continue;
      const auto& d = dialers_[index(r)];
      const std::string why = !d ? "has not connected" : d->problem().empty() ? "does not answer" : d->problem();
      text += fmt::format("{}rank {} ({}: {})", text.empty() ? "" : ", ", r, plan_.addresses[index(r)].text(), why);
    }
    return text;
  }

  const ConnectPlan& plan_;
  const int first_, last_;
  const std::vector<bool> wanted_;
  const Deadline deadline_;
  const Hello mine_;
  ControlConnections connections_;
  std::vector<std::optional<Dialer>> dialers_;
  int missing_ = 0;
  Acceptor acceptor_;
  std::vector<pollfd> polls_;
};

}  // namespace

std::vector<std::optional<ControlConnection>> connect_all_pairs(const ConnectPlan& plan, const Listener& listener, Deadline deadline) {
  std::vector<bool> others(plan.addresses.size(), true);
  others[static_cast<std::size_t>(plan.me.value)] = false;
  std::vector<std::optional<ControlConnection>> connections;
  for (auto& one : PairConnector(plan, listener, 0, 1, std::move(others), deadline).run()) connections.push_back(std::move(one[0]));
  return connections;
}

std::vector<std::vector<ControlConnection>> connect_extra_streams(const ConnectPlan& plan, const Listener& listener,
                                                                  const std::vector<bool>& far, Deadline deadline) {
  std::vector<std::vector<ControlConnection>> more(far.size());
  auto all = PairConnector(plan, listener, 1, plan.streams, far, deadline).run();
  for (std::size_t r = 0; r < far.size(); ++r)
    for (auto& connection : all[r])
      if (connection) more[r].push_back(std::move(*connection));
  return more;
}

}  // namespace cohort::net
