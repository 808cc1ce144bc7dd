#include "cohort/train/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/spec.h"
#include "cohort/base/terminal_text.h"
#include "cohort/base/text.h"
#include "cohort/data/fingerprint.h"
#include "cohort/optim/optimizer.h"

namespace cohort::train {
namespace {

enum class Rule {
  silent,  // changes no result
  noted,   // listed with a remark
  order,   // decides which samples an epoch takes, and when: may change only where an epoch begins
  own      // checked by a function of its own
};

struct SettingRule {
  std::string_view name;  // of a setting, or "group.": all of a group
  Rule rule;
  std::string_view remark = {};
};

constexpr SettingRule kRules[] = {
    {"name", Rule::silent},
    {"out", Rule::silent},
    {"threads", Rule::silent},
    {"observe.", Rule::silent},
    {"checkpoint.", Rule::silent},
    {"check_replicas", Rule::silent},
    {"max_skipped_steps", Rule::silent},
    {"recompute", Rule::silent},
    {"data.threads", Rule::silent},
    {"data.max_pixels", Rule::silent},
    {"data.max_scans", Rule::silent},
    {"data.max_inflate_ratio", Rule::silent},
    {"plugins", Rule::silent},
    {"pretrained", Rule::silent},  // the checkpoint has what became of it
    {"engine.first_bucket", Rule::silent},
    {"engine.bucket", Rule::silent},
    {"engine.far_bucket", Rule::silent},
    {"engine.lanes", Rule::silent},
    {"engine.early_update", Rule::silent},
    {"engine.autotune", Rule::silent},
    {"seed", Rule::order},
    {"data.sampler", Rule::order},
    {"data.train", Rule::own},
    {"optimizer", Rule::own},
    {"model", Rule::noted, "the tensors fit"},
    {"mesh", Rule::noted, "every rank reads the part that it holds now"},
    {"data.batch", Rule::noted, "what is left of the epoch is cut anew"},
    {"data.accumulate", Rule::noted, "what is left of the epoch is cut anew"},
    {"optim.schedule", Rule::noted, "its position is the number of updates made"},
    {"epochs", Rule::noted, "the schedule follows the new length"},
    {"steps", Rule::noted, "the schedule follows the new length"},
};

const SettingRule& rule_of(std::string_view name) {
  static constexpr SettingRule kListed{"", Rule::noted};
  const auto* const found = std::find_if(std::begin(kRules), std::end(kRules), [&](const SettingRule& rule) {
    return rule.name.ends_with('.') ? name.starts_with(rule.name) : name == rule.name;
  });
  return found == std::end(kRules) ? kListed : *found;
}

std::string text_of(const std::map<std::string, std::string>& texts, const std::string& key) {
  const auto at = texts.find(key);
  return at == texts.end() ? "" : at->second;
}

// A setting that the version which made the checkpoint did not have did what its default does.
std::map<std::string, std::string> with_defaults(std::map<std::string, std::string> settings) {
  if (settings.empty()) return settings;
  constexpr std::string_view kRemark = "  # default";
  TrainConfig defaults;
  for (auto& [name, value] : settings_by_name(Config(defaults).yaml())) {
    if (value.ends_with(kRemark)) value.resize(value.size() - kRemark.size());
    settings.emplace(name, value);
  }
  return settings;
}

std::string shown(const std::map<std::string, std::string>& settings, const std::string& name) {
  const auto at = settings.find(name);
  if (at == settings.end()) return "(not set)";
  const std::string& value = at->second;  // a text is in quotes; what is empty keeps them
  return value.size() > 2 && value.front() == '"' && value.back() == '"' ? value.substr(1, value.size() - 2) : value;
}

bool allows(const TrainConfig& config, std::string_view word) {
  return std::ranges::find(config.checkpoint.allow, word) != config.checkpoint.allow.end();
}

class Planner {
 public:
  Planner(const checkpoint::Checkpoint& from, const ResumingRun& run)
      : manifest_(from.manifest),
        path_(from.path),
        run_(run),
        before_(with_defaults(settings_by_name(text_of(manifest_.texts, "config")))),
        now_(settings_by_name(run.yaml)) {}

  ResumePlan plan() {
    compare_data();
    compare_optimizers();
    if (!before_.empty()) compare_settings();
    if (!refusals_.empty())
      throw_failure(Kind::usage, "the run cannot resume from {}: {}; or begin anew with checkpoint.resume=never or another `out`", path_,
                    terminal_text(fmt::format("{}", fmt::join(refusals_, "; "))));
    for (std::string& change : plan_.changes) change = terminal_text(change);  // both quote the checkpoint's texts
    return std::move(plan_);
  }

 private:
  bool in_epoch() const { return manifest_.position > 0; }
  std::string change(const std::string& name) const { return fmt::format("{}: {} -> {}", name, shown(before_, name), shown(now_, name)); }
  void add(const std::string& line, std::string_view remark) {
    plan_.changes.push_back(remark.empty() ? line : fmt::format("{}: {}", line, remark));
  }

  void compare_settings() {
    for (const auto& [name, unused] : now_) {
      if (shown(before_, name) == shown(now_, name)) continue;
      const SettingRule& rule = rule_of(name);
      if (rule.rule == Rule::noted) add(change(name), rule.remark);
      if (rule.rule == Rule::order) change_order(change(name), fmt::format("the old {}", name));
    }
  }

