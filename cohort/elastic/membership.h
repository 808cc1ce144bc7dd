// Membership decides which workers train: a pure state machine, events in, decisions out. No clock, no socket, no thread; time is a number
// of seconds that comes with every event. The protocol and why it is safe: docs/adr/0009-membership.md.
//
//   gathering ----enough workers----> running <---all members are back--- (a restarted coordinator)
//       ^                               |  a worker joined, leaves, is lost, reports a peer unreachable
//       '--too few-- sealing <----------'
//                       '--all reachable members have reported, enough remain--> running, in the next epoch
//
// The caller, for every event: Decided d = membership.handle(event, now); log.append(d.entries); carry out d.actions. At the start:
// Membership(rules, replay(log.found()), now), then open(). A coordinator that was suspended must first handle what it received meanwhile,
// then Tick. Owner: the coordinator. Threads: one at a time. Failure: what goes wrong with workers is an action; Kind::usage for impossible
// rules. membership.cc handles events, membership_change.cc begins a change, membership_plan.cc chooses the members of the next epoch,
// membership_form.cc forms it.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cohort/elastic/elastic_types.h"

namespace cohort::elastic {

class Membership {
 public:
  Membership(ElasticRules rules, CoordinatorState coordinator_state, double now);
  Decided open(double now);  // once, before the first event
  Decided handle(const ElasticEvent& event, double now);
  double next_tick() const;  // when handle(Tick{}) is due at the latest

  const CoordinatorState& coordinator_state() const { return coordinator_state_; }
  bool over() const { return over_; }
  bool running() const { return coordinator_state_.epoch.value > 0 && sealing_ == Sealing::no && !over_; }
  bool settled() const;                          // every member of the newest epoch trains
  bool committed() const { return committed_; }  // a step was committed, as far as this coordinator was told
  bool knows(WorkerId id) const { return workers_.contains(id); }

 private:
  enum class Presence {
    here,
    away,
    silent,
    lost
  };  // away: expected back until `until`; silent: no heartbeats, may return; lost: until it reports
  enum class Sealing { no, after_step, at_once };
  struct WorkerRecord {
    Worker worker;
    std::optional<group::ConnectionId> connection_id;
    Presence presence = Presence::here;
    double last_heard = 0, until = 0;
    std::uint64_t arrival = 0;  // newcomers are admitted in the order in which they came
    bool leaving = false, settled = false, reported = false, ended = false;
    bool stuck = false;                             // lost because a message was missing in time, although its heartbeats arrive
    bool saving = false;                            // it was released, and writes the state to disk first ..
    bool finishes = false;                          // .. with the step it is prepared for
    std::optional<WorkerProgress> worker_progress;  // as reported
  };

  // Its connection ended and its process perhaps did not: it is expected back, and nobody is started in its place until then.
  struct Returning {
    group::Member member;
    double until = 0;
  };

  // membership.cc: events
  void on(const Arrive&);
  void on(const Heartbeat& e) { worker_of(e.connection_id); }
  void on(const Reported&);
  void on(const Settled&);
  void on(const PeerUnreachable&);
  void on(const Leaving&);
  void on(const Ended&);
  void on(const StateTransferred&);
  void on(const JobFailed&);
  void on(const LinkEnded&);
  void on(const ProcessEnded&);
  void on(const SpawnFailed&);
  void on(const Adopted&);
  void on(const Tick&);
  void rejoin(WorkerRecord& record, const Arrive& arrive);
  bool rejects(const Arrive& arrive);
  bool was_replaced(const Arrive& arrive);
  void evict(group::ConnectionId connection_id, const Worker& worker, const std::string& why);
  void count_arrival();
  void extend_deadlines(double suspended);
  void mark_lost(WorkerRecord& record, const std::string& why);
  void check_heartbeats();
  WorkerRecord* worker_of(group::ConnectionId connection_id);
  bool is_member(const WorkerRecord& record) const { return coordinator_state_.rank_of(record.worker.id).has_value(); }
  std::string name(const WorkerRecord& record) const;

