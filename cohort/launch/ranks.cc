#include "cohort/launch/ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

namespace cohort::launch {
namespace {

constexpr std::size_t kReadBytes = 64 << 10;
constexpr int kReadsInARow = 16;  // then it is another rank's turn

}  // namespace

int Ranks::running() const {
  return static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(), [](const RankState& r) { return r.running(); }));
}

void LocalRanks::start(int first, const std::vector<ChildPlan>& plans) {
  first_ = first;
  try {
    for (const ChildPlan& plan : plans) {
      children_.push_back(start_child(plan));
      ranks_.push_back({children_.back().pid, std::nullopt, {}});
    }
  } catch (...) {
    signal(SIGKILL);
    throw;
  }
}

int LocalRanks::add(const ChildPlan& plan) {
  children_.push_back(start_child(plan));
  ranks_.push_back({children_.back().pid, std::nullopt, {}});
  return first_ + size() - 1;
}

std::vector<Ranks::Ended> LocalRanks::take_ends() {
  std::vector<Ended> ended;
  int status = 0;
  while (true) {
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) return ended;
    others_.push_back({pid, status});
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].pid != pid || ranks_[r].status) continue;
      others_.pop_back();
      ranks_[r].status = status;
      const bool for_memory = memory_kills_.explains(status);
      ranks_[r].how = describe_end(status, for_memory);
      ended.push_back({first_ + static_cast<int>(r), status, ranks_[r].how, true, for_memory});
    }
  }
}

void LocalRanks::signal(int number) {
  const bool alone = leaders_only_ && (number == SIGTERM || number == SIGUSR1);
  for (const RankState& r : ranks_)
    if (r.running()) kill(alone ? r.pid : -r.pid, number);
}

void LocalRanks::add_polls(std::vector<pollfd>& fds, bool with_stdout, bool with_stderr) const {
  for (const Child& c : children_) {
    if (with_stdout && c.out) fds.push_back({c.out.get(), POLLIN, 0});
    if (with_stderr && c.err) fds.push_back({c.err.get(), POLLIN, 0});
  }
}

void LocalRanks::move(Clock::time_point now, bool with_stdout, bool with_stderr) {
  for (std::size_t r = 0; r < children_.size(); ++r) {
    if (with_stdout) read_stream(r, 1, now);
    if (with_stderr) read_stream(r, 2, now);
  }
}

bool LocalRanks::anything_open() const {
  return std::any_of(children_.begin(), children_.end(), [](const Child& c) { return c.out || c.err; });
}

void LocalRanks::read_stream(std::size_t at, int stream, Clock::time_point now) {
  Fd& fd = stream == 1 ? children_[at].out : children_[at].err;
  const int rank = first_ + static_cast<int>(at);
  std::array<char, kReadBytes> buffer;
  for (int i = 0; fd && i < kReadsInARow; ++i) {
    const ssize_t n = read(fd.get(), buffer.data(), buffer.size());
    if (n > 0) {
      sink_.write(rank, stream, {buffer.data(), static_cast<std::size_t>(n)}, now);
      continue;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    fd.reset();
    sink_.finish(rank, stream);
  }
}

}  // namespace cohort::launch
