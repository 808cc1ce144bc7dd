#include "sim_worker.h"

#include <fmt/format.h>

#include <utility>

#include "sim_coordinator.h"

namespace cohort::membership {

using namespace group;

namespace {
constexpr double kPeerTimeout = 1.5;          // of a collective
constexpr double kCoordinatorDeadline = 300;  // without a coordinator a worker waits so long
constexpr std::int64_t kSamples = 61, kBatch = 3;
}  // namespace

void SimWorker::start() {
  id_ = WorkerId{world_.dice().next()};
  alone_since_ = world_.time().now();
  connect();
  heartbeat();
}

void SimWorker::after(double delay, std::function<void()> what) {
  world_.time().after(delay, [this, what = std::move(what)]() mutable {
    if (!alive_) return;
    if (paused_) return after(0.05, std::move(what));
    what();
  });
}

// --- the coordinator

void SimWorker::connect() {
  if (world_.time().now() - alone_since_ > kCoordinatorDeadline) return exit("no coordinator");
  const bool reachable = !world_.blocked(host_, SimCoordinator::kHost) && !world_.blocked(SimCoordinator::kHost, host_);
  if (reachable) connection_ = world_.coordinator().accept(*this);
  if (!connection_) return after(world_.dice().uniform(0.05, 0.2), [this] { connect(); });
  arrive();
}

void SimWorker::arrive() {
  const Ballot::Phase phase = ballot_.phase();
  const bool trains = phase == Ballot::Phase::open || phase == Ballot::Phase::prepared;
  Arrive a{connection_->guest,      {id_, {Rank{0}, address(), number_, fmt::format("host{}", host_)}},
           ballot_.epoch(),         phase == Ballot::Phase::sealed,
           trains && told_settled_, ballot_.standing()};
  to_coordinator(a);
  if (leaving_) to_coordinator(Leaving{connection_->guest, "preempted"});
  if (done_) to_coordinator(Ended{connection_->guest, state_->step});
}

void SimWorker::hung_up() {
  connection_.reset();
  alone_since_ = world_.time().now();
  after(world_.dice().uniform(0.01, 0.2), [this] {
    if (!connection_) connect();
  });
}

void SimWorker::cut() {
  if (!connection_) return;
  world_.close(connection_);
}

void SimWorker::heartbeat() {
  if (connection_) to_coordinator(Heard{connection_->guest});
  after(world_.scenario().rules.heartbeat, [this] { heartbeat(); });
}

void SimWorker::to_coordinator(ElasticEvent event) {
  if (!connection_) return;
  world_.send(connection_, true, [this, event = std::move(event)] { world_.coordinator().hear(event); });
}

void SimWorker::report() {
  waiting_.reset();
  const auto standing = ballot_.seal();
  if (connection_) to_coordinator(Reported{connection_->guest, ballot_.epoch(), standing});
}

void SimWorker::on(const Seal& seal) {
  if (goes_ || !ballot_.heeds(seal.term, seal.epoch) || seal.epoch != ballot_.epoch() || done_) return;
  const bool trains = ballot_.phase() == Ballot::Phase::open || ballot_.phase() == Ballot::Phase::prepared;
  if (!seal.urgent && trains)
    pause_wish_ = true;
  else
    report();
}

void SimWorker::on(const Begin& begin) {
  if (goes_ || begin.roster.epoch <= ballot_.epoch() || begin.term < ballot_.term()) return;
  roster_ = begin.roster;
  rank_ = begin.rank;
  heal_from_ = begin.heal_from;
  came_.clear();
  waiting_.reset();
  pause_wish_ = told_settled_ = wish_heard_ = false;
  const Settle how = ballot_.welcome(begin.term, begin.roster.epoch, begin.base, bool{heal_from_});
  world_.tell(fmt::format("w{} is rank {} of {} in epoch {}, settles by {}", number_, rank_.value, roster_.size(), begin.roster.epoch.value,
                          static_cast<int>(how)));
  after(world_.dice().uniform(0.001, 0.05), [this, how, epoch = ballot_.epoch()] {
    if (goes_ || epoch != ballot_.epoch()) return;
    if (how == Settle::heal) return ask_for_state();
    if (how == Settle::finish) apply();
    if (how == Settle::disk) {
      world_.write(line(HistoryLine::Event::restart, ballot_.epoch(), world_.store.newest));
      return have_state(world_.store.newest);
    }
    have_state(*state_);
  });
}

void SimWorker::evicted() {
  if (goes_) return;
  world_.tell(fmt::format("w{} is evicted", number_));
  ballot_ = Ballot{};
  state_.reset();
  next_.reset();
  waiting_.reset();
  leaving_ = done_ = false;
  id_ = WorkerId{world_.dice().next()};
  if (connection_) world_.close(connection_);
}

// To save takes its time. Meanwhile the heart beats, a lost connection is made again, and whatever is ordered comes too late.
void SimWorker::released(const Release& release) {
  if (std::exchange(goes_, true)) return;
  if (!release.save || !state_) return exit("released");
  if (release.finish && next_) apply();  // else it has settled meanwhile
  after(world_.dice().uniform(0, 1), [this] {
    if (ballot_.epoch().value >= world_.store.fence) {
      world_.store.newest = *state_;
      if (connection_) to_coordinator(Entrusted{connection_->guest, ballot_.epoch(), kNoRank});
    }
    after(world_.dice().uniform(0.001, 0.05), [this] { exit("released"); });
  });
}

void SimWorker::exit(const char* why) {
  if (!alive_) return;
  world_.tell(fmt::format("w{} exits: {}", number_, why));
  kill();
}

void SimWorker::kill() {
  if (!alive_) return;
  alive_ = false;
  if (connection_) world_.close(connection_);
  connection_.reset();
  if (world_.scenario().launcher_sees_exits)
    world_.time().after(world_.dice().uniform(0.001, 0.05), [this, id = id_] { world_.coordinator().process_ended(id, "killed"); });
  for (const Member& m : roster_.members) {
    SimWorker* peer = world_.worker_at(m.address);
    if (peer != this) world_.post(*this, *peer, [peer, epoch = ballot_.epoch(), rank = rank_.value] { peer->peer_died(epoch, rank); });
  }
}

void SimWorker::leave() {
  leaving_ = true;
  if (connection_) to_coordinator(Leaving{connection_->guest, "preempted"});
}

// --- the first state of an epoch

void SimWorker::ask_for_state() {
  SimWorker* source = world_.worker_at(roster_.members[static_cast<std::size_t>(heal_from_.value)].address);
  world_.post(*this, *source, [source, me = this, epoch = ballot_.epoch()] { source->give_state(*me, epoch, 0); });
  after(kPeerTimeout, [this, epoch = ballot_.epoch()] {
    if (epoch != ballot_.epoch() || ballot_.phase() != Ballot::Phase::settling) return;
    if (connection_) to_coordinator(Complained{connection_->guest, epoch, heal_from_});
    report();
  });
}

void SimWorker::give_state(SimWorker& asker, Epoch epoch, int asks) {
  const bool ready = ballot_.epoch() == epoch && ballot_.phase() == Ballot::Phase::open;
  if (!ready && asks < 40 && ballot_.epoch() <= epoch) return after(0.03, [=, this, &asker] { give_state(asker, epoch, asks + 1); });
  if (!ready) return;
  world_.post(*this, asker, [&asker, state = *state_, epoch] { asker.take_state(state, epoch); });
}

void SimWorker::take_state(const State& state, Epoch epoch) {
  if (ballot_.epoch() != epoch || ballot_.phase() != Ballot::Phase::settling) return;
  world_.write(line(HistoryLine::Event::heal, epoch, state));
  have_state(state);
}

void SimWorker::have_state(State state) {
  state_ = state;
  next_.reset();
  ballot_.settled(state.step);
  if (ballot_.phase() != Ballot::Phase::open) return;  // sealed meanwhile
  if (rank_.value == 0) world_.store.fence = std::max(world_.store.fence, ballot_.epoch().value);
  enter(Round::hello);
}

// --- training

data::Onward SimWorker::share() const {
  return data::go_on({.samples = kSamples, .batch = kBatch, .seed = 5}, state_->progress, rank_.value, roster_.size());
}

HistoryLine SimWorker::line(HistoryLine::Event event, Epoch epoch, const State& state) const {
  return {.event = event,
          .epoch = epoch,
          .step = state.step,
          .rank = rank_,
          .worker = fmt::format("{:x}", id_.value),
          .size = roster_.size(),
          .hash = fmt::format("{:x}", state.hash)};
}

// The state after the step that all ranks take now, and what is written about it.
State SimWorker::trained() const {
  const auto onward = share();
  const data::EpochPlan plan = data::plan(onward.share, onward.progress.epoch);
  State next = *state_;
  ++next.step;
  next.progress = data::after_step(onward.share, onward.progress);
  std::uint64_t sum = 0;  // of gradients over all samples of the step, whoever has them
  for (std::int64_t i = 0; i < plan.total(0); ++i)
    sum += data::mix(static_cast<std::uint64_t>(plan.taken(0) + i) * 1000 + static_cast<std::uint64_t>(onward.progress.epoch));
  next.hash = data::mix(next.hash ^ sum);
  return next;
}

void SimWorker::enter(Round round, bool wish) {
  waiting_ = Place{state_->step, round};
  const Place place = *waiting_;
  for (const Member& m : roster_.members) {
    SimWorker* peer = world_.worker_at(m.address);
    if (peer == this)
      came_[place][rank_.value] = wish;
    else
      world_.post(*this, *peer,
                  [peer, epoch = ballot_.epoch(), place, from = rank_.value, wish] { peer->receive(epoch, place, from, wish); });
  }
  after(kPeerTimeout + (round == Round::hello ? 1 : 0), [this, place, epoch = ballot_.epoch()] {
    if (waiting_ == place && epoch == ballot_.epoch()) collective_failed();
  });
  advance();
}

void SimWorker::receive(Epoch epoch, Place place, int from, bool wish) {
  if (epoch > ballot_.epoch()) return after(0.02, [=, this] { receive(epoch, place, from, wish); });  // it connects when we do
  if (epoch != ballot_.epoch()) return;
  came_[place][from] = wish;
  advance();
}

void SimWorker::advance() {
  if (!waiting_) return;
  const auto& came = came_[*waiting_];
  if (came.size() < static_cast<std::size_t>(roster_.size())) return;
  wish_heard_ = false;
  for (const auto& [rank, wish] : came) wish_heard_ = wish_heard_ || wish;
  const Round round = waiting_->second;
  waiting_.reset();
  came_.erase(came_.begin(), came_.upper_bound({state_->step, round}));
  if (round == Round::hello) {
    told_settled_ = true;
    if (connection_) to_coordinator(Settled{connection_->guest, ballot_.epoch(), state_->step});
    begin_step();
  } else if (round == Round::gradients) {
    prepare();
  } else if (round == Round::votes) {
    decide();
  } else {
    done_ = true;
    if (connection_) to_coordinator(Ended{connection_->guest, state_->step});
  }
}

void SimWorker::begin_step() {
  if (state_->step >= world_.scenario().last_step) return enter(Round::goodbye);
  State at = *state_;
  ++at.step;
  world_.write(line(HistoryLine::Event::start, ballot_.epoch(), at));
  after(world_.dice().uniform(0.05, 0.15), [this, epoch = ballot_.epoch()] {
    if (epoch == ballot_.epoch() && ballot_.phase() == Ballot::Phase::open) enter(Round::gradients);
  });
}

void SimWorker::prepare() {
  if (!ballot_.prepare()) return;
  next_ = trained();
  const auto onward = share();
  const data::EpochPlan plan = data::plan(onward.share, onward.progress.epoch);
  const auto mine = plan.mine(0);
  next_line_ = line(HistoryLine::Event::commit, ballot_.epoch(), *next_);
  next_line_->data_epoch = onward.progress.epoch;
  next_line_->first = onward.progress.taken;
  next_line_->total = plan.total(0);
  next_line_->of = kSamples;
  next_line_->samples.assign(mine.begin(), mine.end());
  enter(Round::votes, pause_wish_);
}

void SimWorker::decide() {
  if (!ballot_.decide()) return;
  apply();
  if (rank_.value == 0 && state_->step % 5 == 0) {
    after(world_.dice().uniform(0, 0.3), [this, state = *state_, epoch = ballot_.epoch()] {
      if (!ballot_.may_write(epoch) || epoch.value < world_.store.fence) return;
      world_.store.newest = state;
    });
  }
  if (wish_heard_) return report();
  begin_step();
}

void SimWorker::apply() {
  state_ = *next_;
  next_.reset();
  world_.write(*next_line_);
}

void SimWorker::collective_failed() {
  const auto& came = came_[*waiting_];
  world_.tell(fmt::format("w{}: a collective of epoch {} failed", number_, ballot_.epoch().value));
  for (const Member& m : roster_.members)
    if (!came.contains(m.rank.value) && connection_) to_coordinator(Complained{connection_->guest, ballot_.epoch(), m.rank});
  report();
}

void SimWorker::peer_died(Epoch epoch, int rank) {
  if (epoch != ballot_.epoch() || !waiting_ || done_ || ballot_.phase() == Ballot::Phase::sealed) return;
  if (came_[*waiting_].contains(rank)) return after(0.05, [=, this] { peer_died(epoch, rank); });
  if (connection_) to_coordinator(Complained{connection_->guest, epoch, Rank{rank}});
  report();
}

}  // namespace cohort::membership
