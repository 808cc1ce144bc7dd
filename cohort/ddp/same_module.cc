#include "cohort/ddp/same_module.h"

#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <optional>

#include "cohort/base/error.h"
#include "cohort/job/run_on_all.h"

namespace cohort::ddp {
namespace {

std::string line(const char* what, const std::string& name, const at::Tensor& t) {
  const char* frozen = t.is_leaf() && !t.requires_grad() && std::string_view(what) == "parameter" ? " frozen" : "";
  return fmt::format("{} {} {} [{}]{}", what, name, c10::toString(t.scalar_type()), fmt::join(t.sizes(), ", "), frozen);
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

struct Difference {
  std::size_t at = 0, rank = 0;
  std::string theirs, first;  // 'the line', or nothing
};

// Of the lowest rank whose lines are not those of rank 0, the first such line; the same on every rank.
std::optional<Difference> first_difference(collective::Communicator& comm, const std::vector<std::string>& mine, std::string_view what) {
  std::string text;
  for (const auto& each : mine) text += each + '\n';
  const auto texts = job::gather_texts(comm, text, what);
  for (std::size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] == texts[0]) continue;
    const auto theirs = lines_of(texts[r]), first = lines_of(texts[0]);
    std::size_t i = 0;
    while (i < theirs.size() && i < first.size() && theirs[i] == first[i]) ++i;
    const auto side = [&](const auto& lines) { return i < lines.size() ? "'" + lines[i] + "'" : std::string("nothing"); };
    return Difference{i, r, side(theirs), side(first)};
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> describe(const torch::nn::Module& module) {
  std::vector<std::string> lines;
  for (const auto& item : module.named_parameters()) lines.push_back(line("parameter", item.key(), item.value()));
  for (const auto& item : module.named_buffers())
    if (item.value().defined()) lines.push_back(line("buffer", item.key(), item.value()));
  return lines;
}

void check_same(collective::Communicator& comm, const std::vector<std::string>& mine) {
  if (const auto found = first_difference(comm, mine, "the modules' lists of tensors"))
    throw_failure(Kind::usage, "the modules differ: tensor {} is {} on rank {} but {} on rank 0; build the same module on every rank",
                  found->at, found->theirs, found->rank, found->first);
}

void check_same_options(collective::Communicator& comm, const std::string& whose, const std::vector<std::string>& mine) {
  if (const auto found = first_difference(comm, mine, "the options of " + whose))
    throw_failure(Kind::usage, "{}: the options differ: {} on rank {} but {} on rank 0; give every rank the same options", whose,
                  found->theirs, found->rank, found->first);
}

std::string without_folder(std::string strategy) {
  constexpr std::string_view kFile = "offload=file:";
  if (const auto at = strategy.find(kFile); at != strategy.npos) {
    const auto end = std::min(strategy.find_first_of(",)", at), strategy.size());
    strategy.erase(at + kFile.size() - 1, end - at - kFile.size() + 1);
  }
  return strategy;
}

}  // namespace cohort::ddp
