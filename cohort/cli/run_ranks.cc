#include "cohort/cli/run_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "cohort/base/error.h"

namespace cohort::cli {
namespace {

constexpr std::size_t kReadBytes = 64 << 10;
constexpr int kReadsInARow = 16;  // then somebody else's output gets its turn

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

void Ranks::start(const std::vector<ChildPlan>& plans) {
  ranks_.resize(plans.size());
  if (!options_.output.empty())
    for (std::size_t r = 0; r < plans.size(); ++r) open_files(static_cast<int>(r), ranks_[r]);
  try {
    for (std::size_t r = 0; r < plans.size(); ++r) ranks_[r].child = start_child(plans[r]);
  } catch (...) {
    std::erase_if(ranks_, [](const RankState& r) { return r.child.pid < 0; });
    signal(SIGKILL);
    throw;
  }
}

void Ranks::open_files(int rank, RankState& state) const {
  const std::string folder = fmt::format("{}/rank.{}", options_.output, rank);
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem) throw_failure(Kind::system, "--output: cannot make '{}': {}", folder, problem.message());
  for (int stream = 1; stream <= 2; ++stream) {
    if (options_.sink_of(rank, stream) == Sink::screen) continue;
    const std::string path = fmt::format("{}/{}", folder, stream == 1 ? "stdout" : "stderr");
    auto& file = state.files[static_cast<std::size_t>(stream - 1)];
    file.reset(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file) throw_system(fmt::format("--output: cannot write '{}'", path));
  }
}

int Ranks::running() const {
  return static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(), [](const RankState& r) { return r.running(); }));
}

std::vector<Ranks::Ended> Ranks::reap() {
  std::vector<Ended> ended;
  int status = 0;
  while (true) {
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) return ended;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].child.pid != pid || ranks_[r].status) continue;
      ranks_[r].status = status;
      ended.push_back({static_cast<int>(r), status});
    }
  }
}

void Ranks::signal(int number) const {
  for (const RankState& r : ranks_)
    if (r.running()) kill(-r.child.pid, number);
}

void Ranks::add_polls(std::vector<pollfd>& fds, bool with_stdout, bool with_stderr) const {
  for (const RankState& r : ranks_) {
    if (with_stdout && r.child.out) fds.push_back({r.child.out.get(), POLLIN, 0});
    if (with_stderr && r.child.err) fds.push_back({r.child.err.get(), POLLIN, 0});
  }
}

void Ranks::read_output(Clock::time_point now, bool with_stdout, bool with_stderr) {
  for (int r = 0; r < size(); ++r) {
    if (with_stdout) read_stream(r, 1, now);
    if (with_stderr) read_stream(r, 2, now);
  }
}

bool Ranks::anything_open() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const RankState& r) { return r.child.out || r.child.err; });
}

void Ranks::read_stream(int rank, int stream, Clock::time_point now) {
  Child& child = ranks_[static_cast<std::size_t>(rank)].child;
  Fd& fd = stream == 1 ? child.out : child.err;
  std::array<char, kReadBytes> buffer;
  for (int i = 0; fd && i < kReadsInARow; ++i) {
    const ssize_t n = read(fd.get(), buffer.data(), buffer.size());
    if (n > 0) {
      deliver(rank, stream, {buffer.data(), static_cast<std::size_t>(n)}, now);
      continue;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    fd.reset();
    screen_.finish(rank, stream);
  }
}

void Ranks::deliver(int rank, int stream, std::string_view bytes, Clock::time_point now) {
  RankState& state = ranks_[static_cast<std::size_t>(rank)];
  if (stream == 2) state.last_words.add(bytes);
  const bool shown = options_.shown.empty() || options_.shown.contains(rank);
  if (shown && options_.sink_of(rank, stream) != Sink::file) screen_.write(rank, stream, bytes, now);
  Fd& file = state.files[static_cast<std::size_t>(stream - 1)];
  if (!file || write_all(file.get(), bytes)) return;
  screen_.say(fmt::format("cohort run: rank {}: its {} can no longer be written to a file: {}", rank, stream == 1 ? "stdout" : "stderr",
                          std::strerror(errno)));
  file.reset();
}

}  // namespace cohort::cli
