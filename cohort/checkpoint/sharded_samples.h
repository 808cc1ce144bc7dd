// For tests: a checkpoint of several ranks, written as ranks do (each its own thread), with tensors of awkward sizes.
#pragma once
#include <cstring>
#include <random>
#include <thread>

#include "cohort/checkpoint/contents.h"
#include "cohort/checkpoint/samples.h"
#include "cohort/checkpoint/sharded_save.h"
#include "cohort/checkpoint/staging_directory.h"

namespace cohort::checkpoint {

// Scalars, empty tensors, one element more and less than a block, several types.
inline SampleTensors awkward_model() {
  SampleTensors model(3);
  model.add("scalar", Dtype::f32, {});
  model.add("empty", Dtype::f32, {3, 0});
  model.add("odd", Dtype::f32, {257, 3});
  model.add("one", Dtype::i64, {1});
  model.add("half", Dtype::bf16, {255});
  model.add("flags", Dtype::boolean, {1023});
  return model;
}
inline SampleTensors awkward_optimizer() {
  SampleTensors optimizer(4);
  optimizer.add("odd/momentum", Dtype::f32, {257, 3});
  optimizer.add("half/momentum", Dtype::f64, {255});
  optimizer.add("empty/momentum", Dtype::f32, {3, 0});
  return optimizer;
}

// Cut at random places: each rank's files.
inline std::vector<std::vector<TensorFile>> dealt(const SampleTensors& model, const SampleTensors& optimizer, int ranks, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<TensorFile>> files(static_cast<std::size_t>(ranks));
  const auto deal = [&](std::string_view group, const SampleTensors& samples) {
    for (int r = 0; r < ranks; ++r)
      files[static_cast<std::size_t>(r)].push_back({shard_file(group, r, ranks), {}, {{"group", std::string(group)}}});
    for (const TensorView& t : samples.tensors()) {
      const std::uint64_t elements = elements_of(t.shape), each = dtype_bits(t.dtype) / 8;
      std::vector<std::uint64_t> edges{0, elements};
      for (int i = 1; i < ranks; ++i) edges.push_back(random() % (elements + 1));
      std::sort(edges.begin(), edges.end());
      for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
        const auto first = edges[i], count = edges[i + 1] - first;
        if (count == 0 && (elements > 0 || i > 0)) continue;
        const PartOf of{t.name, t.shape, first};
        const bool whole = count == elements;
        files[i].back().tensors.push_back({piece_name(of, count), t.dtype, whole ? t.shape : Shape{static_cast<std::int64_t>(count)},
                                           t.data.subspan(first * each, count * each), of});
      }
    }
  };
  deal("model", model);
  deal("optimizer", optimizer);
  return files;
}

// As the ranks of a mesh "dp=..,tp=2" have it: tensors of two dimensions are cut into boxes along `dimension`, one for each tp place, and a
// box into runs for the ranks of that place. Its bytes are those of the box, laid out flat; kept: what lives as long as the files.
inline std::vector<std::vector<TensorFile>> dealt_in_boxes(const SampleTensors& model, std::size_t dimension, int runs,
                                                           std::vector<std::vector<std::byte>>& kept) {
  constexpr int kPlaces = 2;
  const int ranks = kPlaces * runs;
  std::vector<std::vector<TensorFile>> files(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) files[static_cast<std::size_t>(r)].push_back({shard_file("model", r, ranks), {}, {{"group", "model"}}});
  for (const TensorView& t : model.tensors()) {
    const bool cut = t.shape.size() == 2 && t.shape[dimension] >= kPlaces;
    const std::size_t each = dtype_bits(t.dtype) / 8;
    for (int place = 0; place < (cut ? kPlaces : 1); ++place) {
      Box box = whole_box(t.shape);
      if (cut) {
        box.sizes[dimension] = place == 0 ? t.shape[dimension] / 2 : t.shape[dimension] - t.shape[dimension] / 2;
        box.first[dimension] = place == 0 ? 0 : t.shape[dimension] / 2;
      }
      const auto elements = static_cast<std::uint64_t>(cohort::elements_of(box));
      auto& bytes = kept.emplace_back(elements * each);
      for (const CommonRun& run : common_runs(whole_box(t.shape), box))
        std::memcpy(bytes.data() + run.in_b * each, t.data.data() + run.in_a * each, run.count * each);
      for (int k = 0; k < runs; ++k) {
        const auto first = elements * static_cast<std::uint64_t>(k) / static_cast<std::uint64_t>(runs),
                   count = elements * static_cast<std::uint64_t>(k + 1) / static_cast<std::uint64_t>(runs) - first;
        if (count == 0 && (elements > 0 || k > 0)) continue;
        const PartOf of{t.name, t.shape, first, cut ? std::optional(box) : std::nullopt};
        files[static_cast<std::size_t>(k * kPlaces + place)].back().tensors.push_back(
            {piece_name(of, count), t.dtype, count == elements ? box.sizes : Shape{static_cast<std::int64_t>(count)},
             ConstBytes(bytes).subspan(first * each, count * each), of});
      }
    }
  }
  return files;
}

