// open(): the ranks agree on what must be equal everywhere, then make a NativeBackend, with another backend under it where one was asked
// for.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cohort/collective/native/native_backend.h"

namespace cohort::collective {
namespace {

int cores_here() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  // A rank bound to one core does not know how many cores the ranks have together.
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > 1) return CPU_COUNT(&allowed);
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

// What must be equal on all ranks so that all choose alike; rank 0's values count.
struct SharedSettings {
  Calibration calibration;
  std::int64_t cores = 1;
  std::int64_t canonical_only = 1;
  std::int64_t measured = 0;  // the constants come from a file of rank 0
  std::array<char, 16> backend{};
};

std::array<char, 16> short_text(std::string_view text) {
  std::array<char, 16> out{};
  std::copy_n(text.begin(), std::min(text.size(), out.size() - 1), out.begin());
  return out;
}

// What to begin with: auto measures over the native backend, and then takes the fastest.
BackendOptions settled(BackendOptions backend_options, bool canonical_only) {
  if (backend_options.name == "auto") backend_options.name = "native";
  if (backend_options.name != "native" && canonical_only)
    throw_failure(Kind::usage,
                  "backend: {} adds in an order of its own, so runs would not repeat bit for bit as deterministic: true promises; set "
                  "deterministic: false (--deterministic false, COHORT_DETERMINISTIC=false) or backend: native",
                  backend_options.name);
  return backend_options;
}

}  // namespace

std::unique_ptr<Communicator> open(std::shared_ptr<net::PeerLinks> links, Options options) {
  return open(std::move(links), std::move(options), BackendOptions{});
}

std::unique_ptr<Communicator> open(std::shared_ptr<net::PeerLinks> links, Options options, const BackendOptions& asked) {
  const int n = links->size();
  const int me = links->rank().value;
  std::vector<Rank> members;
  for (int r = 0; r < n; ++r) members.push_back(Rank{r});
  SharedSettings settings{links->transport() == "tcp" ? tcp_defaults() : Calibration{}, cores_here(), options.canonical_only, 0,
                          short_text(asked.name)};
  if (me == 0 && !options.calibration.empty()) {
    settings.calibration = Calibration::load(options.calibration);
    settings.measured = 1;
  }
  const auto deadline = Deadline::in(options.timeout);
  const Tag tag{kWorldChannel, ~0u};
  if (me == 0)
    for (int r = 1; r < n; ++r) links->link(Rank{r}).send(bytes_of(settings), tag).wait(deadline);
  else
    links->link(Rank{0}).recv(writable_bytes_of(settings), tag).wait(deadline);
  options.canonical_only = settings.canonical_only != 0;
  if (settings.backend != short_text(asked.name))
    throw_failure(Kind::usage, "rank {} has backend: {}, rank 0 has backend: {}; every rank needs the same setting", me, asked.name,
                  settings.backend.data());
  const BackendOptions backend_options = settled(asked, options.canonical_only);
  if (me != 0) options.calibration = settings.measured != 0 ? "a file of rank 0" : "";
  auto arena = options.arena ? std::exchange(options.arena, nullptr) : std::make_shared<Arena>(links->rank());
  auto native = std::make_unique<NativeBackend>(std::move(links), arena, std::make_shared<MovedCounters>(),
                                                std::make_shared<SharedObserver>(nullptr), members, me, kWorldChannel, options,
                                                settings.calibration, static_cast<int>(settings.cores), backend_options);
  native->connect(deadline);
  if (asked.name == "auto") return fastest(std::move(native), backend_options, options.canonical_only);
  return native;
}

}  // namespace cohort::collective
