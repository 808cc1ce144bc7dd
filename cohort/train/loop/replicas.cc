#include "cohort/train/loop/replicas.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "cohort/base/error.h"
#include "cohort/base/trace.h"
#include "cohort/net/frame/frame.h"

namespace cohort::train {
namespace {

// Ranks by checksum, the most common one first. who: those ranks; none: 0, 1 ..
std::vector<std::pair<std::uint32_t, std::vector<int>>> ranks_by_checksum(std::span<const std::uint32_t> of_tensor,
                                                                          std::span<const Rank> who) {
  std::map<std::uint32_t, std::vector<int>> found;
  for (std::size_t r = 0; r < of_tensor.size(); ++r) found[of_tensor[r]].push_back(who.empty() ? static_cast<int>(r) : who[r].value);
  std::vector<std::pair<std::uint32_t, std::vector<int>>> sorted(found.begin(), found.end());
  std::ranges::stable_sort(sorted, std::greater{}, [](const auto& same) { return same.second.size(); });
  return sorted;
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

constexpr const char* kAdvice =
    "no checkpoint was written of it. Start again, from the newest checkpoint; when it comes back, test memory and processor of that host "
    "or leave it out";

}  // namespace

std::vector<std::uint32_t> checksums(const nn::NamedTensors& tensors) {
  std::vector<std::uint32_t> sums;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor here = tensor.detach().cpu().contiguous();  // no copy where it is so already
    sums.push_back(net::crc32c({static_cast<const std::byte*>(here.const_data_ptr()), here.nbytes()}));
  }
  return sums;
}

std::optional<std::string> describe_divergence(std::span<const std::string> names, std::span<const std::uint32_t> sums, std::int64_t step,
                                               std::span<const Rank> who) {
  const std::size_t ranks = names.empty() ? 0 : sums.size() / names.size();
  std::vector<std::uint32_t> one(ranks);
  for (std::size_t t = 0; t < names.size(); ++t) {
    for (std::size_t r = 0; r < ranks; ++r) one[r] = sums[r * names.size() + t];
    const auto found = ranks_by_checksum(one, who);
    if (found.size() < 2) continue;
    std::vector<std::string> all;
    for (const auto& [sum, holders] : found) all.push_back(fmt::format("{:08x} on {}", sum, ranks_text(holders)));
    std::vector<int> minority;
    for (std::size_t c = 1; c < found.size(); ++c) minority.insert(minority.end(), found[c].second.begin(), found[c].second.end());
    std::ranges::sort(minority);
    const bool majority = 2 * found[0].second.size() > ranks;
    return fmt::format("after update {} {}: '{}' is the first that differs, {}; {}", step,
                       majority
                           ? fmt::format("{} hold{} other values than the others", ranks_text(minority), minority.size() == 1 ? "s" : "")
                           : std::string("ranks hold different values, and no majority says whose are right"),
                       names[t], fmt::join(all, ", "), kAdvice);
  }
  return std::nullopt;
}

std::optional<std::string> compare_replicas(collective::Communicator& comm, const nn::NamedTensors& tensors, std::int64_t step,
                                            int holders) {
  std::vector<std::vector<Rank>> one(1);
  for (Rank rank{0}; rank.value < (holders < 0 ? comm.size() : holders); ++rank.value) one[0].push_back(rank);
  return compare_replicas(comm, tensors, step, one);
}

std::optional<std::string> compare_replicas(collective::Communicator& comm, const nn::NamedTensors& tensors, std::int64_t step,
                                            std::span<const std::vector<Rank>> groups) {
  if (comm.size() == 1 || groups.front().size() == 1 || tensors.empty()) return std::nullopt;
  const Span span{"compare replicas"};
  std::vector<std::uint32_t> mine = checksums(tensors);
  std::int64_t all = net::crc32c(std::as_bytes(std::span(mine)));
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::vector<std::int64_t> everyones(ranks);
  comm.all_gather(collective::piece(std::span(&all, 1)), collective::piece(std::span(everyones)), {.name = "checksums of replicas"});
  const auto of = [&](Rank rank) { return everyones[static_cast<std::size_t>(rank.value)]; };
  if (std::ranges::all_of(groups, [&](const std::vector<Rank>& group) {
        return std::ranges::all_of(group, [&](Rank rank) { return of(rank) == of(group[0]); });
      }))
    return std::nullopt;
  std::vector<std::int64_t> wide(mine.begin(), mine.end()), each(mine.size() * ranks);
  comm.all_gather(collective::piece(std::span(wide)), collective::piece(std::span(each)), {.name = "checksums of every tensor"});
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  for (const std::vector<Rank>& group : groups) {
    std::vector<std::uint32_t> sums;
    for (const Rank rank : group) {
      const auto first = each.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rank.value) * mine.size());
      sums.insert(sums.end(), first, first + static_cast<std::ptrdiff_t>(mine.size()));
    }
    if (auto text = describe_divergence(names, sums, step, group)) return text;
  }
  return std::nullopt;
}

}  // namespace cohort::train
