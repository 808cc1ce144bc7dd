#include "cohort/launch/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "cohort/base/error.h"

namespace cohort::launch {
namespace {

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

void Output::open_files(int first, int ranks) {
  first_ = first;
  rank_outputs_.resize(static_cast<std::size_t>(ranks));
  if (options_.output.empty()) return;
  for (int r = first; r < first + ranks; ++r) open_files_of(r, rank_output(r));
}

void Output::open_more() {
  rank_outputs_.emplace_back();
  if (options_.output.empty()) return;
  const int rank = first_ + static_cast<int>(rank_outputs_.size()) - 1;
  try {
    open_files_of(rank, rank_outputs_.back());
    cannot_open_ = false;
  } catch (const Failure& failure) {  // a full disk, a folder that is gone: the job is worth more than its log
    if (std::exchange(cannot_open_, true)) return;
    screen_.say(fmt::format("cohort run: {}; what worker {} writes is on the screen only, and those that come later are tried again",
                            failure.what(), rank));
  }
}

void Output::open_files_of(int rank, RankOutput& rank_output) const {
  const std::string folder = fmt::format("{}/rank.{}", options_.output, rank);
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem) throw_failure(Kind::system, "--output: cannot make '{}': {}", folder, problem.message());
  for (int stream = 1; stream <= 2; ++stream) {
    if (options_.sink_of(rank, stream) == Sink::screen) continue;
    const std::string path = fmt::format("{}/{}", folder, stream == 1 ? "stdout" : "stderr");
    auto& file = rank_output.files[static_cast<std::size_t>(stream - 1)];
    file.reset(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file) throw_system(fmt::format("--output: cannot write '{}'", path));
  }
}

void Output::write(int rank, int stream, std::string_view bytes, Clock::time_point now) {
  RankOutput& d = rank_output(rank);
  if (stream == 2) d.last_lines.add(bytes);
  const bool shown = options_.shown.empty() || options_.shown.contains(rank);
  Fd& file = d.files[static_cast<std::size_t>(stream - 1)];
  if (shown && (!file || options_.sink_of(rank, stream) != Sink::file)) screen_.write(rank, stream, bytes, now);
  if (!file || write_all(file.get(), bytes)) return;
  screen_.say(fmt::format("cohort run: rank {}: its {} can no longer be written to a file: {}", rank, stream == 1 ? "stdout" : "stderr",
                          std::strerror(errno)));
  file.reset();
}

std::vector<std::string> Output::last_lines(int rank) const {
  return rank_outputs_.at(static_cast<std::size_t>(rank - first_)).last_lines.lines();
}

}  // namespace cohort::launch
