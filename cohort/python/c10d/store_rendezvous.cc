#include "cohort/python/c10d/store_rendezvous.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "cohort/base/log.h"
#include "cohort/collective/cost/calibration_file.h"
#include "cohort/group/join.h"
#include "cohort/group/rendezvous.h"
#include "cohort/net/connect.h"
#include "cohort/net/transport/loopback.h"

namespace cohort::python {
namespace {

constexpr const char* kRendezvousKey = "cohort/meeting";

std::string machine_key(int rank) { return fmt::format("cohort/machine/{}", rank); }

// Equal for two processes exactly when they reach each other over loopback: one kernel, one network namespace.
std::string machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> space{};
  const auto length = readlink("/proc/self/ns/net", space.data(), space.size() - 1);
  return boot + " " + std::string(space.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
}

std::chrono::milliseconds store_timeout(const StoreRendezvous& how) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::min(how.options.start_timeout, Seconds{1e6}));
}

std::vector<uint8_t> value_of(const StoreRendezvous& how, const std::string& key) {
  how.store->wait({key}, store_timeout(how));
  return how.store->get(key);
}

bool on_one_machine(const StoreRendezvous& how) {
  const std::string here = machine();
  bool one = true;
  for (int r = 0; r < how.size; ++r) {
    const auto there = value_of(how, machine_key(r));
    one = one && std::string(there.begin(), there.end()) == here;
  }
  return one;
}

group::RankInfo place_of(const StoreRendezvous& how) {
  group::RankInfo place;
  place.rank = Rank{how.rank};
  place.size = how.size;
  place.source = "torch.distributed";
  place.because = fmt::format("process group '{}'", how.name);
  return place;
}

std::string task_of(const StoreRendezvous& how) {  // at most 64 printable bytes, alike on all ranks
  std::string job = "c10d:" + how.name;
  for (char& c : job) {
    if (c < 0x20 || c > 0x7e) c = '_';
  }
  return job.substr(0, 64);
}

net::Address listen_address(const StoreRendezvous& how) {
  if (on_one_machine(how)) return {"127.0.0.1", 0};
  const net::Address mine{how.my_address, 0};
  if (how.my_address.empty() || mine.is_loopback()) {
    throw_failure(Kind::usage,
                  "the ranks of process group '{}' run on several machines, and rank 0 of it knows no address of its own that the others "
                  "could reach (it has '{}'); set COHORT_ADDRESS on its machine",
                  how.name, how.my_address);
  }
  return mine;
}

group::Joined serve_rendezvous(const StoreRendezvous& how) {
  const auto secret = net::Secret::random().use_tls(how.options.tls);
  auto listener = net::listen_on(listen_address(how), secret);
  const net::Address address = listener.address;
  group::RendezvousOptions options{.job = task_of(how), .size = how.size, .secret = secret, .start_timeout = how.options.start_timeout};
  options.say = [](const std::string& text) { log_debug("{}", text); };
  options.before_welcome = [&how] { how.store->deleteKey(kRendezvousKey); };  // a later group of this name must not join here
  group::RendezvousServer coordinator(std::move(options), std::move(listener));
  const auto key = secret.bytes();
  std::vector<uint8_t> value(net::Secret::kBytes);
  std::transform(key.begin(), key.end(), value.begin(), [](std::byte b) { return std::to_integer<uint8_t>(b); });
  const std::string text = address.text();
  value.insert(value.end(), text.begin(), text.end());
  how.store->set(kRendezvousKey, value);
  return group::join_at(place_of(how), task_of(how), address, secret,
                        {.start_timeout = how.options.start_timeout, .say = {}, .tls = how.options.tls});
}

group::Joined join_rendezvous(const StoreRendezvous& how) {
  const auto value = value_of(how, kRendezvousKey);
  if (value.size() <= net::Secret::kBytes)
    throw_failure(Kind::corrupt, "process group '{}': the store's entry for the rendezvous has {} bytes, too few for an address", how.name,
                  value.size());
  const auto secret = net::Secret::from_bytes(std::as_bytes(std::span(value)).first(net::Secret::kBytes)).use_tls(how.options.tls);
  const auto address = net::Address::parse(std::string(value.begin() + net::Secret::kBytes, value.end()));
  return group::join_at(place_of(how), task_of(how), address, secret,
                        {.start_timeout = how.options.start_timeout, .say = {}, .tls = how.options.tls});
}

std::shared_ptr<net::PeerLinks> links_of(const StoreRendezvous& how) {
  if (how.size == 1) return std::move(net::loopback_world(1).front());
  const std::string here = machine();
  how.store->set(machine_key(how.rank), std::vector<uint8_t>(here.begin(), here.end()));
  group::Joined joined = how.rank == 0 ? serve_rendezvous(how) : join_rendezvous(how);
  net::ConnectPlan plan{.job = joined.roster.job,
                        .epoch = joined.roster.epoch,
                        .me = Rank{how.rank},
                        .secret = joined.secret,
                        .addresses = {},
                        .transport = how.options.transport,
                        .congestion = how.options.congestion,
                        .all_far = how.options.checksums == "always",
                        .streams = how.options.streams};
  for (const auto& member : joined.roster.members) plan.addresses.push_back(net::Address::parse(member.address));
  return net::connect_peers(std::move(plan), std::move(joined.listener), Deadline::in(how.options.start_timeout));
}

}  // namespace

std::unique_ptr<collective::Communicator> rendezvous_by_store(const StoreRendezvous& how) {
  auto links = links_of(how);
  const std::string constants = how.rank == 0 ? collective::find_calibration(how.options.calibration, links->transport()) : "";
  return collective::open(std::move(links), {.timeout = how.options.timeout,
                                             .warn_after = how.options.warn_after,
                                             .algorithm = how.options.algorithm,
                                             .canonical_only = how.options.deterministic,
                                             .calibration = constants,
                                             .arena = how.arena});
}

}  // namespace cohort::python
