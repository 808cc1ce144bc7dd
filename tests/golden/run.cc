#include "tests/golden/run.h"

#include <torch/torch.h>

#include <algorithm>
#include <mutex>

#include "cohort/base/ledger.h"
#include "cohort/checkpoint/sha256.h"
#include "cohort/collective/ranks.h"
#include "cohort/engine/engine.h"
#include "cohort/nn/unshard/unsharder.h"
#include "tests/golden/allocations.h"
#include "tests/golden/numbers.h"

namespace cohort::golden {
namespace {

using collective::Communicator;

struct Net {
  std::vector<std::shared_ptr<Block>> blocks;
  Net() {
    for (std::size_t i = 0; i < kSizes.size(); ++i) blocks.push_back(std::make_shared<Block>(i));
  }
  std::vector<engine::Parameter> parameters() const {
    std::vector<engine::Parameter> all;
    for (std::size_t i = 0; i < blocks.size(); ++i)
      all.push_back({"b" + std::to_string(i) + ".p", blocks[i]->p, {.weight_decay = i % 2 == 0 ? 0.1 : 0}, static_cast<int>(i)});
    return all;
  }
};

// The gradient of a parameter is the tensor that it is multiplied with.
void backward(const Net& net, engine::Engine& engine, std::uint64_t stream) {
  at::Tensor x = at::zeros({}).requires_grad_(true);
  for (std::size_t i = 0; i < net.blocks.size(); ++i) {
    const Block& block = *net.blocks[i];
    const auto forward = [&](const at::Tensor& in) { return in + (block.p * numbers(kSizes[i], stream * 100 + i)).sum(); };
    x = engine.shards_parameters() ? engine.unsharder().run("b" + std::to_string(i), block, x, forward) : forward(x);
  }
  x.backward();
}

void add(checkpoint::Sha256& hash, const at::Tensor& t) {
  const at::Tensor whole = t.detach().contiguous();
  hash.add({static_cast<const std::byte*>(whole.const_data_ptr()), whole.nbytes()});
}

// Hashes of single ranks, in their order.
class ByRank {
 public:
  explicit ByRank(int ranks) : all_(static_cast<std::size_t>(ranks)) {}
  void set(Rank rank, std::string text) {
    const std::lock_guard lock(mutex_);
    all_[static_cast<std::size_t>(rank.value)] = std::move(text);
  }
  bool equal() const {
    return std::ranges::all_of(all_, [&](const auto& one) { return one == all_[0]; });
  }
  const std::string& first() const { return all_[0]; }
  std::string joined() const {
    std::string text;
    for (const auto& one : all_) text += one;
    return text;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> all_;
};

std::string hash_of_shards(const engine::Engine& engine, int rank) {
  checkpoint::Sha256 hash;
  engine.visit([&](const StateItem& item) {
    if (item.share == Share::each || (item.share == Share::identical && rank != 0)) return;
    const std::string place = std::string(item.parameter) + "/" + std::string(item.state) + "/" + std::to_string(item.run.first) + "/" +
                              std::to_string(item.run.count) + ";";
    hash.add({reinterpret_cast<const std::byte*>(place.data()), place.size()});
    add(hash, engine::borrowed(item.values));
  });
  return hash.hex();
}

struct Found {
  explicit Found(int ranks) : parameters(ranks), shards(ranks), norms(ranks) {}
  ByRank parameters, shards, norms;
  TrainedRun run;
  std::mutex mutex;
};

void note_memory(const engine::Engine& engine, Communicator& comm, Found& found) {
  comm.barrier();
  if (comm.rank().value == 0) {
    const Ledger& ledger = Ledger::process();
    found.run.held[0] = ledger.of(MemoryClass::parameters).now;
    found.run.held[1] = ledger.of(MemoryClass::gradients).now;
    found.run.held[2] = ledger.of(MemoryClass::optimizer).now;
    found.run.in_flight = engine.bytes_in_flight();
  }
  comm.barrier();
}

void note_results(const Net& net, engine::Engine& engine, Communicator& comm, Found& found, const std::vector<double>& norms) {
  found.shards.set(comm.rank(), hash_of_shards(engine, comm.rank().value));
  note_memory(engine, comm, found);
  std::uint64_t moved = 0;
  for (const auto which : {collective::Collective::all_reduce, collective::Collective::reduce_scatter, collective::Collective::all_gather,
                           collective::Collective::broadcast, collective::Collective::all_to_all})
    moved += comm.moved(which).bytes;
  engine.make_whole();
  checkpoint::Sha256 parameters, of_norms;
  for (const auto& block : net.blocks) add(parameters, block->p);
  of_norms.add({reinterpret_cast<const std::byte*>(norms.data()), norms.size() * sizeof(double)});
  found.parameters.set(comm.rank(), parameters.hex());
  found.norms.set(comm.rank(), of_norms.hex());
  const std::lock_guard lock(found.mutex);
  found.run.moved += moved;
}

void train_rank(const Case& one, Communicator& comm, Found& found) {
  at::set_num_threads(1);
  const Net net;
  auto options = one.options;
  options.strategy = one.strategy;
  auto rule = optim::make(one.rule);
  const double lr = rule->default_lr();
  engine::Engine engine(comm, net.parameters(), options, std::move(rule), 2, comm.size());
  std::vector<double> norms;
  std::uint64_t fewest = UINT64_MAX;
  for (int step = 1; step <= one.steps; ++step) {
    std::uint64_t asked = 0;
    for (int k = 1; k <= one.backwards; ++k) {
      const std::size_t before = allocations();
      engine.begin({.step = step, .lr = lr / step}, k == one.backwards);
      asked += allocations() - before;
      backward(net, engine, static_cast<std::uint64_t>((step * 10 + k) * 10 + comm.rank().value));
    }
    const std::size_t before = allocations();
    const engine::Verdict verdict = engine.finish();
    asked += allocations() - before;
    if (step > 1) fewest = std::min(fewest, asked);
    for (const double norm : {verdict.squared_before, verdict.squared_after, verdict.clip}) norms.push_back(norm);
  }
  if (comm.rank().value == 0) found.run.allocations = fewest;
  note_results(net, engine, comm, found, norms);
}

std::string short_hash(const std::string& text) {
  checkpoint::Sha256 hash;
  hash.add({reinterpret_cast<const std::byte*>(text.data()), text.size()});
  return hash.hex().substr(0, 16);
}

}  // namespace

TrainedRun train(const Case& one) {
  Found found(one.ranks);
  collective::run_ranks(one.ranks, [&](Communicator& comm) { train_rank(one, comm, found); });
  found.run.parameters = found.parameters.equal() ? short_hash(found.parameters.first()) : "differ";
  found.run.norms = found.norms.equal() ? short_hash(found.norms.first()) : "differ";
  found.run.shards = short_hash(found.shards.joined());
  return found.run;
}

}  // namespace cohort::golden
