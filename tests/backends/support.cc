#include "tests/backends/support.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>

namespace cohort::collective {

void run_over(const std::string& backend, int ranks, const std::function<void(Communicator&)>& body, const MakeLinks& make) {
  auto all_links = make ? make(ranks) : net::loopback_world(ranks);
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r, links = std::shared_ptr<net::PeerLinks>(std::move(all_links[static_cast<std::size_t>(r)]))]() mutable {
      try {
        const auto opened = open(std::move(links), {.timeout = Seconds{60}, .canonical_only = false}, BackendOptions{.name = backend});
        body(*opened);
      } catch (...) {
        failures[static_cast<std::size_t>(r)] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

Captured capture(const std::string& command) {
  std::FILE* const pipe = popen(fmt::format("timeout -k 2 120 env {} 2>&1", command).c_str(), "r");
  if (pipe == nullptr) throw_system("popen");
  Captured out;
  std::array<char, 4096> some{};
  while (const std::size_t got = std::fread(some.data(), 1, some.size(), pipe)) out.text.append(some.data(), got);
  const int status = pclose(pipe);
  out.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return out;
}

}  // namespace cohort::collective
