#include "sim_worker.h"

#include <fmt/format.h>

#include <utility>

#include "sim_coordinator.h"

namespace cohort::membership {

using namespace elastic;
using namespace group;

namespace {
constexpr double kPeerTimeout = 1.5;          // of a collective
constexpr double kCoordinatorDeadline = 300;  // a worker waits so long without a coordinator
constexpr std::int64_t kSamples = 61, kBatch = 3;
}  // namespace

void SimWorker::start() {
  id_ = WorkerId{world_.rng().next()};
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
  if (!connection_) return after(world_.rng().uniform(0.05, 0.2), [this] { connect(); });
  arrive();
}

void SimWorker::arrive() {
  const StepCommit::Phase phase = step_commit_.phase();
  const bool trains = phase == StepCommit::Phase::open || phase == StepCommit::Phase::prepared;
  Arrive a{connection_->connection_id, {id_, {Rank{0}, address(), number_, fmt::format("host{}", host_)}},
           step_commit_.epoch(),       phase == StepCommit::Phase::sealed,
           trains && settled_sent_,    step_commit_.worker_progress()};
  to_coordinator(a);
  if (leaving_) to_coordinator(Leaving{connection_->connection_id, "preempted"});
  if (done_) to_coordinator(Ended{connection_->connection_id, state_->step});
}

void SimWorker::disconnected() {
  connection_.reset();
  alone_since_ = world_.time().now();
  after(world_.rng().uniform(0.01, 0.2), [this] {
    if (!connection_) connect();
  });
}

void SimWorker::cut() {
  if (!connection_) return;
  world_.close(connection_);
}

void SimWorker::heartbeat() {
  if (connection_) to_coordinator(Heartbeat{connection_->connection_id});
  after(world_.scenario().rules.heartbeat, [this] { heartbeat(); });
}

void SimWorker::to_coordinator(ElasticEvent event) {
  if (!connection_) return;
  world_.send(connection_, true, [this, event = std::move(event)] { world_.coordinator().receive(event); });
}

void SimWorker::report() {
  waiting_.reset();
  const auto worker_progress = step_commit_.seal();
  if (connection_) to_coordinator(Reported{connection_->connection_id, step_commit_.epoch(), worker_progress});
}

void SimWorker::on(const SealEpoch& seal) {
  if (released_ || !step_commit_.accepts(seal.term, seal.epoch) || seal.epoch != step_commit_.epoch() || done_) return;
  const bool trains = step_commit_.phase() == StepCommit::Phase::open || step_commit_.phase() == StepCommit::Phase::prepared;
  if (!seal.urgent && trains)
    change_wanted_ = true;
  else
    report();
}

void SimWorker::on(const BeginEpoch& begin) {
  if (released_ || begin.roster.epoch <= step_commit_.epoch() || begin.term < step_commit_.term()) return;
  roster_ = begin.roster;
  rank_ = begin.rank;
  heal_from_ = begin.heal_from;
  arrived_.clear();
  waiting_.reset();
  change_wanted_ = settled_sent_ = change_agreed_ = false;
  const StateRecovery how = step_commit_.welcome(begin.term, begin.roster.epoch, begin.base, bool{heal_from_});
  world_.log(fmt::format("w{} is rank {} of {} in epoch {}, first state by {}", number_, rank_.value, roster_.size(),
                         begin.roster.epoch.value, static_cast<int>(how)));
  after(world_.rng().uniform(0.001, 0.05), [this, how, epoch = step_commit_.epoch()] {
    if (released_ || epoch != step_commit_.epoch()) return;
    if (how == StateRecovery::heal) return ask_for_state();
    if (how == StateRecovery::finish) apply();
    if (how == StateRecovery::disk) {
      world_.write(line(HistoryLine::Event::restart, step_commit_.epoch(), world_.store.newest));
      return have_state(world_.store.newest);
    }
    have_state(*state_);
  });
}

void SimWorker::evicted() {
  if (released_) return;
  world_.log(fmt::format("w{} is evicted", number_));
  step_commit_ = StepCommit{};
  state_.reset();
  next_.reset();
  waiting_.reset();
  leaving_ = done_ = false;
  id_ = WorkerId{world_.rng().next()};
  if (connection_) world_.close(connection_);
}

// A save takes a while. Meanwhile heartbeats are sent, a lost connection is made again, and further actions come too late.
void SimWorker::released(const Release& release) {
  if (std::exchange(released_, true)) return;
  if (!release.save || !state_) return exit("released");
  if (release.finish && next_) apply();  // else it has settled meanwhile
  after(world_.rng().uniform(0, 1), [this] {
    if (step_commit_.epoch().value >= world_.store.fence) {
      world_.store.newest = *state_;
      if (connection_) to_coordinator(StateTransferred{connection_->connection_id, step_commit_.epoch(), kNoRank});
    }
    after(world_.rng().uniform(0.001, 0.05), [this] { exit("released"); });
  });
}

void SimWorker::exit(const char* why) {
  if (!alive_) return;
  world_.log(fmt::format("w{} exits: {}", number_, why));
  kill();
}

void SimWorker::kill() {
  if (!alive_) return;
  alive_ = false;
  if (connection_) world_.close(connection_);
  connection_.reset();
  if (world_.scenario().launcher_sees_exits)
    world_.time().after(world_.rng().uniform(0.001, 0.05), [this, id = id_] { world_.coordinator().process_ended(id, "killed"); });
  for (const Member& m : roster_.members) {
    SimWorker* peer = world_.worker_at(m.address);
    if (peer != this) world_.post(*this, *peer, [peer, epoch = step_commit_.epoch(), rank = rank_.value] { peer->peer_died(epoch, rank); });
  }
}

void SimWorker::leave() {
  leaving_ = true;
  if (connection_) to_coordinator(Leaving{connection_->connection_id, "preempted"});
}

// --- the first state of an epoch

void SimWorker::ask_for_state() {
  SimWorker* source = world_.worker_at(roster_.members[static_cast<std::size_t>(heal_from_.value)].address);
  world_.post(*this, *source, [source, me = this, epoch = step_commit_.epoch()] { source->give_state(*me, epoch, 0); });
  after(kPeerTimeout, [this, epoch = step_commit_.epoch()] {
    if (epoch != step_commit_.epoch() || step_commit_.phase() != StepCommit::Phase::settling) return;
    if (connection_) to_coordinator(PeerUnreachable{connection_->connection_id, epoch, heal_from_});
    report();
  });
}

void SimWorker::give_state(SimWorker& asker, Epoch epoch, int asks) {
  const bool ready = step_commit_.epoch() == epoch && step_commit_.phase() == StepCommit::Phase::open;
  if (!ready && asks < 40 && step_commit_.epoch() <= epoch) return after(0.03, [=, this, &asker] { give_state(asker, epoch, asks + 1); });
  if (!ready) return;
  world_.post(*this, asker, [&asker, state = *state_, epoch] { asker.take_state(state, epoch); });
}

void SimWorker::take_state(const State& state, Epoch epoch) {
  if (step_commit_.epoch() != epoch || step_commit_.phase() != StepCommit::Phase::settling) return;
  world_.write(line(HistoryLine::Event::heal, epoch, state));
  have_state(state);
}

void SimWorker::have_state(State state) {
  state_ = state;
  next_.reset();
  step_commit_.settled(state.step);
  if (step_commit_.phase() != StepCommit::Phase::open) return;  // sealed meanwhile
  if (rank_.value == 0) world_.store.fence = std::max(world_.store.fence, step_commit_.epoch().value);
  enter(Round::first_barrier);
}

// --- training

data::RebalancedShare SimWorker::share() const {
  return data::rebalance({.samples = kSamples, .batch = kBatch, .seed = 5}, state_->progress, rank_.value, roster_.size());
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

// The state after the step that all ranks take now.
State SimWorker::trained() const {
  const auto rebalanced = share();
  const data::EpochPlan plan = data::plan(rebalanced.share, rebalanced.progress.epoch);
  State next = *state_;
  ++next.step;
  next.progress = data::after_step(rebalanced.share, rebalanced.progress);
  std::uint64_t sum = 0;  // of the gradients of all samples of the step, on any rank
  for (std::int64_t i = 0; i < plan.total(0); ++i)
    sum += data::mix(static_cast<std::uint64_t>(plan.taken(0) + i) * 1000 + static_cast<std::uint64_t>(rebalanced.progress.epoch));
  next.hash = data::mix(next.hash ^ sum);
  return next;
}

void SimWorker::enter(Round round, bool wants_change) {
  waiting_ = RoundId{state_->step, round};
  const RoundId round_id = *waiting_;
  for (const Member& m : roster_.members) {
    SimWorker* peer = world_.worker_at(m.address);
    if (peer == this)
      arrived_[round_id][rank_.value] = wants_change;
    else
      world_.post(*this, *peer, [peer, epoch = step_commit_.epoch(), round_id, from = rank_.value, wants_change] {
        peer->receive(epoch, round_id, from, wants_change);
      });
  }
  after(kPeerTimeout + (round == Round::first_barrier ? 1 : 0), [this, round_id, epoch = step_commit_.epoch()] {
    if (waiting_ == round_id && epoch == step_commit_.epoch()) collective_failed();
  });
  advance();
}

void SimWorker::receive(Epoch epoch, RoundId round_id, int from, bool wants_change) {
  if (epoch > step_commit_.epoch())
    return after(0.02, [=, this] { receive(epoch, round_id, from, wants_change); });  // until this worker is in that epoch too
  if (epoch != step_commit_.epoch()) return;
  arrived_[round_id][from] = wants_change;
  advance();
}

void SimWorker::advance() {
  if (!waiting_) return;
  const auto& arrived = arrived_[*waiting_];
  if (arrived.size() < static_cast<std::size_t>(roster_.size())) return;
  change_agreed_ = false;
  for (const auto& [rank, wants_change] : arrived) change_agreed_ = change_agreed_ || wants_change;
  const Round round = waiting_->second;
  waiting_.reset();
  arrived_.erase(arrived_.begin(), arrived_.upper_bound({state_->step, round}));
  if (round == Round::first_barrier) {
    settled_sent_ = true;
    if (connection_) to_coordinator(Settled{connection_->connection_id, step_commit_.epoch(), state_->step});
    begin_step();
  } else if (round == Round::gradients) {
    prepare();
  } else if (round == Round::votes) {
    decide();
  } else {
    done_ = true;
    if (connection_) to_coordinator(Ended{connection_->connection_id, state_->step});
  }
}

void SimWorker::begin_step() {
  if (state_->step >= world_.scenario().last_step) return enter(Round::last_barrier);
  State at = *state_;
  ++at.step;
  world_.write(line(HistoryLine::Event::start, step_commit_.epoch(), at));
  after(world_.rng().uniform(0.05, 0.15), [this, epoch = step_commit_.epoch()] {
    if (epoch == step_commit_.epoch() && step_commit_.phase() == StepCommit::Phase::open) enter(Round::gradients);
  });
}

void SimWorker::prepare() {
  if (!step_commit_.prepare()) return;
  next_ = trained();
  const auto rebalanced = share();
  const data::EpochPlan plan = data::plan(rebalanced.share, rebalanced.progress.epoch);
  const auto mine = plan.mine(0);
  next_line_ = line(HistoryLine::Event::commit, step_commit_.epoch(), *next_);
  next_line_->data_epoch = rebalanced.progress.epoch;
  next_line_->first = rebalanced.progress.taken;
  next_line_->total = plan.total(0);
  next_line_->of = kSamples;
  next_line_->samples.assign(mine.begin(), mine.end());
  enter(Round::votes, change_wanted_);
}

void SimWorker::decide() {
  if (!step_commit_.decide()) return;
  apply();
  if (rank_.value == 0 && state_->step % 5 == 0) {
    after(world_.rng().uniform(0, 0.3), [this, state = *state_, epoch = step_commit_.epoch()] {
      if (!step_commit_.may_write(epoch) || epoch.value < world_.store.fence) return;
      world_.store.newest = state;
    });
  }
  if (change_agreed_) return report();
  begin_step();
}

void SimWorker::apply() {
  state_ = *next_;
  next_.reset();
  world_.write(*next_line_);
}

void SimWorker::collective_failed() {
  const auto& arrived = arrived_[*waiting_];
  world_.log(fmt::format("w{}: a collective of epoch {} failed", number_, step_commit_.epoch().value));
  for (const Member& m : roster_.members)
    if (!arrived.contains(m.rank.value) && connection_)
      to_coordinator(PeerUnreachable{connection_->connection_id, step_commit_.epoch(), m.rank});
  report();
}

void SimWorker::peer_died(Epoch epoch, int rank) {
  if (epoch != step_commit_.epoch() || !waiting_ || done_ || step_commit_.phase() == StepCommit::Phase::sealed) return;
  if (arrived_[*waiting_].contains(rank)) return after(0.05, [=, this] { peer_died(epoch, rank); });
  if (connection_) to_coordinator(PeerUnreachable{connection_->connection_id, epoch, Rank{rank}});
  report();
}

}  // namespace cohort::membership
