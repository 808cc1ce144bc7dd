#include "cohort/train/loop/elastic_trainer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/net/frame.h"
#include "cohort/net/loopback.h"
#include "cohort/train/loop/same_settings.h"
#include "cohort/train/loop/together.h"
#include "cohort/train/loop/trainer.h"

namespace cohort {

using group::HistoryLine;
using group::Seat;
using group::Settle;

struct ElasticTrainer::Session {
  std::unique_ptr<collective::Communicator> own, comm;  // comm: the same, watched
  group::Roster roster;
  std::unique_ptr<Learner> learner;
  bool ready = false;  // the learner has the state
  std::unique_ptr<Keeper> keeper;
  std::unique_ptr<Chronicle> chronicle;
};

ElasticTrainer::ElasticTrainer(group::SeatOptions seat, TrainConfig config, ElasticSettings settings, Whereabouts& where)
    : config_(std::move(config)), config_text_(bare_yaml(config_)), settings_(std::move(settings)), where_(where), materials_([&] {
        check(config_);
        check_elastic(config_);
        where.doing("opening model and data");
        if (config_.threads == 0) config_.threads = settings_.threads;
        if (config_.threads > 0) at::set_num_threads(config_.threads);
        return gather_materials(config_);
      }()) {
  if (!settings_.history.empty()) history_.open(fmt::format("{}/{}.jsonl", settings_.history, getpid()), std::ios::app);
  where_.doing("waiting for the job to begin");
  job_ = std::make_unique<ElasticJob>(std::move(seat), settings_.job);
}

ElasticTrainer::~ElasticTrainer() { job_->seat().guard({}); }  // it may hold on to the communicator of a session that ends in a failure

std::optional<RunSummary> ElasticTrainer::run() {
  while (true) {
    const Seat::Next next = job_->seat().next();
    if (const auto* released = std::get_if<Seat::Released>(&next)) {
      if (released->save) save_alone();
      return std::nullopt;
    }
    if (const auto* over = std::get_if<Seat::Over>(&next)) {
      if (over->error) throw Failure{*over->error};
      return summary_;
    }
    train_in(std::get<Seat::Begun>(next));
  }
}

void ElasticTrainer::train_in(const Seat::Begun& epoch) {
  try {
    settle(epoch);
    enter(epoch);
    if (train() == Outcome::finished) return;
    where_.doing("waiting for the next roster");
    job_->seat().left(nullptr);
  } catch (const Failure& failure) {
    if (!ends_epoch(failure.error())) throw;
    log_debug("epoch {} ended: {}", epoch.roster.epoch.value, failure.what());
    where_.doing("waiting for the next roster");
    job_->seat().guard({});
    if (session_ && session_->own) session_->own->abort(failure.error());
    job_->seat().left(&failure.error());
  }
}

// 1 The session of the epoch before is still there, and with it the step that was under way.
void ElasticTrainer::settle(const Seat::Begun& epoch) {
  const bool has = epoch.settle != Settle::heal && epoch.settle != Settle::disk;
  if (has) end_step_alone(epoch.settle == Settle::finish);
  session_.reset();
  for (const auto& [name, p] : materials_.model.named_parameters()) p.mutable_grad().reset();  // a new engine would take over what is there
  if (!has) return;
  if (carried_.step != *epoch.base)
    throw_failure(Kind::bug, "epoch {} goes on from step {}, and this worker stands at step {}", epoch.roster.epoch.value, *epoch.base,
                  carried_.step);
  job_->seat().have_state(carried_.step);
}

// A step that is decided counts; one that is only prepared as far as somebody says so.
void ElasticTrainer::end_step_alone(bool prepared_counts) {
  if (!session_ || !session_->ready) return;
  Learner& learner = *session_->learner;
  const bool decided = learner.under_way() && learner.decided() > learner.step();
  if (decided || (learner.under_way() && prepared_ && prepared_counts)) {
    learner.end_alone(learner.engine().decision());
    buffers_.clear();
    commit_line();
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
  session_->own = job_->connect(epoch);
  session_->comm = watched(*session_->own, where_);
  auto& comm = *session_->comm;
  refuse_other_settings();
  where_.doing("taking over the state");
  if (!epoch.base && std::exchange(trained_, false)) materials_ = gather_materials(config_);  // of a history that was given up
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  session_->learner = std::make_unique<Learner>(comm, config_, cores, comm.size(), where_, materials_);
  const bool first = epoch.roster.epoch.value == 1;
  session_->keeper = std::make_unique<Keeper>(comm, *session_->learner, first ? config_ : resuming(), config_text_);
  std::optional<std::int64_t> resumed;
  if (epoch.base)
    heal(epoch);
  else
    resumed = session_->keeper->restore();
  if (!epoch.base) carried_.evaluated = session_->learner->position().epoch;
  if (!epoch.base || epoch.heal_from) {
    write_down(epoch.heal_from ? HistoryLine::Event::heal : HistoryLine::Event::restart, session_->learner->step());
    job_->seat().have_state(session_->learner->step());
  }
  session_->ready = true;
  session_->learner->engine().on_agreed([this] {
    plan_line();
    prepared_ = true;
    change_ = job_->commit(*session_->comm);
  });
  open_books(epoch, resumed);
  comm.barrier({.name = "the beginning of the epoch"});
  job_->seat().entered(session_->learner->step());
}

// A newcomer read the file of settings later than rank 0 did. It goes; the others notice that as any loss.
void ElasticTrainer::refuse_other_settings() {
  const int me = session_->comm->rank().value;
  const auto texts = gather_texts(*session_->comm, shared_yaml(config_), "settings");
  const auto differs = difference_of_settings(texts[0], texts[static_cast<std::size_t>(me)], me);
  if (!differs.empty()) throw_failure(Kind::usage, "the settings differ: {}; this worker cannot take part", differs);
}

// Rank 0 has the state; all others take it from there, also those who have it: the same bits.
void ElasticTrainer::heal(const Seat::Begun& epoch) {
  auto& comm = *session_->comm;
  Learner& learner = *session_->learner;
  if (!epoch.heal_from) adopt(carried_);
  learner.engine().adopted();
  std::int64_t where[] = {carried_.step, carried_.progress.epoch, carried_.progress.taken, carried_.evaluated};
  comm.broadcast(collective::piece(std::span<std::int64_t>(where)), Rank{0}, {.name = "where to go on"});
  optim::ScaleState scale = carried_.scale;
  comm.broadcast({&scale, sizeof scale / 8, collective::Dtype::i64, collective::Device::cpu}, Rank{0}, {.name = "loss scale"});
  learner.scale().restore(scale, learner.scale().spec());
  const auto onward = data::go_on(learner.share(), {where[1], where[2]}, comm.rank().value, comm.size());
  learner.start_at(onward.progress.epoch, onward.progress.taken, where[0]);
  carried_.evaluated = where[3];
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
  const auto& giver = epoch.roster.members.front();
  if (epoch.roster.epoch.value == 1)
    chronicle.say(fmt::format("{}: {} parameters ({}), {} ranks x {} samples, {} updates; workers may come and go", config_.model,
                              learner.model().parameter_count(), learner.groups(), comm.size(),
                              config_.data.batch * config_.data.accumulate, learner.total_steps()));
  else if (epoch.base)
    chronicle.say(fmt::format("epoch {} of the job: {} ranks x {} samples go on after update {} with the state of rank 0 (process {})",
                              epoch.roster.epoch.value, comm.size(), config_.data.batch * config_.data.accumulate, learner.step(),
                              giver.pid));
  else
    chronicle.say(fmt::format("epoch {} of the job: {} ranks x {} samples; nobody had the state", epoch.roster.epoch.value, comm.size(),
                              config_.data.batch * config_.data.accumulate));
  if (resumed) chronicle.say(fmt::format("goes on after update {} from its checkpoint", *resumed));
}

ElasticTrainer::Outcome ElasticTrainer::train() {
  Session& s = *session_;
  Learner& learner = *s.learner;
  std::int64_t shown = -1;
  while (true) {
    if (learner.position().epoch > carried_.evaluated) end_epoch_of_data();
    if (learner.done()) return finish(), Outcome::finished;
    const auto epoch = learner.position().epoch;
    if (shown != epoch)
      s.chronicle->epoch_starts(epoch, std::max<std::int64_t>(config_.epochs, epoch + 1), learner.position().step,
                                learner.steps_of_epoch(epoch));
    shown = epoch;
    if (step()) return Outcome::changes;  // all of the roster stop here
    if (learner.position().epoch == epoch && job_->seat().may_write(s.roster.epoch)) s.keeper->save_if_due(false);
  }
}

// Whether the roster changes now.
bool ElasticTrainer::step() {
  Session& s = *session_;
  Learner& learner = *s.learner;
  write_down(HistoryLine::Event::start, learner.step() + 1);
  keep_buffers();
  trained_ = true;
  change_ = prepared_ = false;
  const auto steps = learner.steps_of_epoch(learner.position().epoch), epoch = learner.position().epoch;
  const StepResult result = learner.train_step();
  buffers_.clear();
  commit_line();
  s.chronicle->step_done(result, learner.step(), learner.position().epoch != epoch ? steps : learner.position().step);
  return change_;
}

void ElasticTrainer::end_epoch_of_data() {
  Session& s = *session_;
  const auto epoch = s.learner->position().epoch;
  s.chronicle->epoch_ends(s.learner->step());
  test_ = s.learner->evaluate();
  s.chronicle->evaluated(test_, s.learner->step(), epoch);
  s.chronicle->show_values(*s.learner, s.learner->step());
  s.keeper->save_if_due(true);
  carried_.evaluated = epoch;
}

// Everything that the run leaves is on disk before anybody says that it is over: whoever is lost until then does not take it along.
void ElasticTrainer::finish() {
  Session& s = *session_;
  std::int64_t known = test_.samples;  // newcomers did not see the last evaluation
  s.comm->all_reduce(collective::piece(std::span(&known, 1)), collective::Op::min, {.name = "is the evaluation known"});
  if (known == 0) test_ = s.learner->evaluate();
  where_.doing("writing the last checkpoint");
  s.keeper->finish();
  s.keeper->save();
  s.keeper->finish();
  summary_ = s.chronicle->finish(test_, *s.learner);
  summary_->saved = s.keeper->saved();
  if (s.comm->rank().value != 0) summary_.reset();
  s.comm->barrier({.name = "the end of training"});
  job_->seat().ended(s.learner->step());
}

// The last one that has the state leaves: a run of one rank that saves and makes no step.
void ElasticTrainer::save_alone() {
  where_.doing("saving what nobody else has");
  end_step_alone(true);
  session_.reset();
  std::shared_ptr<net::Mesh> alone = std::move(net::loopback_meshes(1).front());
  session_ = std::make_unique<Session>();
  session_->comm = collective::open(std::move(alone), {});
  session_->learner = std::make_unique<Learner>(*session_->comm, config_, 1, 1, where_, materials_);
  Learner& learner = *session_->learner;
  adopt(carried_);
  learner.scale().restore(carried_.scale, learner.scale().spec());
  learner.start_at(carried_.progress.epoch, carried_.progress.taken, carried_.step);
  Keeper keeper(*session_->comm, learner, resuming(), config_text_);
  keeper.save();
  keeper.finish();
  fmt::print("saved update {} in {}\n", carried_.step, keeper.folder());
}

ElasticTrainer::Carried ElasticTrainer::carry() const {
  Learner& learner = *session_->learner;
  Carried c{.step = learner.step(),
            .progress = {learner.position().epoch, learner.samples_taken()},
            .evaluated = carried_.evaluated,
            .scale = learner.scale().state(),
            .optimizer = {}};
  learner.engine().each_state([&](const std::string& parameter, const std::string& state, const at::Tensor& values) {
    c.optimizer[parameter + "/" + state] = values.detach().clone();
  });
  return c;
}

void ElasticTrainer::adopt(const Carried& carried) {
  const at::NoGradGuard no_grad;
  session_->learner->engine().each_state([&](const std::string& parameter, const std::string& state, const at::Tensor& values) {
    values.copy_(carried.optimizer.at(parameter + "/" + state));
  });
}

void ElasticTrainer::keep_buffers() {
  buffers_.clear();
  for (const auto& [name, buffer] : materials_.model.named_buffers()) buffers_.push_back(buffer.detach().clone());
}

void ElasticTrainer::put_buffers_back() {
  const at::NoGradGuard no_grad;
  const auto named = materials_.model.named_buffers();
  for (std::size_t i = 0; i < buffers_.size(); ++i) named[i].second.copy_(buffers_[i]);
  buffers_.clear();
}

// A run that began anew has checkpoints of its own from its second epoch on.
TrainConfig ElasticTrainer::resuming() const {
  TrainConfig config = config_;
  config.checkpoint.resume = "auto";
  return config;
}

// --- what it did, for tests that judge it

std::string ElasticTrainer::hash() const {
  std::uint32_t sum = 0;
  for (const auto& [name, p] : materials_.model.named_parameters())
    sum = net::crc32c({static_cast<const std::byte*>(p.const_data_ptr()), p.nbytes()}, sum);
  return fmt::format("{:08x}", sum);
}

void ElasticTrainer::write_down(HistoryLine::Event event, std::int64_t step) {
  if (!history_.is_open()) return;
  const HistoryLine line{.event = event,
                         .epoch = session_->roster.epoch,
                         .step = step,
                         .rank = session_->comm->rank(),
                         .worker = fmt::format("{:x}", job_->seat().id().value),
                         .size = session_->comm->size(),
                         .hash = event == HistoryLine::Event::start ? "" : hash()};
  history_ << encode_line(line) + "\n" << std::flush;
}

// Of the step that is about to be voted for; its parameters come later.
void ElasticTrainer::plan_line() {
  if (!history_.is_open()) return;
  const Learner& learner = *session_->learner;
  data::Share share = learner.share();
  share.first = learner.samples_taken();
  const auto plan = data::plan(share, learner.position().epoch);
  next_line_ = {.event = HistoryLine::Event::commit,
                .epoch = session_->roster.epoch,
                .step = learner.step() + 1,
                .rank = session_->comm->rank(),
                .worker = fmt::format("{:x}", job_->seat().id().value),
                .size = session_->comm->size(),
                .hash = "",
                .data_epoch = learner.position().epoch,
                .first = share.first,
                .total = plan.total(0),
                .of = share.samples,
                .samples = {plan.mine(0).begin(), plan.mine(0).end()}};
}

void ElasticTrainer::commit_line() {
  if (!history_.is_open()) return;
  next_line_.hash = hash();
  history_ << encode_line(next_line_) + "\n" << std::flush;
}

}  // namespace cohort
