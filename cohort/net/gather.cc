#include "cohort/net/gather.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/net/dial.h"
#include "cohort/net/door.h"

namespace cohort::net {
namespace {

constexpr Seconds kWarnAfter{5};
constexpr Seconds kLook{0.02};   // where somebody may call it off
constexpr Seconds kUnheard{4};   // where all are known to be there, a host that answers no call is cut off: six of them, the last at 3.1 s
constexpr Seconds kDoubtful{3};  // .. or will be, when others have come to that already

class Gathering {
 public:
  // Streams first .. last - 1 of the links to the ranks of `wanted`.
  Gathering(const MeshPlan& plan, const Listener& listener, int first, int last, std::vector<bool> wanted, Deadline deadline)
      : plan_(plan),
        first_(first),
        last_(last),
        wanted_(std::move(wanted)),
        deadline_(deadline),
        mine_{plan.job, plan.epoch, plan.me, Role::worker, 0, plan.streams},
        wires_(plan.addresses.size()),
        dials_(plan.addresses.size()),
        door_(listener, plan.secret, mine_, [this](const Hello& peer) { return judge_caller(peer); }) {
    for (int r = 0; r < ranks(); ++r) {
      wires_[index(r)].resize(static_cast<std::size_t>(last - first));
      if (wanted_[index(r)]) missing_ += last - first;
      if (wanted_[index(r)] && r < plan.me.value) start_dial(r);
    }
  }

