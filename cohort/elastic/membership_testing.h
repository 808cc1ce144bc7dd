// An elastic job that a test drives event by event through Membership, and its decisions as short strings:
//   seal(3,now)        SealEpoch to three connections, urgent
//   4=e2r1/3@17<0      BeginEpoch to connection 4: epoch 2, rank 1 of 3, from step 17, with the state of rank 0
//   release(1,save)    evict(2)   refuse(3)   respawn(1)   stop(timeout)
// Random schedules are in tests/membership. Owner: a test. Threads: one.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cohort/base/text.h"
#include "cohort/elastic/membership.h"

namespace cohort::elastic {

inline ElasticRules rules() {
  ElasticRules r;
  r.job = "j";
  r.min_workers = 2;
  r.target_workers = 3;
  r.max_workers = 4;
  return r;
}

// One word per action, without what is only said.
inline std::string brief(const Decided& d) {
  std::vector<std::string> words;
  for (const ElasticAction& action : d.actions) {
    if (const auto* a = std::get_if<SealEpoch>(&action))
      words.push_back(fmt::format("seal({}{})", a->connection_ids.size(), a->urgent ? ",now" : ""));
    if (const auto* a = std::get_if<BeginEpoch>(&action)) {
      const std::string base = a->base ? std::to_string(*a->base) : "disk";
      const std::string heal = a->heal_from ? fmt::format("<{}", a->heal_from.value) : "";
      words.push_back(
          fmt::format("{}=e{}r{}/{}@{}{}", a->connection_id, a->roster.epoch.value, a->rank.value, a->roster.size(), base, heal));
    }
    if (const auto* a = std::get_if<Release>(&action))
      words.push_back(fmt::format("release({}{}{})", a->connection_id, a->save ? ",save" : "", a->finish ? ",finish" : ""));
    if (const auto* a = std::get_if<Evict>(&action)) words.push_back(fmt::format("evict({})", a->connection_id));
    if (const auto* a = std::get_if<group::Refuse>(&action)) words.push_back(fmt::format("refuse({})", a->connection_id));
    if (const auto* a = std::get_if<Respawn>(&action)) words.push_back(fmt::format("respawn({})", a->count));
    if (const auto* a = std::get_if<Stop>(&action)) words.push_back(a->error ? fmt::format("stop({})", kind_name(a->error->kind)) : "stop");
  }
  return join(words, " ");
}

inline std::string said(const Decided& d) {
  std::string text;
  for (const ElasticAction& action : d.actions)
    if (const auto* a = std::get_if<Say>(&action)) text += a->text + "\n";
  return text;
}

// An elastic job driven by a test: connection g is worker g unless stated otherwise.
class Job {
 public:
  explicit Job(ElasticRules r = rules(), CoordinatorState coordinator_state = {})
      : rules_(std::move(r)), membership_(rules_, std::move(coordinator_state), 0) {
    keep(membership_.open(0));
  }

  std::string now(const ElasticEvent& event) {
    last_ = keep(membership_.handle(event, time_));
    return brief(last_);
  }
  std::string arrives(int worker) { return now(Arrive{worker, as(worker), {}, false, false, {}}); }
  std::string back(int connection_id, int worker, std::uint32_t epoch, bool sealed, std::optional<WorkerProgress> worker_progress) {
    return now(Arrive{connection_id, as(worker), Epoch{epoch}, sealed, !sealed, worker_progress});
  }
  // Its connection ends, then its process.
  std::string dies(int connection_id) { return dies(connection_id, connection_id); }
  std::string dies(int connection_id, int worker) {
    const std::string first = now(LinkEnded{connection_id});
    const std::string then = now(ProcessEnded{as(worker).id, "killed"});
    return first + (first.empty() || then.empty() ? "" : " ") + then;
  }
  std::string reports(int connection_id, std::int64_t applied, bool prepared = false) {
    const Epoch e = membership_.coordinator_state().epoch;
    return now(Reported{connection_id, e, WorkerProgress{e, applied, prepared}});
  }
  std::string settled(std::vector<int> connection_ids, std::int64_t step) {
    std::string all;
    for (const int g : connection_ids) all += now(Settled{g, membership_.coordinator_state().epoch, step});
    return all;
  }
  // Time passes in small steps, and these connections keep sending heartbeats. What happened, in one line.
  std::string waits(double span, const std::vector<int>& alive) {
    std::vector<std::string> all;
    for (const double until = time_ + span; time_ < until;) {
      time_ = std::min(until, time_ + 0.25);
      for (const int g : alive) all.push_back(now(Heartbeat{g}));
      all.push_back(now(Tick{}));
    }
    std::erase(all, "");
    return join(all, " ");
  }
  // Three workers in epoch 1, all at step 10.
  void start() {
    for (const int w : {1, 2, 3}) arrives(w);
    settled({1, 2, 3}, 0);
    ASSERT_TRUE(membership_.settled());
  }
  Membership& membership() { return membership_; }
  const Decided& last() const { return last_; }
  const std::string& messages() const { return messages_; }
  CoordinatorState replayed() const { return replay(log_); }
  static Worker as(int worker) {
    return {WorkerId{static_cast<std::uint64_t>(worker)}, {Rank{0}, fmt::format("127.0.0.1:{}", worker), 1000 + worker, "here"}};
  }

 private:
  Decided keep(Decided d) {
    log_.insert(log_.end(), d.entries.begin(), d.entries.end());
    messages_ += said(d);
    return d;
  }
  ElasticRules rules_;
  Membership membership_;
  double time_ = 0;
  Decided last_;
  std::string messages_;
  std::vector<Entry> log_;
};

}  // namespace cohort::elastic
