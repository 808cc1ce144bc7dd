// The strategies by name, with their parameters, torch-free: settings are checked and described by programs that do not train.
// Owner: the table, which never changes. Threads: any. To add a strategy: strategy.h.
#pragma once
#include <array>

#include "cohort/base/spec.h"

namespace cohort::sync {

inline const SpecSchema& all_reduce_schema() {
  static const SpecSchema schema{"all_reduce",
                                 "every rank reduces every gradient and makes the same update",
                                 {{.name = "op",
                                   .type = SpecParam::Type::word,
                                   .doc = "how gradients are combined",
                                   .preset = "average",
                                   .words = {"average", "sum"}}}};
  return schema;
}

inline const SpecSchema& zero_schema() {
  static const SpecSchema schema{
      "zero",
      "every rank updates the elements it owns, and holds less the higher the stage",
      {{.name = "stage",
        .type = SpecParam::Type::integer,
        .doc = "1: optimizer state is sharded; 2: gradients too; 3: parameters too",
        .preset = "1",
        .low = 1,
        .high = 3},
       {.name = "op", .type = SpecParam::Type::word, .doc = "how gradients are combined", .preset = "average", .words = {"average", "sum"}},
       {.name = "buddy",
        .type = SpecParam::Type::boolean,
        .doc = "each rank also keeps the shard of the rank before it, so that one lost rank loses nothing",
        .preset = "false"},
       {.name = "offload",
        .type = SpecParam::Type::text,
        .doc = "none; host: of a model on a GPU gradients, state and masters lie in the host's memory; file:FOLDER: state, and in stage 3 "
               "parameters, lie in mapped files of that folder",
        .preset = "none"}}};
  return schema;
}

inline std::array<const SpecSchema*, 2> strategy_schemas() { return {&all_reduce_schema(), &zero_schema()}; }

}  // namespace cohort::sync
