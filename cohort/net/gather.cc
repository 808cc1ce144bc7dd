#include "cohort/net/gather.h"

#include <fmt/format.h>
#include <poll.h>

#include <cerrno>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/net/dial.h"
#include "cohort/net/door.h"

namespace cohort::net {
namespace {

constexpr Seconds kWarnAfter{5};

class Gathering {
 public:
  Gathering(const MeshPlan& plan, const Listener& listener, Deadline deadline)
      : plan_(plan),
        deadline_(deadline),
        mine_{plan.job, plan.epoch, plan.me, Role::worker},
        wires_(plan.addresses.size()),
        dials_(plan.addresses.size()),
        missing_(static_cast<int>(wires_.size()) - 1),
        door_(listener, plan.secret, mine_, [this](const Hello& peer) { return judge_caller(peer); }) {
    for (int r = 0; r < plan.me.value; ++r)
      dial(r).emplace(
          plan.addresses[index(r)], plan.secret, mine_, [r](const Hello& peer) { return judge_called(r, peer); }, deadline);
  }

  std::vector<std::optional<Wire>> run() {
    Deadline warn = Deadline::in(kWarnAfter);
    while (true) {
      look();
      if (missing_ == 0) break;
      if (deadline_.passed())
        throw_failure(Kind::timeout, "rank {} of {} waited in vain for {}", plan_.me.value, wires_.size(), missing_text());
      if (warn.passed()) {
        log_warning("still waiting for {}", missing_text());
        warn = Deadline::in(6 * kWarnAfter);
      }
      sleep(warn);
    }
    if (door_.counts().refused > 0)
      log_warning("refused {} connections while the ranks met; the last: {}", door_.counts().refused, door_.counts().last_refusal);
    return std::move(wires_);
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  std::optional<Dial>& dial(int rank) { return dials_[index(rank)]; }

  std::string judge_caller(const Hello& peer) const {
    const int n = static_cast<int>(wires_.size());
    if (peer.role != Role::worker || peer.rank <= plan_.me || peer.rank.value >= n)
      return fmt::format("only workers with ranks {} to {} call here", plan_.me.value + 1, n - 1);
    return wires_[index(peer.rank.value)] ? fmt::format("rank {} is already connected", peer.rank.value) : std::string();
  }
  static std::string judge_called(int rank, const Hello& peer) {
    if (peer.role == Role::worker && peer.rank == Rank{rank}) return {};
    return fmt::format("rank {} was expected at this address", rank);
  }

  void keep(Wire wire) {
    auto& slot = wires_[index(wire.peer().rank.value)];
    if (slot) return;  // two handshakes of one rank ended in the same moment: the first counts
    slot = std::move(wire);
    --missing_;
  }

  void look() {
    for (int r = 0; r < plan_.me.value; ++r) {
      if (!dial(r) || deadline_.passed()) continue;
      if (auto wire = call(r)) {
        keep(std::move(*wire));
        dial(r).reset();
      }
    }
    while (auto wire = door_.advance()) keep(std::move(*wire));
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
    for (int r = 0; r < static_cast<int>(wires_.size()); ++r) {
      if (wires_[index(r)] || Rank{r} == plan_.me) continue;
      const auto& d = dials_[index(r)];
      const std::string why = !d ? "has not called" : d->problem().empty() ? "does not answer" : d->problem();
      text += fmt::format("{}rank {} ({}: {})", text.empty() ? "" : ", ", r, plan_.addresses[index(r)].text(), why);
    }
    return text;
  }

  const MeshPlan& plan_;
  const Deadline deadline_;
  const Hello mine_;
  std::vector<std::optional<Wire>> wires_;
  std::vector<std::optional<Dial>> dials_;
  int missing_;
  Door door_;
  std::vector<pollfd> polls_;
};

}  // namespace

std::vector<std::optional<Wire>> gather_wires(const MeshPlan& plan, const Listener& listener, Deadline deadline) {
  return Gathering(plan, listener, deadline).run();
}

}  // namespace cohort::net
