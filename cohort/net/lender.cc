#include "cohort/net/lender.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>

#include "cohort/net/frame.h"

namespace cohort::net {
namespace {

// splice(2) knows no MSG_NOSIGNAL: keeps SIGPIPE from a process that has not said what to do with it.
class NoBrokenPipe {
 public:
  NoBrokenPipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t waiting;
    sigpending(&waiting);
    had_ = sigismember(&waiting, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoBrokenPipe() {
    constexpr timespec kNow{};
    if (!had_) sigtimedwait(&pipe_, nullptr, &kNow);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;

 private:
  sigset_t pipe_, before_;
  bool had_ = false;
};

// Past /proc/sys/fs/pipe-user-pages-soft a new pipe holds two pages, and that many calls cost more than the copy they save.
constexpr int kLeastPipe = 64_KiB;

}  // namespace

bool Lender::fill(ConstBytes bytes) {
  if (!in_) {
    int ends[2];
    if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) return false;
    out_.reset(ends[0]);
    in_.reset(ends[1]);
    fcntl(in_.get(), F_SETPIPE_SZ, static_cast<int>(kBlockBytes));  // refused: the usual 64 KiB mean more calls, nothing else
    if (fcntl(in_.get(), F_GETPIPE_SZ) < kLeastPipe) return false;
  }
  const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  const ssize_t n = vmsplice(in_.get(), &part, 1, SPLICE_F_NONBLOCK);
  if (n <= 0) return false;
  inside_ = static_cast<std::size_t>(n);
  return true;
}

IoResult Lender::write(ConstBytes bytes, bool more) {
  if (on_ && inside_ == 0 && !fill(bytes)) give_up();
  const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  if (inside_ == 0) return write_some(fd_, {&part, 1});
  cork(true);
  const NoBrokenPipe quiet;  // also after a part has left: the rest may have met a broken pipe
  const ssize_t n = splice(out_.get(), nullptr, fd_, nullptr, inside_,
                           SPLICE_F_NONBLOCK | SPLICE_F_MOVE | (more || inside_ < bytes.size() ? SPLICE_F_MORE : 0));
  if (n > 0) {
    inside_ -= static_cast<std::size_t>(n);
    if (!more && static_cast<std::size_t>(n) == bytes.size()) cork(false);
    return {Io::moved, static_cast<std::size_t>(n), 0};
  }
  const int problem = n < 0 ? errno : 0;
  if (problem == EAGAIN || problem == EINTR) return {Io::later, 0, 0};
  if (problem == EPIPE || problem == ECONNRESET) return {Io::closed, 0, problem};
  give_up();  // a socket that takes no pages
  return write_some(fd_, {&part, 1});
}

void Lender::cork(bool in) {
  if (!cork_ || corked_ == in) return;
  corked_ = in;
  const int value = in ? 1 : 0;
  setsockopt(fd_, IPPROTO_TCP, TCP_CORK, &value, sizeof value);  // best effort: a unix socket has no packets
}

void Lender::give_up() {
  on_ = false;
  reset();
}

void Lender::reset() {
  cork(false);
  in_.reset();
  out_.reset();
  inside_ = 0;
}

}  // namespace cohort::net
