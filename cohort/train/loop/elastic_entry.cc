// An epoch of an elastic job begins: the step that was under way is ended or dropped, a Learner is made on the new communicator, the state
// comes to all of them, and the books are opened.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/train/loop/elastic_session.h"
#include "cohort/train/loop/replicas.h"
#include "cohort/train/loop/same_settings.h"
#include "cohort/train/loop/together.h"
#include "cohort/train/loop/trainer.h"

namespace cohort {

using group::HistoryLine;
using group::Seat;
using group::Settle;

// 1 The session of the epoch before is still there, and with it the step that was under way.
void ElasticTrainer::settle(const Seat::Begun& epoch) {
  const bool has = epoch.settle != Settle::heal && epoch.settle != Settle::disk;
  if (has) end_step_alone(epoch.settle == Settle::finish);
  if (session_ && session_->keeper) session_->keeper->call_off(missing_in(epoch.roster));
  session_.reset();
  if (!sharded_)  // a new engine would take over what is there
    for (const auto& [name, p] : materials_.model.named_parameters()) p.mutable_grad().reset();
  if (!has) return void(carried_ = {});
  if (carried_.step != *epoch.base)
    throw_failure(Kind::bug, "epoch {} goes on from step {}, and this worker stands at step {}", epoch.roster.epoch.value, *epoch.base,
                  carried_.step);
  if (!sharded_) job_->seat().have_state(carried_.step);  // else when it is laid out anew: until then there are only parts of it
}

// Ranks of the epoch before that are not in the next one. Who left as planned has ended its part of a save before.
std::vector<Rank> ElasticTrainer::missing_in(const group::Roster& next) const {
  std::vector<Rank> missing;
  for (const auto& m : session_->roster.members)
    if (std::ranges::none_of(next.members, [&](const auto& n) { return n.address == m.address && n.pid == m.pid; }))
      missing.push_back(m.rank);
  return missing;
}

// A step that is decided counts; one that is only prepared as far as somebody says so.
void ElasticTrainer::end_step_alone(bool prepared_counts) {
  if (!session_ || !session_->ready) return;
  Learner& learner = *session_->learner;
  const bool decided = learner.under_way() && learner.decided() > learner.step();
  if (decided || (learner.under_way() && prepared_ && prepared_counts)) {
    learner.end_alone(learner.engine().decision());
    buffers_.clear();
    commit_line(!sharded_);
  }
  put_buffers_back();
  carried_ = carry();
}

// 2 and 3
void ElasticTrainer::enter(const Seat::Begun& epoch) {
  where_.doing("meeting the other ranks");
  set_log_rank(epoch.rank);
  session_ = std::make_unique<Session>();
  session_->roster = epoch.roster;
  fence_ = {epoch.roster.job, epoch.roster.epoch.value};
  session_->own = job_->connect(epoch);
  session_->comm = watched(*session_->own, where_);
  auto& comm = *session_->comm;
  refuse_other_settings();
  where_.doing("taking over the state");
  if (!sharded_ && epoch.base) compare_survivors(epoch);
  if (sharded_ && std::exchange(entered_, true)) renew_model();
  if (!sharded_ && !epoch.base && std::exchange(trained_, false)) materials_ = gather_materials(config_);  // of a history that was given up
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const auto& members = epoch.roster.members;
  const auto& here = members[static_cast<std::size_t>(epoch.rank.value)].host;
  const auto ranks_here = static_cast<int>(std::ranges::count(members, here, &group::Member::host));
  session_->learner = std::make_unique<Learner>(comm, config_, cores, ranks_here, where_, materials_);
  const bool first = epoch.roster.epoch.value == 1;
  session_->keeper = std::make_unique<Keeper>(comm, *session_->learner, first ? config_ : resuming(), config_text_, fence_);
  std::optional<std::int64_t> resumed;
  if (epoch.base)
    heal(epoch);
  else
    resumed = session_->keeper->restore();
  if (!epoch.base) carried_.evaluated = session_->learner->position().epoch;
  const bool fresh = !epoch.base || epoch.heal_from;
  if (fresh) write_down(epoch.heal_from ? HistoryLine::Event::heal : HistoryLine::Event::restart, session_->learner->step());
  if (sharded_) {  // until all have their new pieces somebody may need the old ones
    Shards old = std::move(carried_.shards);
    carried_ = carry();
    carried_.shards.insert(carried_.shards.end(), std::make_move_iterator(old.begin()), std::make_move_iterator(old.end()));
  }
  if (fresh || sharded_) job_->seat().have_state(session_->learner->step());
  session_->ready = !sharded_;
  session_->learner->engine().on_agreed([this] {
    plan_line();
    prepared_ = true;
    change_ = job_->commit(*session_->comm);
  });
  open_books(epoch, resumed);
  comm.barrier({.name = "the beginning of the epoch"});
  job_->seat().entered(session_->learner->step());  // from here on the old pieces are of no use
  session_->ready = true;
  carried_.shards.clear();
  on_disk_ = false;
}

// A newcomer read the file of settings later than rank 0 did. It goes; the others notice that as any loss.
void ElasticTrainer::refuse_other_settings() {
  const int me = session_->comm->rank().value;
  const auto texts = gather_texts(*session_->comm, shared_yaml(config_), "settings");
  const auto differs = difference_of_settings(texts[0], texts[static_cast<std::size_t>(me)], me);
  if (!differs.empty()) throw_failure(Kind::usage, "the settings differ: {}; this worker cannot take part", differs);
}

// From here on all have the state of rank 0: those who have one are to have the same, or nobody can say which was right.
void ElasticTrainer::compare_survivors(const Seat::Begun& epoch) {
  if (config_.check_replicas == 0) return;
  auto& comm = *session_->comm;
  std::int32_t has = epoch.heal_from ? 0 : 1;
  comm.all_reduce(collective::piece(std::span(&has, 1)), collective::Op::sum, {.name = "how many have the state"});
  if (const auto text = compare_replicas(comm, materials_.model.named_parameters(), *epoch.base, has)) {
    diverged_ = true;
    throw_failure(Kind::corrupt, "{}", *text);
  }
}

// Rank 0 has the state; all others take it from there, also those who have it: the same bits.
void ElasticTrainer::heal(const Seat::Begun& epoch) {
  auto& comm = *session_->comm;
  Learner& learner = *session_->learner;
  if (sharded_) {
    origin_ = lay_out(comm, carried_.shards, learner);
  } else {
    if (!epoch.heal_from) adopt(carried_);
    learner.engine().adopted();
  }
  std::int64_t where[] = {carried_.step, carried_.progress.epoch, carried_.progress.taken, carried_.evaluated};
  comm.broadcast(collective::piece(std::span<std::int64_t>(where)), Rank{0}, {.name = "where to go on"});
  optim::ScaleState scale = carried_.scale;
  comm.broadcast({&scale, sizeof scale / 8, collective::Dtype::i64, collective::Device::cpu}, Rank{0}, {.name = "loss scale"});
  learner.scale().restore(scale, learner.scale().spec());
  const auto onward = data::go_on(learner.share(), {where[1], where[2]}, comm.rank().value, comm.size());
  learner.start_at(onward.progress.epoch, onward.progress.taken, where[0]);
  carried_.evaluated = where[3];
}

std::string ElasticTrainer::go_on_text(const Seat::Begun& epoch, bool resumed) const {
  if (!epoch.base)
    return fmt::format("go on from the {}: nobody has {}the state", resumed ? "newest checkpoint" : "beginning", sharded_ ? "all of " : "");
  const auto step = session_->learner->step();
  if (!sharded_) return fmt::format("go on after update {} with the state of rank 0 (process {})", step, epoch.roster.members.front().pid);
  const auto all = origin_.own + origin_.handed + origin_.kept;
  const auto part = [&](std::int64_t elements) {
    return 100.0 * static_cast<double>(elements) / static_cast<double>(std::max<std::int64_t>(1, all));
  };
  std::string text = fmt::format("go on after update {} with shards laid out anew", step);
  if (origin_.handed > 0) text += fmt::format(", {:.0f} % of them handed over by those who left", part(origin_.handed));
  if (origin_.kept > 0) text += fmt::format(", {:.0f} % of them from buddy copies of lost ranks", part(origin_.kept));
  return text;
}

void ElasticTrainer::open_books(const Seat::Begun& epoch, std::optional<std::int64_t> resumed) {
  auto& comm = *session_->comm;
  Learner& learner = *session_->learner;
  const auto folder = run_folder(config_);
  if (comm.rank().value == 0) {
    std::filesystem::create_directories(folder);
    write_file_atomically(folder + "/config.yaml", config_text_);
  }
  session_->chronicle = std::make_unique<Chronicle>(comm, config_, config_text_, learner);
  auto& chronicle = *session_->chronicle;
  if (epoch.roster.epoch.value == 1)
    chronicle.say(fmt::format("{}: {} parameters ({}), {} ranks x {} samples, {} updates; workers may come and go", config_.model,
                              learner.model().parameter_count(), learner.groups(), comm.size(),
                              config_.data.batch * config_.data.accumulate, learner.total_steps()));
  if (epoch.roster.epoch.value == 1 && config_.check_replicas > 0 && comm.size() > 1 && !learner.has_replicas())
    chronicle.say(kNothingToCompare);
  if (epoch.roster.epoch.value > 1)
    chronicle.note(fmt::format("epoch {} of the job: {} ranks x {} samples {}", epoch.roster.epoch.value, comm.size(),
                               config_.data.batch * config_.data.accumulate, go_on_text(epoch, resumed.has_value())),
                   {{"step", learner.step()},
                    {"job_epoch", epoch.roster.epoch.value},
                    {"ranks", comm.size()},
                    {"state_from", !epoch.base        ? (resumed ? "checkpoint" : "beginning")
                                   : origin_.kept > 0 ? "buddies"
                                                      : "peers"}});
  if (resumed) chronicle.say(fmt::format("goes on after update {} from its checkpoint", *resumed));
}

}  // namespace cohort