  // Which samples an epoch takes, and in which order. `old`: what would have to be restored to finish it.
  void change_order(const std::string& what, const std::string& old) {
    if (!in_epoch()) return add(what, "from the next epoch on");
    if (allows(run_.config, kAllowRestart)) {
      plan_.restart_epoch = true;
      return add(what, fmt::format("epoch {} begins anew, and {} of its samples come again", manifest_.epoch + 1, manifest_.position));
    }
    refusals_.push_back(
        fmt::format("{}: it is in the middle of epoch {} ({} samples taken), and the rest of it would not be the samples that are left; "
                    "finish the epoch with {}, or say checkpoint.allow={} to begin it anew",
                    what, manifest_.epoch + 1, manifest_.position, old, kAllowRestart));
  }

  void compare_data() {
    const std::string before = text_of(manifest_.texts, kDataText);
    const bool renamed = !before_.empty() && shown(before_, "data.train") != shown(now_, "data.train");
    const std::string path = renamed ? change("data.train") : fmt::format("data.train: {}", shown(now_, "data.train"));
    if (before.empty()) {  // a checkpoint of an earlier version
      if (renamed) other_data(path, "the checkpoint does not tell whether it holds the same samples");
      return;
    }
    const auto was = data::fingerprint_of_text(before), is = data::fingerprint_of_text(run_.data);
    const auto difference = data::difference(was, "in the checkpoint", is, "now");
    if (difference.empty()) return renamed ? add(path, "the same samples") : void();
    if (!other_data(path, difference)) return;
    if (data::samples_of(was) != data::samples_of(is))
      change_order(fmt::format("samples of the training set: {} -> {}", data::samples_of(was), data::samples_of(is)), "the old set");
  }

  bool other_data(const std::string& path, const std::string& why) {
    if (allows(run_.config, kAllowData)) return add(path, why), true;
    refusals_.push_back(
        fmt::format("{}: another training set: {}; restore it, or say checkpoint.allow={} to go on with this one", path, why, kAllowData));
    return false;
  }

  void compare_optimizers() {
    const std::string was = text_of(manifest_.texts, "optimizer");
    if (was.empty()) return;
    const auto now = optim::make(run_.config.optimizer);
    if (was == now->spec()) {  // parameters may have thawed, which the spec does not tell
      if (allows(run_.config, kAllowOptimizer)) plan_.state = StateToRead::fitting;
      return;
    }
    const std::string line = before_.empty() ? fmt::format("optimizer: {} -> {}", was, now->spec()) : change("optimizer");
    const std::string remark = compare_states(was, *now);
    if (remark.empty()) return add(line, "");
    if (allows(run_.config, kAllowOptimizer)) return add(line, remark);
    refusals_.push_back(fmt::format("{}: its state does not fit: {}; take the old one, or say checkpoint.allow={} to go on so", line,
                                    remark, kAllowOptimizer));
  }

  // What becomes of the state, and plan_.state; empty: all of it is taken.
  std::string compare_states(const std::string& was, const optim::Optimizer& now) {
    const std::string old_name = Spec::parse(was).name, new_name = Spec::parse(now.spec()).name;
    const auto after = now.state_names();
    std::vector<std::string> before;
    try {
      before = optim::make(was)->state_names();
    } catch (const Failure&) {  // a rule that this version does not have
      plan_.state = StateToRead::none;
      return fmt::format("the state of {} is dropped, that of {} starts anew", old_name, new_name);
    }
    if (std::ranges::is_permutation(before, after)) return "";
    plan_.state = old_name == new_name ? StateToRead::fitting : StateToRead::none;
    const auto left = [&](std::vector<std::string> names, const std::vector<std::string>& others) {
      if (plan_.state == StateToRead::fitting)
        std::erase_if(names, [&](const std::string& name) { return std::ranges::find(others, name) != others.end(); });
      return names;
    };
    const auto dropped = left(before, after), fresh = left(after, before);
    std::vector<std::string> parts;
    if (!dropped.empty()) parts.push_back(fmt::format("{} {} dropped", fmt::join(dropped, ", "), dropped.size() == 1 ? "is" : "are"));
    if (!fresh.empty())
      parts.push_back(fmt::format("{} start{} at {}", fmt::join(fresh, ", "), fresh.size() == 1 ? "s" : "",
                                  now.initial_state(0) == 0 ? "zero" : "the rule's first value"));
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  const checkpoint::Manifest& manifest_;
  const std::string& path_;
  const ResumingRun& run_;
  const std::map<std::string, std::string> before_, now_;
  ResumePlan plan_;
  std::vector<std::string> refusals_;
};

}  // namespace

std::map<std::string, std::string> settings_by_name(const std::string& yaml) {
  std::map<std::string, std::string> settings;
  std::vector<std::string> above;
  for (const std::string_view line : split(yaml, '\n')) {
    const auto colon = line.find(':'), indent = line.find_first_not_of(' ');
    if (colon == line.npos) continue;
    above.resize(indent / 2);
    std::string name;
    for (const auto& each : above) name += each + ".";
    above.emplace_back(line.substr(indent, colon - indent));
    const auto value = trim(line.substr(colon + 1));
    if (!value.empty()) settings[name + above.back()] = value;
  }
  return settings;
}

ResumePlan plan_resume(const checkpoint::Checkpoint& from, const ResumingRun& run) { return Planner(from, run).plan(); }

}  // namespace cohort::train
