// What a batch costs to load and to augment on one core: loading_bench [transforms] [batch]
// Shuffled samples out of 60000 images of 28 x 28 bytes in memory, as the loader's thread makes them. One JSON line: microseconds a batch.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>

#include "cohort/base/error.h"
#include "cohort/data/batch.h"
#include "cohort/data/transform.h"

using namespace cohort::data;

namespace {

MemoryDataset images(std::int64_t count) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count * 28 * 28));
  std::minstd_rand dice(1);
  for (auto& pixel : pixels) pixel = static_cast<std::uint8_t>(dice() >> 11);
  return MemoryDataset({.shape = {1, 28, 28}, .classes = 10}, "noise", pixels,
                       std::vector<std::int64_t>(static_cast<std::size_t>(count), 1));
}

std::vector<double> time_batches(const MemoryDataset& set, const Transforms& transforms, std::int64_t batch) {
  using Clock = std::chrono::steady_clock;
  std::vector<std::int64_t> order(static_cast<std::size_t>(set.size())), labels(static_cast<std::size_t>(batch));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::minstd_rand(2));
  std::vector<float> out(static_cast<std::size_t>(batch * 28 * 28));
  TransformScratch scratch;
  std::vector<double> taken;
  for (std::int64_t epoch = 0; epoch < 5; ++epoch)
    for (std::int64_t at = 0; at + batch <= set.size(); at += batch) {
      const auto start = Clock::now();
      const CollateOptions how{.set = set, .transforms = transforms, .seed = 1, .epoch = epoch};
      collate(how, std::span(order).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(batch)), {out.data(), labels.data()},
              scratch);
      taken.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
  std::sort(taken.begin(), taken.end());
  return taken;
}

}  // namespace

int main(int count, char** words) {
  try {
    const char* list = count > 1 ? words[1] : "rotate, normalise";
    const std::int64_t batch = count > 2 ? std::clamp(std::atoll(words[2]), 1LL, 60000LL) : 64;
    const MemoryDataset set = images(60000);
    const auto us = time_batches(set, Transforms::parse(list, set), batch);
    std::printf("{\"transforms\":\"%s\",\"batch\":%lld,\"median_us\":%.1f,\"low_us\":%.1f,\"high_us\":%.1f}\n", list,
                static_cast<long long>(batch), us[us.size() / 2], us[us.size() / 10], us[us.size() * 9 / 10]);
    return 0;
  } catch (const cohort::Failure& failure) {
    std::fprintf(stderr, "loading_bench: %s\n", failure.what());
    return 2;
  }
}
