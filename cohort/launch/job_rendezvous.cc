#include "cohort/launch/job_rendezvous.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include <cstdint>
#include <utility>

#include "cohort/base/error.h"

namespace cohort::launch {

namespace {

JobRendezvousOptions completed(JobRendezvousOptions options) {
  if (options.secret.empty()) options.secret = net::Secret::random();
  options.secret.use_tls(options.tls);
  if (options.job.empty()) options.job = random_job_name();
  return options;
}

}  // namespace

JobRendezvous::JobRendezvous(JobRendezvousOptions options)
    : options_(completed(std::move(options))),
      launch_(random_number()),
      secret_file_(options_.secret),
      master_port_("127.0.0.1", options_.master_port),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw_system("eventfd");
  if (options_.external_coordinator.empty()) listener_ = net::listen_on(options_.listen, options_.secret);
  address_ = options_.external_coordinator.empty() ? listener_.address.text() : options_.external_coordinator;
  port_ = listener_.address.port;
}

void JobRendezvous::open() {
  if (!options_.external_coordinator.empty()) return;
  if (options_.elastic) return open_elastic();
  group::RendezvousOptions how{
      .job = options_.job, .size = options_.ranks, .secret = options_.secret, .start_timeout = options_.start_timeout};
  how.say = [this](const std::string& text) {
    {
      const std::lock_guard lock(mutex_);
      lines_.push_back(text);
    }
    eventfd_write(wake_.get(), 1);
  };
  coordinator_ = std::make_unique<group::RendezvousServer>(std::move(how), std::move(listener_));
}

// The log is of use to this launcher alone, and goes with it.
void JobRendezvous::open_elastic() {
  elastic::ElasticCoordinatorOptions how{.rules = *options_.elastic, .secret = options_.secret, .log = {}, .say = {}, .respawn = {}};
  how.rules.job = options_.job;
  if (options_.supervised) {
    process_ = std::make_unique<CoordinatorProcess>(how.rules, options_.secret, std::move(listener_));
    return process_->start({});
  }
  const auto queue = [this](auto what) {
    {
      const std::lock_guard lock(mutex_);
      what();
    }
    eventfd_write(wake_.get(), 1);
  };
  how.say = [this, queue](const std::string& text) { queue([&] { lines_.push_back(text); }); };
  how.respawn = [this, queue](int count) { queue([&] { wanted_ += count; }); };
  how.released = [this, queue](const elastic::Process& process) { queue([&] { released_.insert(process); }); };
  how.begun = [this, queue](const elastic::Process& process, Epoch epoch, Rank rank) {
    queue([&] { begun_.push_back({process, epoch, rank}); });
  };
  how.first_commit = [this, queue] { queue([&] { committed_ = true; }); };
  how.rejoined = [this, queue](const elastic::Process&) { queue([&] { ++rejoined_; }); };
  const Fd log = memory_file("cohort-decisions");  // the coordinator opens it anew
  how.log_file = log.get();
  elastic_ = std::make_unique<elastic::ElasticCoordinator>(std::move(how), std::move(listener_));
}

void JobRendezvous::process_ended(const elastic::Process& process, const std::string& how) {
  if (elastic_) elastic_->process_ended(process, how);
  if (process_) process_->process_ended(process, how);
}

void JobRendezvous::process_vanished(const elastic::Process& process, const std::string& how) {
  if (elastic_) elastic_->process_vanished(process, how);
  if (process_) process_->process_vanished(process, how);
}

void JobRendezvous::spawn_failed(const std::string& why) {
  if (elastic_) elastic_->spawn_failed(why);
  if (process_) process_->spawn_failed(why);
}

void JobRendezvous::child_ended(pid_t pid, int status) {
  if (process_) process_->child_ended(pid, status);
}

void JobRendezvous::close() {
  if (process_) process_->close();
}

void JobRendezvous::receive() {
  if (!process_) return;
  auto events = process_->take();
  const std::lock_guard lock(mutex_);
  lines_.insert(lines_.end(), events.lines.begin(), events.lines.end());
  wanted_ += events.wanted;
  rejoined_ += events.rejoined;
  released_.insert(events.released.begin(), events.released.end());
  begun_.insert(begun_.end(), events.begun.begin(), events.begun.end());
  committed_ = process_->committed();
}

int JobRendezvous::take_wanted() {
  receive();
  const std::lock_guard lock(mutex_);
  return std::exchange(wanted_, 0);
}

int JobRendezvous::take_rejoined() {
  const std::lock_guard lock(mutex_);
  return std::exchange(rejoined_, 0);
}

bool JobRendezvous::formed() {
  receive();
  return process_ ? process_->formed() : elastic_ && elastic_->formed();
}

bool JobRendezvous::committed() {
  receive();
  const std::lock_guard lock(mutex_);
  return committed_;
}

std::vector<Begun> JobRendezvous::take_begun() {
  receive();
  const std::lock_guard lock(mutex_);
  return std::exchange(begun_, {});
}

bool JobRendezvous::released(const elastic::Process& process) {
  receive();
  const std::lock_guard lock(mutex_);
  return released_.contains(process);
}

std::optional<elastic::ElasticCoordinator::Ending> JobRendezvous::ending() const {
  if (process_) return process_->ending();
  return elastic_ ? elastic_->ending() : std::nullopt;
}

void JobRendezvous::rank_ended(int rank, const std::string& how) {
  if (coordinator_) coordinator_->rank_ended(Rank{rank}, how);
}

std::vector<std::string> JobRendezvous::take_lines() {
  eventfd_t ignored = 0;
  eventfd_read(wake_.get(), &ignored);
  receive();
  const std::lock_guard lock(mutex_);
  return std::exchange(lines_, {});
}

std::string random_number() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) throw_system("getrandom");
  return fmt::format("{:012x}", number & 0xffffffffffff);
}

std::string random_job_name() { return "run-" + random_number(); }

}  // namespace cohort::launch
