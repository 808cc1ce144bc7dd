#include "cohort/cli/run_meeting.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include <cstdlib>
#include <filesystem>

#include "cohort/base/error.h"
#include "cohort/base/file.h"

namespace cohort::cli {

namespace {

MeetingPlan completed(MeetingPlan plan) {
  if (plan.secret.empty()) plan.secret = net::Secret::random();
  plan.secret.use_tls(plan.tls);
  if (plan.job.empty()) plan.job = random_job_name();
  return plan;
}

}  // namespace

Meeting::Meeting(MeetingPlan plan)
    : plan_(completed(std::move(plan))),
      held_secret_(plan_.secret),
      master_port_("127.0.0.1", plan_.master_port),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw_system("eventfd");
  if (plan_.elsewhere.empty()) listener_ = net::listen_on(plan_.listen, plan_.secret);
  address_ = plan_.elsewhere.empty() ? listener_.address.text() : plan_.elsewhere;
  port_ = listener_.address.port;
}

void Meeting::open() {
  if (!plan_.elsewhere.empty()) return;
  if (plan_.elastic) return open_elastic();
  group::CoordinatorOptions how{.job = plan_.job, .size = plan_.ranks, .secret = plan_.secret, .start_timeout = plan_.start_timeout};
  how.say = [this](const std::string& text) {
    {
      const std::lock_guard lock(mutex_);
      lines_.push_back(text);
    }
    eventfd_write(wake_.get(), 1);
  };
  coordinator_ = std::make_unique<group::Coordinator>(std::move(how), std::move(listener_));
}

// The log has no name once it is open: it is of use to this launcher alone, and goes with it.
void Meeting::open_elastic() {
  group::ElasticCoordinatorOptions how{.rules = *plan_.elastic, .secret = plan_.secret, .log = {}, .say = {}, .respawn = {}};
  how.rules.job = plan_.job;
  if (plan_.supervised) {
    process_ = std::make_unique<CoordinatorProcess>(how.rules, plan_.secret, std::move(listener_));
    return process_->start({});
  }
  const auto later = [this](auto what) {
    {
      const std::lock_guard lock(mutex_);
      what();
    }
    eventfd_write(wake_.get(), 1);
  };
  how.say = [this, later](const std::string& text) { later([&] { lines_.push_back(text); }); };
  how.respawn = [this, later](int count) { later([&] { wanted_ += count; }); };
  how.goodbye = [this, later](const group::Process& process) { later([&] { let_go_.insert(process); }); };
  how.rejoined = [this, later](const group::Process&) { later([&] { ++rejoined_; }); };
  std::string folder = (std::filesystem::temp_directory_path() / "cohort.XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) throw_system(fmt::format("make the folder {}", folder));
  how.log = folder + "/decisions";
  elastic_ = std::make_unique<group::ElasticCoordinator>(std::move(how), std::move(listener_));
  remove_tree(folder);
}

void Meeting::process_ended(const group::Process& process, const std::string& how) {
  if (elastic_) elastic_->process_ended(process, how);
  if (process_) process_->process_ended(process, how);
}

void Meeting::process_vanished(const group::Process& process, const std::string& how) {
  if (elastic_) elastic_->process_vanished(process, how);
  if (process_) process_->process_vanished(process, how);
}

void Meeting::spawn_failed(const std::string& why) {
  if (elastic_) elastic_->spawn_failed(why);
  if (process_) process_->spawn_failed(why);
}

void Meeting::child_ended(pid_t pid, int status) {
  if (process_) process_->child_ended(pid, status);
}

void Meeting::close() {
  if (process_) process_->close();
}

void Meeting::hear() {
  if (!process_) return;
  auto news = process_->take();
  const std::lock_guard lock(mutex_);
  lines_.insert(lines_.end(), news.lines.begin(), news.lines.end());
  wanted_ += news.wanted;
  rejoined_ += news.rejoined;
  let_go_.insert(news.let_go.begin(), news.let_go.end());
}

int Meeting::take_wanted() {
  hear();
  const std::lock_guard lock(mutex_);
  return std::exchange(wanted_, 0);
}

int Meeting::take_rejoined() {
  const std::lock_guard lock(mutex_);
  return std::exchange(rejoined_, 0);
}

bool Meeting::formed() {
  hear();
  return process_ ? process_->formed() : elastic_ && elastic_->formed();
}

bool Meeting::let_go(const group::Process& process) {
  hear();
  const std::lock_guard lock(mutex_);
  return let_go_.contains(process);
}

std::optional<group::ElasticCoordinator::Ending> Meeting::ending() const {
  if (process_) return process_->ending();
  return elastic_ ? elastic_->ending() : std::nullopt;
}

void Meeting::rank_ended(int rank, const std::string& how) {
  if (coordinator_) coordinator_->rank_ended(Rank{rank}, how);
}

std::vector<std::string> Meeting::take_lines() {
  eventfd_t ignored = 0;
  eventfd_read(wake_.get(), &ignored);
  hear();
  const std::lock_guard lock(mutex_);
  return std::exchange(lines_, {});
}

std::string random_job_name() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) throw_system("getrandom");
  return fmt::format("run-{:012x}", number & 0xffffffffffff);
}

}  // namespace cohort::cli
