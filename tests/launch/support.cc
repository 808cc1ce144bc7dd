#include "support.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/slowdown.h"

namespace cohort::launch {
namespace {

constexpr const char* kMark = "COHORT_TEST_MARK";

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

struct Pipe {
  Fd read, write;
};
Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw_system("pipe");
  return {Fd{ends[0]}, Fd{ends[1]}};
}

std::vector<char*> pointers(const Words& words) {
  std::vector<char*> all;
  for (const auto& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

Words environment_with(const Variables& variables, const std::string& mark) {
  Variables env{{"PATH", std::getenv("PATH")}, {"HOME", "/tmp"}, {"LC_ALL", "C.UTF-8"}, {kMark, mark}};
  for (const char* kept : {"ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS", "LD_LIBRARY_PATH", "COHORT_TEST_SLOWDOWN"})
    if (const char* value = std::getenv(kept)) env[kept] = value;
  for (const auto& [name, value] : variables) env[name] = value;
  Words entries;
  for (const auto& [name, value] : env) entries.push_back(name + "=" + value);
  return entries;
}

char state_of(const std::string& process) {
  const std::string stat = slurp(process + "/stat");
  const auto close = stat.rfind(')');
  return close == stat.npos || close + 2 >= stat.size() ? 'Z' : stat[close + 2];
}

}  // namespace

Seconds stretched(Seconds limit) { return limit * std::max(1.0, slowdown()); }

Started::Started(const Words& words, const Variables& variables, const std::string& input) : mark_(unique_name("launch")) {
  Pipe out = make_pipe(), err = make_pipe(), in = make_pipe();
  const Words entries = environment_with(variables, mark_);
  const auto argv = pointers(words), envp = pointers(entries);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) throw_system("fork");
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    dup2(in.read.get(), 0);
    dup2(out.write.get(), 1);
    dup2(err.write.get(), 2);
    execvpe(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  out_fd_ = std::move(out.read);
  err_fd_ = std::move(err.read);
  for (const Fd* fd : {&out_fd_, &err_fd_}) fcntl(fd->get(), F_SETFL, O_NONBLOCK);
  std::signal(SIGPIPE, SIG_IGN);  // a program that does not read its input is no error of the test
  [[maybe_unused]] const auto ignored = write(in.write.get(), input.data(), input.size());
}

std::unique_ptr<Started> Started::on_terminal(const Words& words, const Variables& variables) {
  std::unique_ptr<Started> one(new Started);
  one->mark_ = unique_name("launch");
  const Words entries = environment_with(variables, one->mark_);
  const auto argv = pointers(words), envp = pointers(entries);
  int screen = -1;
  one->pid_ = forkpty(&screen, nullptr, nullptr, nullptr);
  if (one->pid_ < 0) throw_system("forkpty");
  if (one->pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvpe(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  one->out_fd_.reset(screen);
  fcntl(screen, F_SETFD, FD_CLOEXEC);
  fcntl(screen, F_SETFL, O_NONBLOCK);
  return one;
}

void Started::type(const std::string& text) const { [[maybe_unused]] const auto ignored = write(out_fd_.get(), text.data(), text.size()); }

Started::~Started() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const pid_t pid : marked_processes()) kill(pid, SIGKILL);
}

void Started::signal(int number) const { kill(pid_, number); }

bool Started::read_some(Deadline deadline) {
  if (!out_fd_ && !err_fd_) return false;
  std::array<pollfd, 2> fds{{{out_fd_.get(), POLLIN, 0}, {err_fd_.get(), POLLIN, 0}}};
  if (poll(fds.data(), fds.size(), deadline.left_ms()) <= 0) return !deadline.passed();
  for (Fd* fd : {&out_fd_, &err_fd_}) {
    std::array<char, 4096> buffer;
    const ssize_t n = *fd ? read(fd->get(), buffer.data(), buffer.size()) : -1;
    if (n > 0) (fd == &out_fd_ ? out_ : err_).append(buffer.data(), static_cast<std::size_t>(n));
    if (n == 0 || (n < 0 && errno == EIO)) fd->reset();  // a terminal that everybody left gives EIO
  }
  return true;
}

bool Started::wait_for_text(const std::string& text, Seconds limit) {
  const Deadline deadline = Deadline::in(limit);
  const auto seen = [&] { return out_.find(text) != out_.npos || err_.find(text) != err_.npos; };
  while (!seen() && read_some(deadline)) continue;
  return seen();
}

bool Started::wait_for_more(Seconds limit) {
  const Deadline deadline = Deadline::in(limit);
  const std::size_t before = out_.size() + err_.size();
  while (out_.size() + err_.size() == before)
    if (!read_some(deadline)) return false;
  return true;
}

bool Started::wait_for_state(char state, Seconds limit) const {
  const Deadline deadline = Deadline::in(limit);
  while (state_of("/proc/" + std::to_string(pid_)) != state) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

Ended Started::wait(Seconds limit) {
  const Deadline deadline = Deadline::in(stretched(limit));
  while (read_some(deadline)) continue;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) != pid_) {
    if (deadline.passed()) kill(pid_, SIGKILL);
    std::this_thread::sleep_for(1ms);
  }
  pid_ = -1;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out_, err_, Clock::now() - began_};
}

std::vector<pid_t> Started::marked_processes() const {
  std::vector<pid_t> found;
  const std::string wanted = std::string(kMark) + "=" + mark_;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (name[0] < '1' || name[0] > '9') continue;
    const std::string environment = slurp(entry.path().string() + "/environ");
    if (environment.find(wanted) != environment.npos && state_of(entry.path()) != 'Z')
      found.push_back(static_cast<pid_t>(std::atol(name.c_str())));
  }
  return found;
}

bool Started::all_gone_within(Seconds limit) const {
  const Deadline deadline = Deadline::in(stretched(limit));
  while (!marked_processes().empty()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

Words cohort_run_words(const Words& words) {
  Words all{COHORT_BINARY, "run"};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

Ended run(const Words& words, const Variables& variables, const std::string& input) { return Started(words, variables, input).wait(); }
Ended cohort_run(const Words& words, const Variables& variables, const std::string& input) {
  return run(cohort_run_words(words), variables, input);
}

std::vector<pid_t> children_of(pid_t pid) {
  std::istringstream text(slurp("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children"));
  std::vector<pid_t> all;
  for (pid_t child = 0; text >> child;) all.push_back(child);
  return all;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> all;
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

std::vector<std::string> sorted_lines_of(const std::string& text) {
  auto all = lines_of(text);
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace cohort::launch
