#include "cohort/launch/discovery.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/launch/failure_report.h"
#include "cohort/launch/rank_environment.h"

namespace cohort::launch {
namespace {

constexpr Seconds kPollInterval{0.02};
constexpr std::size_t kMostText = 1 << 20;

void read_all(Fd& from, std::string& into) {
  std::array<char, 4096> buffer;
  while (from) {
    const ssize_t n = read(from.get(), buffer.data(), buffer.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return from.reset();
    if (into.size() < kMostText) into.append(buffer.data(), static_cast<std::size_t>(n));
  }
}

}  // namespace

Discovery::Discovery(DiscoveryPlan plan)
    : plan_(std::move(plan)), program_{"/bin/sh", {"sh", "-c", plan_.command}}, known_(plan_.known), due_(Deadline::in(plan_.every)) {}

void Discovery::add_polls(std::vector<pollfd>& fds) const {
  for (const Fd* fd : {&script_.out, &script_.err})
    if (*fd) fds.push_back({fd->get(), POLLIN, 0});
}

Deadline Discovery::next_look() const { return running_ ? answer_by_ : due_; }

void Discovery::move() {
  if (!running_ && due_.passed()) ask();
  if (!running_) return;
  read_answer();
  if (answer_by_.passed()) {
    kill(-script_.pid, SIGKILL);
    running_ = false;
    script_ = {};
    fail(fmt::format("no answer within {}", format_seconds(plan_.answer_limit)));
  } else if (status_ && !script_.out) {
    finish();
  }
}

void Discovery::ask() {
  due_ = Deadline::in(plan_.every);
  try {
    script_ = start_child({.program = &program_,
                           .environment = environ_strings(plan_.environment),
                           .cpus = {},
                           .input = -1,
                           .signal_mask = plan_.signal_mask});
  } catch (const std::exception& problem) {
    return fail(problem.what());
  }
  running_ = true;
  answer_.clear();
  error_output_.clear();
  status_.reset();
  answer_by_ = Deadline::in(plan_.answer_limit);
}

void Discovery::read_answer() {
  read_all(script_.out, answer_);
  read_all(script_.err, error_output_);
}

void Discovery::ended(pid_t pid, int status) {
  if (running_ && pid == script_.pid) status_ = status;
}

void Discovery::finish() {
  read_answer();
  running_ = false;
  script_ = {};
  const std::string said = error_output_.empty() ? "" : fmt::format(" ({})", printable(trim(error_output_)).substr(0, 200));
  if (*status_ != 0) return fail(describe_status(*status_) + said);
  try {
    group::Hosts hosts = group::parse_discovery(answer_, plan_.command, plan_.slots_per_host);
    if (std::exchange(failing_, false))
      messages_.push_back(fmt::format("--host-discovery-script '{}' answers again", printable(plan_.command)));
    if (hosts == known_) return;
    known_ = std::move(hosts);
    fresh_ = true;
  } catch (const Failure& failure) {
    fail(failure.what());
  }
}

group::Hosts Discovery::ask_once(DiscoveryPlan plan) {
  Discovery script(std::move(plan));
  script.ask();
  std::vector<pollfd> fds;
  while (script.running_) {
    fds.clear();
    script.add_polls(fds);
    const Deadline soon = script.next_look().sooner(Deadline::in(kPollInterval));  // for its end, which no descriptor tells of
    poll(fds.data(), fds.size(), soon.left_ms());
    int status = 0;
    if (!script.status_ && waitpid(script.script_.pid, &status, WNOHANG) > 0) script.status_ = status;
    const pid_t pid = script.script_.pid;
    script.move();
    if (!script.running_ && !script.status_) waitpid(pid, &status, 0);  // killed
  }
  if (script.failing_) throw_failure(Kind::usage, "--host-discovery-script '{}' failed: {}", printable(script.plan_.command), script.why_);
  fmt::print(stderr, "{}", script.error_output_);
  return script.known_;
}

void Discovery::fail(const std::string& why) {
  why_ = why;
  if (std::exchange(failing_, true)) return;
  messages_.push_back(fmt::format("--host-discovery-script '{}' failed: {}; the hosts stay as they were", printable(plan_.command), why));
}

std::optional<group::Hosts> Discovery::take_hosts() { return std::exchange(fresh_, false) ? std::optional(known_) : std::nullopt; }

std::vector<std::string> Discovery::take_messages() { return std::exchange(messages_, {}); }

}  // namespace cohort::launch
