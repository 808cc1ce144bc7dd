// What the parts of a job are given, computed from its plan: the coordinator, the ranks of this host, the agents of others. No state.
// Threads: any. Failure: Kind::usage when an interface does not exist, Kind::system.
#pragma once
#include "cohort/launch/child.h"
#include "cohort/launch/job_rendezvous.h"
#include "cohort/launch/launcher.h"
#include "cohort/launch/rank_environment.h"
#include "cohort/launch/remote_ranks.h"

namespace cohort::launch {

JobRendezvousOptions rendezvous_options(const LaunchPlan& plan);

// Of the first rank here; where agents start the ranks, what all of them have in common.
RankSetting rank_setting(const LaunchPlan& plan, const JobRendezvous& rendezvous);

// What a rank starts with: blocked are the signals it must not be ended by before it can handle them.
sigset_t rank_mask(const WorkerTraits& worker, sigset_t mask);

// A rank of this host. The cores of the planned ranks are used again where an elastic job starts more of them.
ChildPlan child_plan(const LaunchPlan& plan, const RankSetting& setting, const Signals& signals);

RemotePlan remote_plan(const LaunchPlan& plan, const JobRendezvous& rendezvous, const Signals& signals);  // refers to the plan

}  // namespace cohort::launch
