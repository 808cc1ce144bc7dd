// Shared memory between processes, limits, scratch space.
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"
#include "cohort/base/segment.h"
#include "cohort/base/text.h"
#include "cohort/bench/doctor/doctor.h"

namespace cohort::bench::doctor {
namespace {

constexpr int kProbeMs = 3000;

// A child makes a segment and sends its name; we try to map it, as ranks do with each other's.
std::string why_not_mappable() {
  int ends[2];
  if (pipe(ends) != 0) throw_system("pipe");
  Fd from{ends[0]}, to{ends[1]};
  const pid_t child = fork();
  if (child < 0) throw_system("fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(kProbeMs / 1000 + 1);
    try {
      const auto segment = Segment::create(kPageBytes, "cohort-doctor", true);
      if (write(to.get(), &segment.name(), sizeof segment.name()) == sizeof segment.name()) pause();
    } catch (const Failure&) {  // the parent reads the end of the pipe
    }
    _exit(0);
  }
  to.reset();
  SegmentName name;
  pollfd ready{from.get(), POLLIN, 0};
  std::string why;
  if (poll(&ready, 1, kProbeMs) <= 0 || read(from.get(), &name, sizeof name) != sizeof name)
    why = "a child process could not create shared memory";
  else if (Segment::open(name, false, &why))
    why.clear();
  kill(child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
  return why;
}

rlimit limit_of(__rlimit_resource what) {
  rlimit r{};
  if (getrlimit(what, &r) != 0) throw_system("getrlimit");
  return r;
}

std::string count_text(std::uint64_t n) { return n == RLIM_INFINITY ? "unlimited" : std::to_string(n); }

}  // namespace

Finding judge_shm_folder(std::uint64_t bytes) {
  const auto text = fmt::format("/dev/shm {}", format_bytes(bytes));
  if (bytes < 128_MiB)
    return {Level::note, "shm folder", text,
            "cohort does not use it, but torch data loaders and Open MPI do: start containers with --shm-size=8g"};
  return {Level::ok, "shm folder", text, ""};
}

void look_at_shared_memory(Findings& findings) {
  try {
    Segment::create(kPageBytes, "cohort-doctor", true);
    findings.push_back({Level::ok, "memfd", "shared memory can be created", ""});
  } catch (const Failure& failure) {
    findings.push_back(
        {Level::fail, "memfd", failure.what(), "collectives need it on every host: allow memfd_create in the container's seccomp profile"});
    return;
  }
  const auto why = why_not_mappable();
  if (why.empty())
    findings.push_back({Level::ok, "mapping", "a process can map another's memory: ranks of this host share buffers in place", ""});
  else
    findings.push_back(
        {Level::warn, "mapping",
         fmt::format("a process cannot map another's memory ({}): ranks of this host will use tcp, several times slower", why),
         "run all ranks as one user in one container; look at hidepid of /proc and kernel.yama.ptrace_scope"});
  struct statvfs fs {};
  if (statvfs("/dev/shm", &fs) == 0) findings.push_back(judge_shm_folder(static_cast<std::uint64_t>(fs.f_frsize) * fs.f_blocks));
  utsname kernel{};
  uname(&kernel);
  int major = 0, minor = 0;
  std::sscanf(kernel.release, "%d.%d", &major, &minor);
  const bool old = major < 5 || (major == 5 && minor < 14);
  findings.push_back({old ? Level::note : Level::ok, "kernel", kernel.release,
                      old ? "before 5.14 buffers are made resident page by page: allocate() is slower, nothing else" : ""});
}

Finding judge_open_files(std::uint64_t soft, std::uint64_t hard) {
  const auto text = fmt::format("{} open files (at most {})", count_text(soft), count_text(hard));
  if (soft < 64) return {Level::fail, "files", text, "a launcher and its ranks need more: ulimit -n 4096"};
  if (soft < 1024) return {Level::warn, "files", text, "enough for about a dozen ranks: ulimit -n 4096"};
  return {Level::ok, "files", text, ""};
}

Finding judge_processes(std::uint64_t soft) {
  const auto text = fmt::format("{} processes and threads", count_text(soft));
  if (soft < 64) return {Level::fail, "processes", text, "ranks and their threads will not start: ulimit -u 4096"};
  if (soft < 512) return {Level::warn, "processes", text, "torch starts threads in every rank: ulimit -u 4096"};
  return {Level::ok, "processes", text, ""};
}

void look_at_limits(Findings& findings) {
  const auto files = limit_of(RLIMIT_NOFILE);
  findings.push_back(judge_open_files(files.rlim_cur, files.rlim_max));
  findings.push_back(judge_processes(limit_of(RLIMIT_NPROC).rlim_cur));
  const auto locked = limit_of(RLIMIT_MEMLOCK).rlim_cur;
  findings.push_back(
      {Level::ok, "memlock",
       locked == RLIM_INFINITY ? "unlimited" : fmt::format("{} (only RDMA and pinned GPU memory need more)", format_bytes(locked)), ""});
  const auto space = limit_of(RLIMIT_AS).rlim_cur;
  if (space != RLIM_INFINITY)
    findings.push_back({Level::warn, "address space", format_bytes(space), "every rank maps every other's buffers: ulimit -v unlimited"});
}

void look_at_scratch(Findings& findings) {
  const char* named = std::getenv("TMPDIR");
  const std::string folder = named != nullptr && *named != '\0' ? named : "/tmp";
  struct statvfs fs {};
  if (access(folder.c_str(), W_OK) != 0 || statvfs(folder.c_str(), &fs) != 0)
    return findings.push_back({Level::warn, "scratch", fmt::format("{} cannot be written", folder), "set TMPDIR to a folder that can"});
  const auto free = static_cast<std::uint64_t>(fs.f_frsize) * fs.f_bavail;
  findings.push_back({free < 100_MiB ? Level::warn : Level::ok, "scratch", fmt::format("{} free in {}", format_bytes(free), folder),
                      free < 100_MiB ? "logs and checkpoints need space" : ""});
}

}  // namespace cohort::bench::doctor
