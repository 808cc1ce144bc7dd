#include "cohort/group/secret_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/net/crypto/crypto.h"
#include "cohort/net/socket/listener.h"
#include "cohort/net/socket/socket.h"

namespace cohort::group {
namespace {

constexpr auto kRetry = 20ms;
constexpr Seconds kExchangeLimit{1};
constexpr std::size_t kMostAddress = 256;
constexpr std::size_t kSecretBytes = net::Secret::kBytes;

uid_t user_behind(int socket) {
  ucred who{};
  socklen_t size = sizeof who;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) throw_system("secret server: SO_PEERCRED");
  return who.uid;
}

net::Listener listen_at(const std::string& name, Deadline deadline) {
  while (true) {
    try {
      return net::listen_on(net::Address::parse(name), {});
    } catch (const Failure& failure) {
      if (deadline.passed())
        throw_failure(Kind::system, "{}: another process listens at the rendezvous socket of this job; is it running twice? ({})", name,
                      failure.what());
    }
    std::this_thread::sleep_for(kRetry);
  }
}

void write_all(int socket, ConstBytes bytes) {
  const Deadline limit = Deadline::in(kExchangeLimit);
  while (!bytes.empty()) {
    const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    const auto r = net::write_some(socket, {&part, 1});
    if (r.state == net::IoState::closed) return;  // the client retries when it still needs it
    bytes = bytes.subspan(r.bytes);
    if (!bytes.empty() && !net::wait_ready(socket, POLLOUT, limit)) return;
  }
}

// Everything the peer sends until it closes; nullopt when it disconnects early.
std::optional<JobCredentials> read_credentials(int socket, Deadline deadline) {
  std::array<std::byte, kSecretBytes + kMostAddress> bytes{};
  std::size_t have = 0;
  while (have < bytes.size()) {
    const auto r = net::read_some(socket, Bytes(bytes).subspan(have));
    if (r.state == net::IoState::closed) break;
    have += r.bytes;
    if (r.state == net::IoState::later && !net::wait_ready(socket, POLLIN, deadline)) return std::nullopt;
  }
  if (have <= kSecretBytes) return std::nullopt;
  const auto all = ConstBytes(bytes).first(have);
  const auto text = all.subspan(kSecretBytes);
  JobCredentials credentials{net::Secret::from_bytes(all.first(kSecretBytes)),
                             net::Address::parse({reinterpret_cast<const char*>(text.data()), text.size()})};
  explicit_bzero(bytes.data(), bytes.size());
  return credentials;
}

std::optional<JobCredentials> ask_once(const net::SocketAddress& to, const std::string& name, Deadline deadline) {
  const Fd socket = net::open_socket(AF_UNIX);
  if (connect(socket.get(), to.get(), to.length) != 0) return std::nullopt;  // not listening yet, or the backlog is full
  if (const uid_t user = user_behind(socket.get()); user != geteuid())
    throw_failure(Kind::corrupt, "{} belongs to user {}, this process to user {}: refused; give this job another name with COHORT_JOB",
                  name, user, geteuid());
  return read_credentials(socket.get(), deadline.sooner(Deadline::in(kExchangeLimit)));
}

}  // namespace

std::string secret_socket_name(const std::string& job) {
  const auto digest = net::hmac(net::as_bytes("cohort handover"), {net::as_bytes(job)});
  std::string hex;
  for (std::size_t i = 0; i < 16; ++i) hex += fmt::format("{:02x}", static_cast<unsigned>(digest[i]));
  return fmt::format("unix:@cohort.{}.{}", geteuid(), hex);
}

struct SecretServer::Impl {
  Impl(const std::string& name, JobCredentials c, Deadline deadline)
      : credentials(std::move(c)), listener(listen_at(name, deadline)), wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake) throw_system("secret server: eventfd");
    thread = std::thread([this] { serve(); });
  }

  void serve() {
    while (true) {
      std::array<pollfd, 2> fds{{{wake.get(), POLLIN, 0}, {listener.fd.get(), POLLIN, 0}}};
      poll(fds.data(), fds.size(), -1);
      if (fds[0].revents != 0) return;
      const Fd socket = net::accept_one(listener, Deadline::in(Seconds{0}));
      if (socket && user_behind(socket.get()) == geteuid()) send_to(socket.get());
    }
  }

  void send_to(int socket) const {
    write_all(socket, credentials.secret.bytes());
    write_all(socket, net::as_bytes(credentials.coordinator.text()));
  }

  const JobCredentials credentials;
  net::Listener listener;
  const Fd wake;
  std::once_flag closed;
  std::thread thread;
};

SecretServer::SecretServer(const std::string& name, JobCredentials credentials, Deadline deadline)
    : impl_(std::make_unique<Impl>(name, std::move(credentials), deadline)) {}

SecretServer::~SecretServer() { close(); }

void SecretServer::close() {
  std::call_once(impl_->closed, [this] {
    eventfd_write(impl_->wake.get(), 1);
    impl_->thread.join();
    impl_->listener.fd.reset();
  });
}

JobCredentials fetch_secret(const std::string& name, Deadline deadline, const std::function<void()>& waiting) {
  const auto to = net::SocketAddress::of(net::Address::parse(name));
  while (true) {
    if (auto credentials = ask_once(to, name, deadline)) return *credentials;
    if (deadline.passed())
      throw Failure{{Kind::timeout, fmt::format("rendezvous: rank 0 has not joined: no answer on this host at {}", name), Rank{0}}};
    waiting();
    std::this_thread::sleep_for(kRetry);
  }
}

}  // namespace cohort::group
