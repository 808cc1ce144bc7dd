#include "cohort/train/loop/state_io.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "cohort/job/run_on_all.h"
#include "cohort/nn/tensor.h"
#include "cohort/train/loop/via_host.h"

namespace cohort::train {
namespace {

using checkpoint::Contents;

checkpoint::Dtype dtype_of(const at::Tensor& t) {
  switch (t.scalar_type()) {
    case at::kFloat: return checkpoint::Dtype::f32;
    case at::kDouble: return checkpoint::Dtype::f64;
    case at::kLong: return checkpoint::Dtype::i64;
    case at::kInt: return checkpoint::Dtype::i32;
    case at::kHalf: return checkpoint::Dtype::f16;
    case at::kBFloat16: return checkpoint::Dtype::bf16;
    case at::kBool: return checkpoint::Dtype::boolean;
    case at::kByte: return checkpoint::Dtype::u8;
    default: throw_failure(Kind::usage, "a tensor of type {} cannot be saved", c10::toString(t.scalar_type()));
  }
}

ConstBytes bytes_of(const at::Tensor& t) { return {static_cast<const std::byte*>(t.data_ptr()), t.nbytes()}; }
checkpoint::Shape shape_of(at::IntArrayRef sizes) { return {sizes.begin(), sizes.end()}; }

checkpoint::TensorView whole(const std::string& name, const at::Tensor& t) { return {name, dtype_of(t), shape_of(t.sizes()), bytes_of(t)}; }

checkpoint::TensorView run(const std::string& name, at::IntArrayRef sizes, std::int64_t first, std::int64_t count, const at::Tensor& flat) {
  const checkpoint::PartOf of{name, shape_of(sizes), static_cast<std::uint64_t>(first)};
  const bool all = count == c10::multiply_integers(sizes);
  return {checkpoint::piece_name(of, static_cast<std::uint64_t>(count)), dtype_of(flat), all ? of.shape : checkpoint::Shape{count},
          bytes_of(flat), of};
}

// The tensor may be on a GPU: then through a copy on the host.
void read_run(const Contents& from, const char* group, const std::string& name, at::IntArrayRef sizes, std::int64_t first,
              const at::Tensor& t) {
  const auto& stored = from.at(group, name);
  if (!std::equal(stored.shape.begin(), stored.shape.end(), sizes.begin(), sizes.end()) || stored.dtype != dtype_of(t))
    throw_failure(Kind::usage, "the checkpoint's {} does not fit the model's: another model or another data type was trained", name);
  const at::Tensor here = t.cpu();
  from.read(stored, static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(here.numel()),
            {static_cast<std::byte*>(here.data_ptr()), here.nbytes()});
  if (!t.device().is_cpu()) t.copy_(here);
}

void check_state(const Contents& from, const std::string& parameter, const std::string& state, const std::string& mine) {
  if (from.find(kOptimizerGroup, parameter + "/" + state) != nullptr) return;
  const auto& texts = from.checkpoint().manifest.texts;
  const auto rule = texts.find("optimizer");
  throw_failure(Kind::usage,
                "checkpoint {} was trained with {} and has no {} of {}, which {} needs: take the same rule, another `out`, or "
                "checkpoint.resume=never",
                from.checkpoint().path, rule == texts.end() ? "another rule" : rule->second, state, parameter, mine);
}

nn::NamedTensors replicated_tensors(TrainLoop& loop, const std::set<std::string>& sharded) {
  auto all = model_tensors(loop.model());
  std::erase_if(all, [&](const auto& entry) { return sharded.contains(entry.first); });
  return all;
}

// This rank's runs of what is sharded.
void read_shards(const Contents& from, TrainLoop& loop) {
  auto& engine = loop.engine();
  engine.each_shard(
      [&](const std::string& p, const std::string& state, at::IntArrayRef sizes, std::int64_t first, std::int64_t, const at::Tensor& flat) {
        if (state.empty() && engine.shards_parameters()) read_run(from, kModelGroup, p, sizes, first, flat);
        if (state.empty()) return;
        check_state(from, p, state, engine.rule()->spec());
        read_run(from, kOptimizerGroup, p + "/" + state, sizes, first, flat);
      });
}

}  // namespace

nn::NamedTensors model_tensors(const nn::Model& model) {
  auto all = model.named_parameters();
  for (auto& entry : model.named_buffers()) all.push_back(std::move(entry));
  return all;
}

std::set<std::string> sharded_parameters(collective::Communicator& comm, TrainLoop& loop) {
  if (!loop.engine().shards_parameters()) return {};
  std::set<std::string> mine, all;
  loop.engine().each_shard(
      [&](const std::string& p, const std::string&, at::IntArrayRef, std::int64_t, std::int64_t, const at::Tensor&) { mine.insert(p); });
  const auto names = loop.model().named_parameters();
  std::vector<std::int32_t> seen;
  for (const auto& [name, t] : names) seen.push_back(mine.contains(name) ? 1 : 0);
  comm.all_reduce(collective::piece(std::span(seen)), collective::Op::sum, {.name = "which parameters are sharded"});
  for (std::size_t i = 0; i < names.size(); ++i)
    if (seen[i] > 0) all.insert(names[i].first);
  return all;
}

void write_state(checkpoint::Snapshot& into, collective::Communicator& comm, TrainLoop& loop, const std::set<std::string>& sharded) {
  auto& engine = loop.engine();
  const int rank = comm.rank().value;
  const auto file = [&](const char* group, bool pieces) {
    return pieces ? checkpoint::shard_file(group, rank, comm.size()) : checkpoint::whole_file(group);
  };
  const auto model = file(kModelGroup, engine.shards_parameters()), optimizer = file(kOptimizerGroup, engine.shards_state());
  if (rank == 0)
    for (const auto& [name, t] : replicated_tensors(loop, sharded)) into.add(model, whole(name, t.detach().cpu()));
  engine.each_shard([&](const std::string& p, const std::string& state, at::IntArrayRef sizes, std::int64_t first, std::int64_t count,
                        const at::Tensor& flat) {
    if (!state.empty()) into.add(optimizer, run(p + "/" + state, sizes, first, count, flat));
    if (state.empty() && engine.shards_parameters()) into.add(model, run(p, sizes, first, count, flat));
  });
  if (rank == 0 || engine.shards_parameters()) into.set_metadata(model, {{"format", "pt"}, {"model", into.manifest.texts["model"]}});
  if (rank == 0 || engine.shards_state()) into.set_metadata(optimizer, {{"rule", engine.rule()->spec()}});
}

void write_state(checkpoint::Snapshot& into, const Survivor& survivor, TrainLoop& loop) {
  auto& engine = loop.engine();
  std::set<std::string> trained;
  // Parameters sharded at every stage: the lost rank may not have published all of its updates, so that only their owners have them.
  const auto write = [&](int rank) {
    return [&into, &survivor, rank](const std::string& p, const std::string& state, at::IntArrayRef sizes, std::int64_t first,
                                    std::int64_t count, const at::Tensor& flat) {
      const auto file = checkpoint::shard_file(state.empty() ? kModelGroup : kOptimizerGroup, rank, survivor.ranks);
      into.add(file, run(state.empty() ? p : p + "/" + state, sizes, first, count, flat));
    };
  };
  engine.each_shard(write(survivor.rank));
  if (survivor.rank == (survivor.lost + 1) % survivor.ranks) engine.each_buddy_shard(write(survivor.lost));
  if (!survivor.writes_common) return;
  for (const auto& name : engine.trained()) trained.insert(name);
  for (const auto& [name, t] : replicated_tensors(loop, trained))
    into.add(checkpoint::shard_file(kModelGroup, survivor.rank, survivor.ranks), whole(name, t.detach().cpu()));
}

void read_state(const checkpoint::Checkpoint& found, collective::Communicator& comm, TrainLoop& loop,
                const std::set<std::string>& sharded) {
  auto& engine = loop.engine();
  const auto replicated = replicated_tensors(loop, sharded);
  const auto states = [&](const auto& visit) {
    if (!engine.shards_state()) engine.each_state(visit);
  };
  job::run_on_all(comm, "tensors of the checkpoint", [&] {
    if (comm.rank().value != 0 && !engine.shards_state()) return;
    const Contents from(found);
    if (engine.shards_state()) read_shards(from, loop);
    if (comm.rank().value != 0) return;
    for (const auto& [name, t] : replicated) read_run(from, kModelGroup, name, t.sizes(), 0, t.detach());
    states([&](const std::string& p, const std::string& state, const at::Tensor& t) {
      if (t.numel() == 0) return;  // this rank owns none of it
      check_state(from, p, state, engine.rule()->spec());
      read_run(from, kOptimizerGroup, p + "/" + state, t.sizes(), 0, t);
    });
  });
  for (const auto& [name, t] : replicated) broadcast_via_host(comm, t.detach(), name);
  states([&](const std::string& p, const std::string& state, const at::Tensor& t) {
    nn::broadcast(comm, t, Rank{0}, {.name = p + "/" + state});
  });
  if (engine.shards_state()) engine.publish_loaded_state();
}

void load_model(const nn::Model& model, const checkpoint::Checkpoint& found) {
  const Contents from(found);
  for (const auto& [name, t] : model_tensors(model)) read_run(from, kModelGroup, name, t.sizes(), 0, t.detach());
}

}  // namespace cohort::train
