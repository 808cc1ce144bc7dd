#include "cohort/train/loop/emergency_save.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/base/regular_file.h"
#include "cohort/base/text.h"
#include "cohort/checkpoint/sharded_save.h"
#include "cohort/checkpoint/staging_directory.h"

namespace cohort::train {
namespace {

constexpr Seconds kEmergencyPatience{40};  // a rank may be deep in backward before it learns of the loss; the launcher waits longer
constexpr auto kFilePoll = std::chrono::milliseconds(10);
constexpr std::size_t kMostStateBytes = 16 << 20;  // a digit for every parameter
constexpr const char* kRendezvousPrefix = ".rescue-";
constexpr const char* kStagingFile = "staging";  // names the folder of the save

}  // namespace

std::string format_survivor_state(const SurvivorState& state) {
  std::string missing;
  for (const bool m : state.decision.missing) missing.push_back(m ? '1' : '0');
  std::vector<std::uint64_t> bits;
  for (const double sum : state.decision.sums) bits.push_back(std::bit_cast<std::uint64_t>(sum));
  return nlohmann::json{{"step", state.step},
                        {"undecided", state.undecided},
                        {"committed", state.decision.committed},
                        {"clip", std::bit_cast<std::uint64_t>(state.decision.clip)},  // bits: no digit is lost
                        {"loss", std::bit_cast<std::uint64_t>(state.decision.loss)},
                        {"missing", missing},
                        {"sums", bits}}
      .dump();
}

SurvivorState parse_survivor_state(const std::string& text, const std::string& where) {
  try {
    const auto json = nlohmann::json::parse(text);
    SurvivorState state{
        json.at("step"), json.at("undecided"), {json.at("committed"), std::bit_cast<double>(json.at("clip").get<std::uint64_t>())}};
    state.decision.loss = std::bit_cast<double>(json.at("loss").get<std::uint64_t>());
    for (const char digit : json.at("missing").get<std::string>()) state.decision.missing.push_back(digit == '1');
    for (const std::uint64_t sum : json.at("sums").get<std::vector<std::uint64_t>>())
      state.decision.sums.push_back(std::bit_cast<double>(sum));
    return state;
  } catch (const nlohmann::json::exception& error) {
    throw_failure(Kind::corrupt, "{} is no state of a survivor: {}", where, error.what());
  }
}

SurvivorState furthest(std::span<const SurvivorState> states) {
  SurvivorState most = states.front();
  for (const SurvivorState& a : states)
    if (a.step > most.step) most = a;
  for (const SurvivorState& a : states)
    if (a.step != most.step && (a.step != most.step - 1 || !a.undecided))
      throw_failure(Kind::bug, "one rank has ended step {}, another is at {}{}", most.step, a.step, a.undecided ? ", undecided" : "");
  return most;
}

std::int64_t new_rendezvous(const std::string& path, int own) {
  try {
    if (const auto folder = Folder::if_there(path, own))
      for (const std::string& name : folder->names())
        if (name.starts_with(kRendezvousPrefix)) remove_tree({*folder, name});
  } catch (const Failure& failure) {
    log_warning("{}; what an emergency save left there stays", failure.what());
  }
  return static_cast<std::int64_t>(std::random_device{}());
}

EmergencySave::EmergencySave(Survivor survivor, std::string folder, int own, std::int64_t rendezvous)
    : survivor_(survivor),
      folder_(std::move(folder)),
      own_(own),
      rendezvous_name_(fmt::format("{}{}", kRendezvousPrefix, rendezvous)),
      rendezvous_(checkpoint::make_durable_folder(folder_, own_).make(rendezvous_name_, 0700)),
      deadline_(Deadline::in(kEmergencyPatience)) {
  for (int rank = 0; rank < survivor_.ranks; ++rank)
    if (rank != survivor_.lost) survivors_.push_back(rank);
  survivor_.writes_common = survivors_.front() == survivor_.rank;
}

std::string EmergencySave::await_file(const std::string& name, int from) const {
  while (!rendezvous_.has(name)) {
    if (deadline_.passed())
      throw_failure(Kind::timeout, "rank {}, a survivor, wrote nothing into {} within {:.0f} s; is it lost too?", from, rendezvous_.path(),
                    kEmergencyPatience.count());
    std::this_thread::sleep_for(kFilePoll);
  }
  return read_regular_file({rendezvous_, name}, kMostStateBytes);
}

void EmergencySave::agree_on_step(TrainLoop& loop) {
  const auto& engine = loop.engine();
  const SurvivorState state{loop.decided(), engine.step_state() == engine::StepState::undecided, engine.decision()};
  const auto name = [](int rank) { return fmt::format("rank-{:05}.json", rank); };
  write_file_atomically({rendezvous_, name(survivor_.rank)}, format_survivor_state(state));
  std::vector<SurvivorState> all;
  for (const int rank : survivors_) all.push_back(parse_survivor_state(await_file(name(rank), rank), name(rank)));
  const SurvivorState end = furthest(all);
  if (loop.step() < end.step) loop.finish_step_alone(end.decision);
}

checkpoint::Checkpoint EmergencySave::save(TrainLoop& loop, const std::function<void(checkpoint::Manifest&)>& describe,
                                           const checkpoint::StoreOptions& options) {
  checkpoint::Snapshot made;
  describe(made.manifest);
  write_state(made, survivor_, loop);
  const auto index = static_cast<int>(std::find(survivors_.begin(), survivors_.end(), survivor_.rank) - survivors_.begin());
  checkpoint::ShardedSave sharded_save{
      .folder = {}, .rank = index, .ranks = static_cast<int>(survivors_.size()), .patience = kEmergencyPatience, .own = own_ + 1};
  const auto path = folder_ + "/" + checkpoint::step_name(made.manifest.step);
  if (!survivor_.writes_common) {
    const std::string name = await_file(kStagingFile, survivors_.front());
    if (!name.starts_with(".tmp-") || name.find('/') != name.npos)
      throw_failure(Kind::corrupt, "{} names '{}', which is no folder of a save", rendezvous_.path_of(kStagingFile), printable(name));
    sharded_save.folder = folder_ + "/" + name;
    return checkpoint::contribute(sharded_save, made.manifest, made.files(), path).checkpoint;
  }
  const checkpoint::Store store(folder_, options);
  checkpoint::StagingDirectory staging(checkpoint::staging_path(folder_, made.manifest.step), own_);
  sharded_save.folder = staging.path();
  write_file_atomically({rendezvous_, kStagingFile}, staging.name());
  auto saved = store.save(made.manifest, made.files(), staging, sharded_save);
  remove_tree({staging.above(), rendezvous_name_});  // all have read what was there before they wrote their parts
  return saved.checkpoint;
}

}  // namespace cohort::train
