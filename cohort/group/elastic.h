// Elastic decides who trains: a pure state machine, events in, decisions out. No clock, no socket, no thread; time is a number of seconds
// that comes with every event. The protocol and why it is safe: docs/adr/0009-membership.md.
//
//   gathering ----enough workers----> running <---all members are back--- (a restarted coordinator)
//       ^                               |  somebody came, leaves, is lost, complains
//       '--too few-- sealing <----------'
//                       '--all that can be heard have reported, enough remain--> running, in the next epoch
//
// The caller, for every event: Decided d = elastic.handle(event, now); log.append(d.entries); carry out d.actions. At the start:
// Elastic(rules, replay(log.found()), now), then open(). A restarted coordinator that slept must hand over what it heard before it ticks.
// Owner: the coordinator. Threads: one at a time. Failure: what goes wrong with workers is an action; Kind::usage for rules that cannot be.
// elastic.cc hears events, elastic_change.cc forms epochs.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cohort/group/elastic_types.h"

namespace cohort::group {

class Elastic {
 public:
  Elastic(ElasticRules rules, Charter charter, double now);
  Decided open(double now);  // once, before the first event
  Decided handle(const ElasticEvent& event, double now);
  double next_tick() const;  // when handle(Tick{}) is due at the latest

  const Charter& charter() const { return charter_; }
  bool over() const { return over_; }
  bool running() const { return charter_.epoch.value > 0 && sealing_ == Sealing::no && !over_; }
  bool settled() const;  // every member of the newest epoch trains

 private:
  enum class Presence { here, away, silent, lost };  // expected back until `until` | back when heard | back when it reports
  enum class Sealing { no, gently, urgently };
  struct Known {
    Worker worker;
    std::optional<Guest> guest;
    Presence presence = Presence::here;
    double heard = 0, until = 0;
    std::uint64_t arrival = 0;  // newcomers are taken in the order they came
    bool leaving = false, settled = false, reported = false, ended = false;
    bool stuck = false;                // lost for what it did not say in time, although its heart beats
    bool saving = false;               // it was let go, and is the one to write the state down first ..
    bool finishes = false;             // .. with the step it is prepared for
    std::optional<Standing> standing;  // as reported
  };

  // elastic.cc: events
  void on(const Arrive&);
  void on(const Heard& e) { of(e.guest); }
  void on(const Reported&);
  void on(const Settled&);
  void on(const Complained&);
  void on(const Leaving&);
  void on(const Ended&);
  void on(const Entrusted&);
  void on(const Condemned&);
  void on(const LinkEnded&);
  void on(const ProcessEnded&);
  void on(const SpawnFailed&);
  void on(const Adopted&);
  void on(const Tick&);
  void returns(Known& known, const Arrive& arrive);
  bool arrives_late(const Arrive& arrive);
  void one_came();
  void forgive(double slept);
  void lose(Known& known, const std::string& why);
  void look_for_the_silent();
  Known* of(Guest guest);
  bool is_member(const Known& known) const { return charter_.rank_of(known.worker.id).has_value(); }
  std::string name(const Known& known) const;

  // elastic_change.cc: what follows
  struct Plan {
    std::vector<const Known*> members;  // those who stay, by old rank, then newcomers
    std::size_t holders = 0;            // how many of them have the state, the first ones
    std::optional<std::int64_t> base;
    std::set<WorkerId> cut;  // left out for their broken links
  };
  void consider();
  bool change_wanted() const;
  bool change_is_urgent() const;
  void seal();
  bool awaits_reports() const;
  bool stillborn() const { return !broken_.empty() && !settled(); }
  void try_to_form();
  bool fenced() const;  // the last epoch can commit nothing any more
  std::vector<const Known*> members() const;
  std::vector<const Known*> newcomers() const;
  bool admits() const;
  std::optional<Standing> effective(const Known& known) const;
  bool covered(const std::vector<const Known*>& holders) const;
  bool only_saves(const Plan& plan) const;
  bool on_disk() const;
  bool being_saved() const;
  bool saves_all(const Known& known) const;
  std::vector<const Known*> holders(const std::set<WorkerId>& without) const;
  bool state_may_return() const;
  Plan plan_without(const std::set<WorkerId>& cut) const;
  Plan plan_next() const;
  std::set<WorkerId> cut_off() const;
  bool leaves_out_living(const Plan& plan) const;
  std::string why_not(const Plan& plan) const;
  void release_leavers(const Plan& plan);
  bool to_finish(const Known& leaver) const;
  void begin_to_wait();
  void wait(const std::string& why);
  void form(const Plan& plan);
  std::string describe(const Plan& plan) const;
  void announce(const Known& known);
  void dismiss(const Known& known);
  int there() const;
  void count_left(int more);
  void replace_lost();
  void check_limits();
  void finish_if_done();
  void give_up(Kind kind, const std::string& text, Rank about = kNoRank);

  void decide(const Entry& entry);
  void say(std::string text, bool to_all = false);
  std::vector<Guest> guests() const;

  const ElasticRules rules_;
  Charter charter_;  // changed by decide() alone
  Decided out_;      // of the event at hand
  double now_ = 0;
  std::map<WorkerId, Known> known_;
  std::set<std::pair<WorkerId, WorkerId>> broken_;  // links of this epoch that members complained about
  Sealing sealing_ = Sealing::no;
  double sealed_at_ = 0, formed_at_ = 0;
  std::optional<double> waiting_since_, stateless_since_;
  double warn_at_ = 0;
  double hold_ = 0, hold_until_ = 0;  // no newcomers, after somebody was left out: for so long from when the epoch has settled; until when
  int stillborn_ = 0;                 // epochs in a row that broke before all had settled
  int cuts_ = 0;                      // times in a row that somebody was left out, stuck or for broken links
  int coming_ = 0;                    // replacements asked for that have not arrived
  int adopted_ = 0;                   // processes that an earlier coordinator had started, likewise; counted on until ..
  double adopted_until_ = 0;
  std::uint64_t arrivals_ = 0;
  bool over_ = false;
};

}  // namespace cohort::group
