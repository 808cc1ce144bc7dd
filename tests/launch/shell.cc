// A remote shell for hosts that are network namespaces, which behaves as ssh does: the command runs under a server on that host and is no
// child of the client, in an environment of its own; when the client is gone the command's streams end, and it is not killed.
//   launch_shell serve SOCKET        on the host; runs until it is killed
//   launch_shell [-options] HOST COMMAND   the client; the sockets are in the folder $LAUNCH_HOSTS
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int kFailed = 255;  // of ssh itself

sockaddr_un address_of(const std::string& path) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::strncpy(at.sun_path, path.c_str(), sizeof at.sun_path - 1);
  return at;
}

using Streams = std::array<int, 3>;

bool send_request(int to, const std::string& command, const Streams& streams) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(Streams))> control{};
  iovec text{const_cast<char*>(command.data()), command.size()};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof streams);
  std::memcpy(CMSG_DATA(head), streams.data(), sizeof streams);
  return sendmsg(to, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(command.size());
}

std::string take_request(int from, Streams& streams) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(Streams))> control{};
  std::vector<char> command(1 << 16);
  iovec text{command.data(), command.size()};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* head = CMSG_FIRSTHDR(&message);
  if (n <= 0 || head == nullptr) return {};
  std::memcpy(streams.data(), CMSG_DATA(head), sizeof streams);
  return {command.data(), static_cast<std::size_t>(n)};
}

// One login: runs the command, waits for its end, sends the client its exit status.
void run_login(int client) {
  Streams streams{-1, -1, -1};
  const std::string command = take_request(client, streams);
  if (command.empty()) return;
  const pid_t pid = fork();
  if (pid == 0) {
    setsid();
    for (int i = 0; i < 3; ++i) dup2(streams[static_cast<std::size_t>(i)], i);
    const std::string path = std::string("PATH=") + std::getenv("PATH");
    std::array<char*, 4> variables{const_cast<char*>(path.c_str()), const_cast<char*>("HOME=/tmp"),
                                   const_cast<char*>("SSH_CONNECTION=test"), nullptr};
    execle("/bin/sh", "sh", "-c", command.c_str(), nullptr, variables.data());
    _exit(127);
  }
  for (const int fd : streams) close(fd);
  int status = 0;
  waitpid(pid, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : kFailed;
  [[maybe_unused]] const auto ignored = send(client, &code, sizeof code, MSG_NOSIGNAL);
}

int serve(const std::string& path) {
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const sockaddr_un at = address_of(path);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 || listen(listener, 16) != 0)
    return std::perror(path.c_str()), 1;
  signal(SIGCHLD, SIG_IGN);
  while (true) {
    const int client = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    if (fork() == 0) {
      signal(SIGCHLD, SIG_DFL);
      close(listener);
      run_login(client);
      _exit(0);
    }
    close(client);
  }
}

bool pass_on(int& from, int to) {
  std::array<char, 65536> buffer;
  const ssize_t n = read(from, buffer.data(), buffer.size());
  for (ssize_t done = 0; done < n;) {
    const ssize_t moved = write(to, buffer.data() + done, static_cast<std::size_t>(n - done));
    if (moved <= 0) return from = -1, false;
    done += moved;
  }
  return n > 0 || (from = -1, false);
}

int relay(int server, int to_command, int out, int err) {
  int in = 0;
  while (out >= 0 || err >= 0) {
    std::array<pollfd, 3> fds{{{in, POLLIN, 0}, {out, POLLIN, 0}, {err, POLLIN, 0}}};
    poll(fds.data(), fds.size(), -1);
    if (fds[0].revents != 0 && !pass_on(in, to_command)) close(to_command);
    if (fds[1].revents != 0) pass_on(out, 1);
    if (fds[2].revents != 0) pass_on(err, 2);
  }
  int code = kFailed;
  return recv(server, &code, sizeof code, 0) == sizeof code ? code : kFailed;
}

int log_in(const std::string& host, const std::string& command) {
  const char* folder = std::getenv("LAUNCH_HOSTS");
  const sockaddr_un at = address_of(std::string(folder != nullptr ? folder : "/nowhere") + "/" + host);
  const int server = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connect(server, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) {
    std::fprintf(stderr, "ssh: connect to host %s port 22: No route to host\n", host.c_str());
    return kFailed;
  }
  signal(SIGPIPE, SIG_IGN);
  std::array<std::array<int, 2>, 3> pipes{};
  for (auto& ends : pipes)
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return kFailed;
  if (!send_request(server, command, {pipes[0][0], pipes[1][1], pipes[2][1]})) return kFailed;
  for (const int theirs : {pipes[0][0], pipes[1][1], pipes[2][1]}) close(theirs);
  return relay(server, pipes[0][1], pipes[1][0], pipes[2][0]);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 2 && words[0] == "serve") return serve(words[1]);
  std::size_t at = 0;
  while (at < words.size() && words[at].starts_with('-')) ++at;
  if (at + 1 >= words.size()) return std::fprintf(stderr, "launch_shell: which host, what command?\n"), kFailed;
  std::string command = words[at + 1];
  for (std::size_t i = at + 2; i < words.size(); ++i) command += " " + words[i];  // as ssh joins them
  return log_in(words[at], command);
}
