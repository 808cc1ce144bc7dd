#include "cohort/train/loop/rescue.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/checkpoint/party.h"
#include "cohort/checkpoint/workshop.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
constexpr Seconds kPatience{40};  // a rank may be deep in backward before it hears of the loss; the launcher's patience is longer
constexpr auto kLook = std::chrono::milliseconds(10);
constexpr std::size_t kMostAccountBytes = 16 << 20;  // a digit for every parameter
constexpr const char* kPlace = ".rescue-";

}  // namespace

std::string format_account(const Account& account) {
  std::string missing;
  for (const bool m : account.decision.missing) missing.push_back(m ? '1' : '0');
  return nlohmann::json{{"step", account.step},
                        {"undecided", account.undecided},
                        {"committed", account.decision.committed},
                        {"clip", std::bit_cast<std::uint64_t>(account.decision.clip)},  // bits: no digit is lost
                        {"missing", missing}}
      .dump();
}

Account parse_account(const std::string& text, const std::string& where) {
  try {
    const auto json = nlohmann::json::parse(text);
    Account account{
        json.at("step"), json.at("undecided"), {json.at("committed"), std::bit_cast<double>(json.at("clip").get<std::uint64_t>()), {}}};
    for (const char digit : json.at("missing").get<std::string>()) account.decision.missing.push_back(digit == '1');
    return account;
  } catch (const nlohmann::json::exception& error) {
    throw_failure(Kind::corrupt, "{} does not say where a rank stands: {}", where, error.what());
  }
}

Account furthest(std::span<const Account> accounts) {
  Account most = accounts.front();
  for (const Account& a : accounts)
    if (a.step > most.step) most = a;
  for (const Account& a : accounts)
    if (a.step != most.step && (a.step != most.step - 1 || !a.undecided))
      throw_failure(Kind::bug, "one rank has ended step {}, another stands at {}{}", most.step, a.step, a.undecided ? ", undecided" : "");
  return most;
}

std::int64_t new_meeting(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().filename().string().starts_with(kPlace)) left.push_back(entry.path());
  for (const auto& path : left) remove_tree(path);
  return static_cast<std::int64_t>(std::random_device{}());
}

Rescue::Rescue(Survivor survivor, std::string folder, std::int64_t meeting)
    : survivor_(survivor),
      folder_(std::move(folder)),
      place_(fmt::format("{}/{}{}", folder_, kPlace, meeting)),
      deadline_(Deadline::in(kPatience)) {
  for (int rank = 0; rank < survivor_.ranks; ++rank)
    if (rank != survivor_.lost) survivors_.push_back(rank);
  survivor_.speaks = survivors_.front() == survivor_.rank;
  std::error_code error;
  fs::create_directories(place_, error);
  if (error) throw_failure(Kind::system, "cannot make {}: {}", place_, error.message());
}

std::string Rescue::await(const std::string& name, int from) const {
  const auto path = place_ + "/" + name;
  std::error_code error;
  while (!fs::exists(path, error)) {
    if (deadline_.passed())
      throw_failure(Kind::timeout, "rank {}, which was not lost, did not come to {} within {:.0f} s; is it lost too?", from, place_,
                    kPatience.count());
    std::this_thread::sleep_for(kLook);
  }
  return read_file(path, kMostAccountBytes);
}

void Rescue::agree(Learner& learner) {
  const auto& engine = learner.engine();
  const Account mine{learner.decided(), engine.standing() == engine::Standing::undecided, engine.decision()};
  const auto name = [](int rank) { return fmt::format("rank-{:05}.json", rank); };
  write_file_atomically(place_ + "/" + name(survivor_.rank), format_account(mine));
  std::vector<Account> all;
  for (const int rank : survivors_) all.push_back(parse_account(await(name(rank), rank), name(rank)));
  const Account end = furthest(all);
  if (learner.step() < end.step) learner.end_alone(end.decision);
}

checkpoint::Checkpoint Rescue::save(Learner& learner, const std::function<void(checkpoint::Manifest&)>& describe, int keep) {
  checkpoint::Snapshot made;
  describe(made.manifest);
  stow(made, survivor_, learner);
  const auto number = static_cast<int>(std::find(survivors_.begin(), survivors_.end(), survivor_.rank) - survivors_.begin());
  checkpoint::Party party{.folder = {}, .rank = number, .ranks = static_cast<int>(survivors_.size()), .patience = kPatience};
  const auto path = folder_ + "/" + checkpoint::step_name(made.manifest.step);
  if (!survivor_.speaks) {
    party.folder = await("workshop", survivors_.front());
    return checkpoint::contribute(party, made.manifest, made.files(), path).checkpoint;
  }
  const checkpoint::Store store(folder_, {.keep = keep});
  checkpoint::Workshop workshop(checkpoint::workshop_path(folder_, made.manifest.step));
  party.folder = workshop.path();
  write_file_atomically(place_ + "/workshop", party.folder);
  auto saved = store.save(made.manifest, made.files(), workshop, party);
  remove_tree(place_);  // all have read what was there before they wrote their parts
  return saved.checkpoint;
}

}  // namespace cohort
