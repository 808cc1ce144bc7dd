#include "cohort/launch/job_resources.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cohort/base/error.h"
#include "cohort/net/socket/address.h"

namespace cohort::launch {

Fd memory_file(const char* label) {
  Fd fd{memfd_create(label, MFD_CLOEXEC)};
  if (!fd) throw_system(fmt::format("memfd '{}'", label));
  return fd;
}

SecretFile::SecretFile(const net::Secret& secret) : fd_(memory_file("cohort-secret")) {
  const auto bytes = secret.bytes();
  if (write(fd_.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) throw_system("memfd for the job's secret");
}

std::string SecretFile::path() const { return fmt::format("/proc/{}/fd/{}", getpid(), fd_.get()); }

ReservedPort::ReservedPort(const std::string& address, int wanted) : number_(wanted) {
  if (wanted != 0) return;
  const auto at = net::SocketAddress::of({address, 0});
  socket_.reset(socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // what lets the program's store listen beside it
  if (bind(socket_.get(), at.get(), at.length) != 0) throw_system("a port for MASTER_PORT");
  number_ = net::local_address(socket_.get()).port;
}

}  // namespace cohort::launch
