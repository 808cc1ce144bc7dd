#include "cohort/cli/run_meeting.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cohort/base/error.h"

namespace cohort::cli {

Meeting::Meeting(std::string job, int ranks, Seconds start_timeout, int master_port)
    : job_(std::move(job)),
      ranks_(ranks),
      start_timeout_(start_timeout),
      secret_(net::Secret::random()),
      listener_(net::listen_on({"127.0.0.1", 0}, secret_)),
      address_(listener_.address.text()),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw_system("eventfd");
  hold_secret();
  hold_master_port(master_port);
}

void Meeting::hold_secret() {
  secret_fd_.reset(memfd_create("cohort-secret", MFD_CLOEXEC));
  const auto bytes = secret_.bytes();
  if (!secret_fd_ || write(secret_fd_.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    throw_system("memfd for the job's secret");
}

void Meeting::hold_master_port(int wanted) {
  master_port_ = wanted;
  if (wanted != 0) return;  // the user's choice is the user's business
  master_socket_.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  setsockopt(master_socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // what lets the program's store listen beside it
  if (bind(master_socket_.get(), reinterpret_cast<sockaddr*>(&at), size) != 0 ||
      getsockname(master_socket_.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0)
    throw_system("a port for MASTER_PORT");
  master_port_ = ntohs(at.sin_port);
}

std::string Meeting::secret_file() const { return fmt::format("/proc/{}/fd/{}", getpid(), secret_fd_.get()); }

void Meeting::open() {
  group::CoordinatorOptions how{.job = job_, .size = ranks_, .secret = secret_, .start_timeout = start_timeout_};
  how.say = [this](const std::string& text) {
    {
      const std::lock_guard lock(mutex_);
      lines_.push_back(text);
    }
    eventfd_write(wake_.get(), 1);
  };
  coordinator_ = std::make_unique<group::Coordinator>(std::move(how), std::move(listener_));
}

void Meeting::rank_ended(int rank, const std::string& how) {
  if (coordinator_) coordinator_->rank_ended(Rank{rank}, how);
}

std::vector<std::string> Meeting::take_lines() {
  eventfd_t ignored = 0;
  eventfd_read(wake_.get(), &ignored);
  const std::lock_guard lock(mutex_);
  return std::exchange(lines_, {});
}

std::string random_job_name() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) throw_system("getrandom");
  return fmt::format("run-{:012x}", number & 0xffffffffffff);
}

}  // namespace cohort::cli
