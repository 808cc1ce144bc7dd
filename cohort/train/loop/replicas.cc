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

// Ranks by checksum, the most common one first.
std::vector<std::pair<std::uint32_t, std::vector<int>>> ranks_by_checksum(std::span<const std::uint32_t> of_tensor) {
  std::map<std::uint32_t, std::vector<int>> found;
  for (std::size_t r = 0; r < of_tensor.size(); ++r) found[of_tensor[r]].push_back(static_cast<int>(r));
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

std::optional<std::string> describe_divergence(std::span<const std::string> names, std::span<const std::uint32_t> sums, std::int64_t step) {
  const std::size_t ranks = names.empty() ? 0 : sums.size() / names.size();
  std::vector<std::uint32_t> one(ranks);
  for (std::size_t t = 0; t < names.size(); ++t) {
    for (std::size_t r = 0; r < ranks; ++r) one[r] = sums[r * names.size() + t];
    const auto found = ranks_by_checksum(one);
    if (found.size() < 2) continue;
    std::vector<std::string> all;
    for (const auto& [sum, who] : found) all.push_back(fmt::format("{:08x} on {}", sum, ranks_text(who)));
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
  if (comm.size() == 1 || holders == 1 || tensors.empty()) return std::nullopt;
  const Span span{"compare replicas"};
  std::vector<std::uint32_t> mine = checksums(tensors);
  std::int64_t all = net::crc32c(std::as_bytes(std::span(mine)));
  const auto ranks = static_cast<std::size_t>(comm.size()), judged = holders < 0 ? ranks : static_cast<std::size_t>(holders);
  std::vector<std::int64_t> everyones(ranks);
  comm.all_gather(collective::piece(std::span(&all, 1)), collective::piece(std::span(everyones)), {.name = "checksums of replicas"});
  if (std::ranges::all_of(std::span(everyones).first(judged), [&](std::int64_t other) { return other == everyones[0]; }))
    return std::nullopt;
  std::vector<std::int64_t> wide(mine.begin(), mine.end()), each(mine.size() * ranks);
  comm.all_gather(collective::piece(std::span(wide)), collective::piece(std::span(each)), {.name = "checksums of every tensor"});
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  const std::vector<std::uint32_t> sums(each.begin(), each.begin() + static_cast<std::ptrdiff_t>(mine.size() * judged));
  return describe_divergence(names, sums, step);
}

}  // namespace cohort::train