  // membership_change.cc: from a reason to change to the end of the epoch; replacements; the end of the job
  void consider();
  void check_limits();
  bool admits() const;
  bool change_wanted() const;
  bool change_is_urgent() const;
  void seal();
  bool awaits_reports() const;
  bool fenced() const;  // the last epoch can commit nothing any more
  int headcount() const;
  void count_left(int more);
  void replace_lost();
  void finish_if_done();
  void give_up(Kind kind, const std::string& text, Rank about = kNoRank);

  // membership_plan.cc: the members of the next epoch and the state it begins with
  struct Plan {
    std::vector<const WorkerRecord*> members;  // those who stay, by old rank, then newcomers
    std::size_t holders = 0;                   // how many of them have the state, the first ones
    std::optional<std::int64_t> base;
    std::set<WorkerId> excluded;  // for their broken links
  };
  std::vector<const WorkerRecord*> members() const;
  std::vector<const WorkerRecord*> newcomers() const;
  std::vector<const WorkerRecord*> holders(const std::set<WorkerId>& without) const;
  std::optional<WorkerProgress> effective(const WorkerRecord& record) const;
  bool covered(const std::vector<const WorkerRecord*>& holders) const;
  bool on_disk() const;
  bool saves_all(const WorkerRecord& record) const;
  bool being_saved() const;
  bool only_saves(const Plan& plan) const;
  bool state_may_return() const;
  bool broke_before_settled() const { return !broken_links_.empty() && !settled(); }
  Plan plan_without(const std::set<WorkerId>& excluded) const;
  Plan plan_next() const;
  std::set<WorkerId> unreachable_members() const;
  bool leaves_out_living(const Plan& plan) const;

  // membership_form.cc: waits for enough workers, then forms the next epoch
  void try_to_form();
  std::string reason_to_wait(const Plan& plan) const;
  void start_waiting();
  void wait(const std::string& why);
  void release_leavers(const Plan& plan);
  bool may_finish_step(const WorkerRecord& leaver) const;
  bool may_form(const Plan& plan);
  void form(const Plan& plan);
  std::string describe(const Plan& plan) const;
  void announce(const WorkerRecord& record);
  void dismiss(const WorkerRecord& record);

  void decide(const Entry& entry);
  void say(std::string text, bool to_all = false);
  std::vector<group::ConnectionId> connection_ids() const;

  const ElasticRules rules_;
  CoordinatorState coordinator_state_;  // changed by decide() alone
  Decided out_;                         // of the event at hand
  double now_ = 0;
  std::map<WorkerId, WorkerRecord> workers_;
  std::set<std::pair<WorkerId, WorkerId>> broken_links_;  // of this epoch, as members reported them
  Sealing sealing_ = Sealing::no;
  double sealed_at_ = 0, formed_at_ = 0;
  std::optional<double> waiting_since_, stateless_since_;
  double warn_at_ = 0;
  double admission_delay_ = 0,
         admit_after_ = 0;    // after an exclusion: no newcomers for so long from when the epoch has settled; until when
  int broken_in_a_row_ = 0;   // epochs in a row that broke before all had settled
  int exclusions_ = 0;        // times in a row that a member was left out, stuck or for broken links
  int replacements_due_ = 0;  // requested and not arrived, the first ones among them
  std::map<WorkerId, Returning> returning_;
  std::set<std::pair<std::string, std::int64_t>> evicted_;  // host and pid of those that may come back
  std::optional<std::int64_t> first_step_;                  // the step with which this epoch began, once a member has said so
  bool committed_ = false;
  int adopted_ = 0;  // processes that an earlier coordinator had started, likewise; counted on until ..
  double adopted_until_ = 0;
  std::uint64_t arrivals_ = 0;
  bool over_ = false;
};

}  // namespace cohort::elastic
