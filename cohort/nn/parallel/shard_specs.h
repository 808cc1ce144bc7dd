// Which parameters of a model are parts of larger ones, by name; those that are not there are whole. Owner: values. Threads: any.
#pragma once
#include <map>
#include <string>

#include "cohort/base/shard_spec.h"

namespace cohort::nn {

using ShardSpecs = std::map<std::string, ShardSpec>;

}  // namespace cohort::nn
