#include "cohort/launch/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>

#include "cohort/base/error.h"
#include "cohort/base/fd.h"

namespace cohort::launch {
namespace {

constexpr Seconds kLinger{0.3};

struct Entry {
  pid_t pid;
  pid_t parent;
  bool zombie;
};

// pid (name) state parent: the name may hold anything, so look for the last parenthesis.
bool read_entry(const char* name, Entry& entry) {
  const std::string path = std::string("/proc/") + name + "/stat";
  const Fd fd{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  std::array<char, 512> text{};
  if (!fd || read(fd.get(), text.data(), text.size() - 1) <= 0) return false;
  const char* close = std::strrchr(text.data(), ')');
  if (close == nullptr || std::strlen(close) < 5) return false;
  entry = {static_cast<pid_t>(std::atol(name)), static_cast<pid_t>(std::atol(close + 4)), close[2] == 'Z' || close[2] == 'X'};
  return true;
}

std::vector<Entry> all_processes() {
  std::vector<Entry> all;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  if (!folder) return all;
  while (const dirent* entry = readdir(folder.get())) {
    Entry one{};
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && read_entry(entry->d_name, one)) all.push_back(one);
  }
  return all;
}

}  // namespace

void become_subreaper() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) throw_system("prctl(PR_SET_CHILD_SUBREAPER)");
}

std::vector<pid_t> descendants(pid_t of) {
  std::unordered_multimap<pid_t, Entry> children;
  for (const Entry& e : all_processes()) children.emplace(e.parent, e);
  std::vector<pid_t> found, pending{of};
  while (!pending.empty()) {
    const pid_t parent = pending.back();
    pending.pop_back();
    const auto [first, last] = children.equal_range(parent);
    for (auto at = first; at != last; ++at) {
      pending.push_back(at->second.pid);
      if (!at->second.zombie) found.push_back(at->second.pid);
    }
  }
  return found;
}

std::vector<pid_t> end_descendants(Deadline deadline) {
  const Deadline by_themselves = deadline.sooner(Deadline::in(kLinger));
  while (!by_themselves.passed()) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
    if (descendants(getpid()).empty()) return {};
    std::this_thread::sleep_for(5ms);
  }
  return kill_descendants(deadline);
}

std::vector<pid_t> kill_descendants(Deadline deadline) {
  while (true) {
    const auto left = descendants(getpid());
    for (const pid_t pid : left) kill(pid, SIGKILL);
    while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
    if (left.empty() || deadline.passed()) return left;
    std::this_thread::sleep_for(2ms);
  }
}

}  // namespace cohort::launch
