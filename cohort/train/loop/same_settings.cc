#include "cohort/train/loop/same_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/data/dataset.h"
#include "cohort/job/run_on_all.h"
#include "cohort/train/resume.h"

namespace cohort::train {
namespace {

// A line for everything in which two ranks must agree.
std::string outline(const ModelAndData& own) {
  std::string text;
  const auto tensors = [&](const char* what, const nn::NamedTensors& all) {
    for (const auto& [name, t] : all)
      text += fmt::format("{} {} of {} {}\n", what, name, fmt::join(t.sizes(), "x"), c10::toString(t.scalar_type()));
  };
  tensors("parameter", own.model.named_parameters());
  tensors("buffer", own.model.named_buffers());
  const auto set = [&](const char* what, const data::Dataset* one) {
    if (one != nullptr) text += fmt::format("{} set of {} samples of {}\n", what, one->size(), fmt::join(one->form().shape, "x"));
  };
  set("training", own.train.get());
  set("test", own.test.get());
  for (const auto& metric : own.objective.metrics) text += fmt::format("metric {}\n", metric.name);
  return text;
}

}  // namespace

void check_same_model(collective::Communicator& comm, const ModelAndData& own) {
  const auto texts = job::gather_texts(comm, outline(own), "model and data");
  const auto first = split(texts[0], '\n');
  for (std::size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] == texts[0]) continue;
    const auto other = split(texts[r], '\n');
    std::size_t at = 0;
    while (at < std::min(first.size(), other.size()) && first[at] == other[at]) ++at;
    const auto line = [&](const auto& lines) {
      return at < lines.size() && !lines[at].empty() ? lines[at] : std::string_view("nothing more");
    };
    throw_failure(Kind::usage, "the ranks made different models or data: rank 0 has {}, rank {} has {}; every rank must make the same",
                  line(first), r, line(other));
  }
}

std::string difference_of_settings(const std::string& first, const std::string& other, int other_rank) {
  const auto ours = settings_by_name(first), theirs = settings_by_name(other);
  const auto value = [](const auto& settings, const std::string& name) {
    const auto at = settings.find(name);
    return at == settings.end() ? std::string("not set") : at->second;
  };
  for (const auto* side : {&ours, &theirs})
    for (const auto& [name, unused] : *side)
      if (value(ours, name) != value(theirs, name))
        return fmt::format("{} is {} on rank 0 but {} on rank {}", name, value(ours, name), value(theirs, name), other_rank);
  return first == other ? "" : fmt::format("those of rank {} are not written like those of rank 0", other_rank);  // items of a list
}

void check_same_settings(collective::Communicator& comm, const std::string& yaml) {
  const auto texts = job::gather_texts(comm, yaml, "settings");
  for (std::size_t r = 1; r < texts.size(); ++r) {
    const auto differs = difference_of_settings(texts[0], texts[r], static_cast<int>(r));
    if (!differs.empty())
      throw_failure(Kind::usage, "the settings differ: {}; give every rank the same file and the same --set options", differs);
  }
}

}  // namespace cohort::train