  using Wires = std::vector<std::vector<std::optional<Wire>>>;  // by rank and stream
  Wires run() {
    Deadline warn = Deadline::in(kWarnAfter);
    while (true) {
      look();
      if (missing_ == 0) break;
      if (plan_.given_up != nullptr) see_whether_to_give_up();
      if (deadline_.passed()) give_up(Kind::timeout, "waited in vain for", first_missing());
      if (warn.passed()) {
        log_warning("still waiting for {}", missing_text());
        warn = Deadline::in(6 * kWarnAfter);
      }
      sleep(warn);
    }
    const Door::Counts& counts = door_.counts();
    if (counts.refused > 0) log_warning("refused {} connections while the ranks met; the last: {}", counts.refused, counts.last_refusal);
    if (counts.sent_away > 0) log_info("sent {} connections away that came before the ranks met", counts.sent_away);
    return std::move(wires_);
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  int ranks() const { return static_cast<int>(wires_.size()); }
  std::optional<Dial>& dial(int rank) { return dials_[index(rank)]; }
  std::optional<Wire>& slot(int rank, int stream) { return wires_[index(rank)][static_cast<std::size_t>(stream - first_)]; }
  const std::optional<Wire>& slot(int rank, int stream) const { return wires_[index(rank)][static_cast<std::size_t>(stream - first_)]; }
  bool complete(int rank) const {
    return std::all_of(wires_[index(rank)].begin(), wires_[index(rank)].end(), [](auto& w) { return w.has_value(); });
  }

  // The streams to a rank one after the other: a door has room for so many strangers.
  int next_stream(int r) const {
    int stream = first_;
    while (slot(r, stream)) ++stream;
    return stream;
  }
  void start_dial(int r) {
    Hello mine = mine_;
    mine.stream = next_stream(r);
    const auto judge = [r, of = mine_.streams](const Hello& peer) { return judge_called(r, of, peer); };
    dial(r).emplace(plan_.addresses[index(r)], plan_.secret, mine, judge, deadline_);
  }

  std::string judge_caller(const Hello& peer) const {
    if (peer.role != Role::worker || peer.rank <= plan_.me || peer.rank.value >= ranks())
      return fmt::format("only workers with ranks {} to {} call here", plan_.me.value + 1, ranks() - 1);
    if (peer.streams != mine_.streams) return uneven(peer.streams, mine_.streams);
    if (!wanted_[index(peer.rank.value)] || peer.stream < first_ || peer.stream >= last_)
      return fmt::format("stream {} is not wanted", peer.stream);
    return slot(peer.rank.value, peer.stream) ? fmt::format("rank {} is already connected", peer.rank.value) : std::string();
  }
  static std::string judge_called(int rank, int streams, const Hello& peer) {
    if (peer.role != Role::worker || peer.rank != Rank{rank}) return fmt::format("rank {} was expected at this address", rank);
    return peer.streams == streams ? std::string() : uneven(peer.streams, streams);
  }
  static std::string uneven(int theirs, int ours) {
    return fmt::format("links of {} and of {} sockets do not fit; set COHORT_STREAMS alike on all ranks", theirs, ours);
  }

  [[noreturn]] void give_up(Kind kind, std::string_view how, Rank about) const {
    throw Failure{{kind, fmt::format("rank {} of {} {} {}", plan_.me.value, wires_.size(), how, missing_text()), about}};
  }
  // Whoever cannot be reached is named: the others may go on without him, or without us.
  void see_whether_to_give_up() const {
    const bool called_off = *plan_.given_up;
    for (int r = 0; r < plan_.me.value; ++r)
      if (const auto& d = dials_[index(r)]; d && d->unheard_for(called_off ? kDoubtful : kUnheard))
        give_up(Kind::timeout, "cannot reach", Rank{r});
    if (called_off) give_up(Kind::aborted, "gave up waiting for", kNoRank);
  }
  Rank first_missing() const {
    int r = 0;
    while (!wanted_[index(r)] || complete(r)) ++r;
    return Rank{r};
  }

  void keep(Wire wire, int stream) {
    auto& place = slot(wire.peer().rank.value, stream);
    if (place) return;  // two handshakes of one rank ended in the same moment: the first counts
    place = std::move(wire);
    --missing_;
  }

  void look() {
    for (int r = 0; r < plan_.me.value; ++r) {
      if (!dial(r) || deadline_.passed()) continue;
      if (auto wire = call(r)) {
        keep(std::move(*wire), next_stream(r));
        dial(r).reset();
        if (!complete(r)) start_dial(r);
      }
    }
    while (auto wire = door_.advance()) {
      const int stream = wire->peer().stream;
      keep(std::move(*wire), stream);
    }
  }

  std::optional<Wire> call(int r) {
    try {
      return dial(r)->advance();
    } catch (const Failure& f) {
      if (f.kind() == Kind::timeout) return std::nullopt;  // run() tells about all that are missing
      throw Failure{{f.kind(), fmt::format("rank {} cannot join rank {}: {}", plan_.me.value, r, f.what()), Rank{r}}};
    }
  }

  void sleep(Deadline warn) {
    Deadline until = deadline_.sooner(warn).sooner(door_.look_again());
    if (plan_.given_up != nullptr) until = until.sooner(Deadline::in(kLook));
    polls_.clear();
    door_.watch(polls_);
    for (const auto& d : dials_) {
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
      const auto& d = dials_[index(r)];
      const std::string why = !d ? "has not called" : d->problem().empty() ? "does not answer" : d->problem();
      text += fmt::format("{}rank {} ({}: {})", text.empty() ? "" : ", ", r, plan_.addresses[index(r)].text(), why);
    }
    return text;
  }

  const MeshPlan& plan_;
  const int first_, last_;
  const std::vector<bool> wanted_;
  const Deadline deadline_;
  const Hello mine_;
  Wires wires_;
  std::vector<std::optional<Dial>> dials_;
  int missing_ = 0;
  Door door_;
  std::vector<pollfd> polls_;
};

}  // namespace

std::vector<std::optional<Wire>> gather_wires(const MeshPlan& plan, const Listener& listener, Deadline deadline) {
  std::vector<bool> others(plan.addresses.size(), true);
  others[static_cast<std::size_t>(plan.me.value)] = false;
  std::vector<std::optional<Wire>> wires;
  for (auto& one : Gathering(plan, listener, 0, 1, std::move(others), deadline).run()) wires.push_back(std::move(one[0]));
  return wires;
}

std::vector<std::vector<Wire>> gather_streams(const MeshPlan& plan, const Listener& listener, const std::vector<bool>& far,
                                              Deadline deadline) {
  std::vector<std::vector<Wire>> more(far.size());
  auto all = Gathering(plan, listener, 1, plan.streams, far, deadline).run();
  for (std::size_t r = 0; r < far.size(); ++r)
    for (auto& wire : all[r])
      if (wire) more[r].push_back(std::move(*wire));
  return more;
}

}  // namespace cohort::net