// All ranks save into the folder; the outcome of each, by rank. decliners say no.
inline std::vector<std::string> save_sharded_on_threads(const Store& store, const Manifest& manifest,
                                                        const std::vector<std::vector<TensorFile>>& files, Seconds patience = Seconds{20}) {
  const int ranks = static_cast<int>(files.size());
  std::vector<std::string> outcomes(files.size(), "saved");
  auto staging = std::make_unique<StagingDirectory>(staging_path(store.folder(), manifest.step));
  const ShardedSave sharded_save{staging->path(), 0, ranks, patience};
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      const auto at = static_cast<std::size_t>(r);
      try {
        ShardedSave mine = sharded_save;
        mine.rank = r;
        if (r > 0) contribute(mine, manifest, files[at], fmt::format("{}/{}", store.folder(), step_name(manifest.step)));
        if (r > 0) return;
        const auto gone = std::move(staging);  // whatever the end: the others wait for it
        store.save(manifest, files[at], *gone, mine);
      } catch (const Failure& failure) {
        outcomes[at] = failure.what();
      }
    });
  for (auto& thread : threads) thread.join();
  return outcomes;
}

// A whole sharded checkpoint; its folder.
inline Checkpoint save_sharded(const std::string& folder, int ranks, unsigned seed = 1, std::int64_t step = 1200) {
  const auto model = awkward_model(), optimizer = awkward_optimizer();
  auto manifest = SampleCheckpoint(step).manifest;
  manifest.world_size = ranks;
  const Store store(folder);
  for (const auto& outcome : save_sharded_on_threads(store, manifest, dealt(model, optimizer, ranks, seed)))
    if (outcome != "saved") throw_failure(Kind::bug, "{}", outcome);
  return store.verify(fmt::format("{}/{}", folder, step_name(step)));
}

// Four ranks of "dp=2,tp=2".
inline Checkpoint save_in_boxes(const std::string& folder, std::size_t dimension, int runs = 2, std::int64_t step = 1200) {
  const auto model = awkward_model();
  std::vector<std::vector<std::byte>> kept;
  auto manifest = SampleCheckpoint(step).manifest;
  manifest.world_size = 2 * runs;
  const Store store(folder);
  for (const auto& outcome : save_sharded_on_threads(store, manifest, dealt_in_boxes(model, dimension, runs, kept)))
    if (outcome != "saved") throw_failure(Kind::bug, "{}", outcome);
  return store.verify(fmt::format("{}/{}", folder, step_name(step)));
}

inline bool holds(const Contents& contents, std::string_view group, const SampleTensors& samples) {
  for (const TensorView& t : samples.tensors()) {
    const StoredTensor& stored = contents.at(group, t.name);
    std::vector<std::byte> bytes(stored.bytes());
    contents.read(stored, 0, stored.elements(), bytes);
    if (stored.dtype != t.dtype || stored.shape != t.shape || !std::ranges::equal(bytes, t.data)) return false;
  }
  return true;
}

}  // namespace cohort::checkpoint
