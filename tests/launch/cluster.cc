#include "cluster.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "cohort/base/error.h"

namespace cohort::launch {
namespace {

void must(const std::string& command) {
  const int status = std::system((command + " 2>&1").c_str());
  if (status != 0)
    throw_failure(Kind::system, "tests of several hosts need network namespaces (root, and the command ip): `{}` failed", command);
}

std::string namespace_of(pid_t pid) {
  std::array<char, 64> name{};
  const std::string link = fmt::format("/proc/{}/ns/net", pid);
  return readlink(link.c_str(), name.data(), name.size() - 1) > 0 ? name.data() : "";
}

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

void wait_for_file(const std::string& path) {
  const Deadline deadline = Deadline::in(stretched(10s));
  while (!std::filesystem::exists(path)) {
    if (deadline.passed()) throw_failure(Kind::system, "tests of several hosts: {} did not appear", path);
    std::this_thread::sleep_for(2ms);
  }
}

}  // namespace

std::string command_line(pid_t pid) {
  std::string text = slurp(fmt::format("/proc/{}/cmdline", pid));
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

pid_t parent_of(pid_t pid) {
  const std::string stat = slurp(fmt::format("/proc/{}/stat", pid));
  const auto close = stat.rfind(')');
  return close == stat.npos ? -1 : static_cast<pid_t>(std::atol(stat.c_str() + close + 4));
}

std::string Cluster::address(int host) { return fmt::format("10.66.0.{}", host + 1); }

pid_t Cluster::start_holder(const std::string& name) const {
  const std::string path = folder_ + "/" + name;
  const pid_t parent = getpid(), pid = fork();
  if (pid < 0) throw_system("fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || unshare(CLONE_NEWNET) != 0) _exit(1);
    execl(LAUNCH_SHELL, LAUNCH_SHELL, "serve", path.c_str(), nullptr);
    _exit(1);
  }
  const Deadline deadline = Deadline::in(stretched(10s));
  while (!std::filesystem::exists(path)) {
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == pid)
      throw_failure(Kind::system,
                    "tests of several hosts need network namespaces: unshare(CLONE_NEWNET) is not allowed here (run as root)");
    if (deadline.passed()) wait_for_file(path);
    std::this_thread::sleep_for(2ms);
  }
  return pid;
}

Cluster::Cluster(int hosts) {
  std::string folder = "/tmp/cohort-hosts-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) throw_system("mkdtemp");
  folder_ = folder;
  bridge_ = start_holder("bridge");
  const std::string on_bridge = fmt::format("nsenter -t {} -n ip", bridge_);
  must(on_bridge + " link add br0 type bridge && " + on_bridge + " link set br0 up");
  for (int h = 0; h <= hosts; ++h) {
    holders_.push_back(start_holder(fmt::format("h{}", h)));
    const std::string here = fmt::format("nsenter -t {} -n ip", holders_.back());
    must(fmt::format("{} link add v{} type veth peer name eth0 netns {}", on_bridge, h, holders_.back()));
    must(fmt::format("{} link set v{} master br0 up", on_bridge, h));
    must(fmt::format("{0} addr add {1}/24 dev eth0 && {0} link set eth0 up && {0} link set lo up", here, address(h)));
  }
}

Cluster::~Cluster() {
  for (const pid_t pid : processes()) kill(pid, SIGKILL);
  holders_.push_back(bridge_);
  for (const pid_t pid : holders_) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

Words Cluster::on(int host, const Words& words) const {
  Words all{"nsenter", "-t", std::to_string(holders_.at(static_cast<std::size_t>(host))), "-n"};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

Words Cluster::run_words(const Words& words) const { return on(0, cohort_run_words(words)); }

Variables Cluster::variables(const Variables& more) const {
  Variables all{{"COHORT_SSH", LAUNCH_SHELL}, {"LAUNCH_HOSTS", folder_}};
  for (const auto& [name, value] : more) all[name] = value;
  return all;
}

Ended Cluster::run(const Words& words, const Variables& more, const std::string& input) const {
  return launch::run(run_words(words), variables(more), input);
}

std::vector<pid_t> Cluster::processes_on(int host) const {
  const pid_t holder = holders_.at(static_cast<std::size_t>(host));
  const std::string wanted = namespace_of(holder);
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const auto pid = static_cast<pid_t>(std::atol(entry.path().filename().c_str()));
    if (pid <= 0 || namespace_of(pid) != wanted) continue;
    if (command_line(pid).find(" serve ") == std::string::npos && !command_line(pid).empty())
      found.push_back(pid);  // zombies have no words
  }
  return found;
}

std::vector<pid_t> Cluster::processes() const {
  std::vector<pid_t> all;
  for (std::size_t h = 0; h < holders_.size(); ++h)
    for (const pid_t pid : processes_on(static_cast<int>(h))) all.push_back(pid);
  return all;
}

bool Cluster::empty_within(Seconds limit) const {
  const Deadline deadline = Deadline::in(stretched(limit));
  while (!processes().empty()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

}  // namespace cohort::launch
