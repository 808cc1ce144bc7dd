#include "cohort/ddp/data_parallel.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/torch.h>

#include <sstream>

#include "cohort/ddp/same_module.h"
#include "cohort/engine/engine.h"
#include "cohort/job/job.h"
#include "cohort/nn/tensor.h"

namespace cohort::ddp {
namespace {

// As torch::optim's, an optimizer decays every parameter.
std::vector<engine::Parameter> parameters_of(const torch::nn::Module& module, const optim::Optimizer* rule) {
  const optim::Group group{.weight_decay = rule != nullptr ? rule->default_weight_decay() : 0};
  std::vector<engine::Parameter> all;
  for (const auto& item : module.named_parameters()) all.push_back({item.key(), item.value(), group});
  return all;
}

engine::EngineOptions options_of(const DataParallelOptions& o) {
  engine::EngineOptions options{
      .strategy = o.strategy, .codec = o.codec, .first_bucket = o.first_bucket, .bucket = o.bucket, .lanes = o.lanes};
  options.clip_norm = o.clip_norm;
  return options;
}

std::unique_ptr<optim::Optimizer> rule_of(const DataParallelOptions& o) {
  if (!o.optimizer.empty()) return optim::make(o.optimizer);
  if (o.clip_norm > 0)
    throw_failure(Kind::usage,
                  "DataParallel: clip_norm is for .optimizer; with one of torch::optim call torch::nn::utils::clip_grad_norm_");
  return nullptr;
}

// Buffers may be strided (a view of something): collectives carry blocks of memory.
void broadcast(collective::Communicator& comm, const std::string& name, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor block = tensor.detach().contiguous();
  nn::broadcast(comm, block, Rank{0}, {.name = name});
  if (block.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(block);
}

// In which ranks must agree; of lanes all open as many as the host with the fewest cores.
std::vector<std::string> lines_of(const DataParallelOptions& o) {
  return {fmt::format("strategy: {}", without_folder(o.strategy)),
          fmt::format("codec: {}", o.codec),
          fmt::format("optimizer: {}", o.optimizer.empty() ? "none" : o.optimizer),
          fmt::format("clip_norm: {}", o.clip_norm),
          fmt::format("first_bucket: {} bytes", o.first_bucket.value),
          fmt::format("bucket: {} bytes", o.bucket.value)};
}

engine::Engine open_engine(collective::Communicator& comm, torch::nn::Module& module, const DataParallelOptions& options, int cores,
                           int ranks_here) {
  check_same_options(comm, "DataParallel", lines_of(options));
  check_same(comm, describe(module));
  for (const auto& item : module.named_parameters()) broadcast(comm, item.key(), item.value());
  auto rule = rule_of(options);
  auto parameters = parameters_of(module, rule.get());
  return engine::Engine(comm, std::move(parameters), options_of(options), std::move(rule), cores, ranks_here);
}

}  // namespace

struct DataParallel::Impl {
  Impl(collective::Communicator& c, torch::nn::Module& m, const DataParallelOptions& options, int cores, int ranks_here)
      : comm(c), module(m), core(open_engine(c, m, options, cores, ranks_here)) {
    if (core.rule() != nullptr) lr = core.rule()->default_lr();
    if (core.rule() != nullptr) return;  // step() ends what backward began
    core.on_first_gradient([this] { torch::autograd::Engine::get_default_engine().queue_callback([this] { end_of_backward(); }); });
  }
  void begin() { core.begin({.step = steps + 1, .lr = lr}, pauses == 0); }
  void end_of_backward() {
    last = core.finish();
    begin();
  }

  collective::Communicator& comm;
  torch::nn::Module& module;
  engine::Engine core;
  engine::Verdict last;
  double lr = 1;  // without a rule a gradient is worth what it is: codecs keep what they do not send in units of it
  std::int64_t steps = 0;
  int pauses = 0;
};

DataParallel::DataParallel(Job& job, torch::nn::Module& module, const DataParallelOptions& options)
    : DataParallel(job.comm(), module, options, job.suggested_threads() * job.local_size(), job.local_size()) {}

DataParallel::DataParallel(collective::Communicator& comm, torch::nn::Module& module, const DataParallelOptions& options, int cores,
                           int ranks_here)
    : impl_(std::make_unique<Impl>(comm, module, options, cores, ranks_here)) {
  sync_buffers(Buffers::broadcast);
  impl_->begin();
}

DataParallel::~DataParallel() = default;

DataParallel::Pause::Pause(DataParallel* ddp) : ddp_(ddp) {
  ++ddp_->impl_->pauses;
  ddp_->impl_->begin();
}

DataParallel::Pause::~Pause() {
  --ddp_->impl_->pauses;
  ddp_->impl_->begin();
}

void DataParallel::broadcast_parameters() {
  for (const auto& bucket : impl_->core.buckets()) bucket->attach_parameters();
  impl_->core.begin_strategy_anew();  // on every rank before any goes on: ranks that answer at any time mix nothing old into what comes
  impl_->comm.barrier();
  for (const auto& item : impl_->module.named_parameters()) broadcast(impl_->comm, item.key(), item.value());
  impl_->core.begin_strategy_anew();
  sync_buffers(Buffers::broadcast);
}

void DataParallel::sync_buffers(Buffers how) {
  for (const auto& item : impl_->module.named_buffers()) {
    if (!item.value().defined()) continue;
    const at::Tensor block = item.value().detach();
    if (how == Buffers::broadcast || !block.is_floating_point()) {
      broadcast(impl_->comm, item.key(), block);
      continue;
    }
    const at::Tensor mine = block.contiguous();
    nn::all_reduce(impl_->comm, mine, collective::Op::average, {.name = item.key()});
    if (mine.data_ptr() != block.data_ptr()) block.copy_(mine);
  }
}

void DataParallel::broadcast_optimizer_state(torch::optim::Optimizer& optimizer) {
  auto& comm = impl_->comm;
  const bool root = comm.rank() == Rank{0};
  std::string bytes;
  if (root) {
    torch::serialize::OutputArchive archive;
    optimizer.save(archive);
    std::ostringstream out;
    archive.save_to(out);
    bytes = out.str();
  }
  std::int64_t size = static_cast<std::int64_t>(bytes.size());
  comm.broadcast(collective::piece(std::span(&size, 1)), Rank{0}, {.name = "size of the optimizer's state"});
  bytes.resize(static_cast<std::size_t>(size));
  comm.broadcast({bytes.data(), bytes.size(), collective::Dtype::u8, collective::Device::cpu}, Rank{0}, {.name = "the optimizer's state"});
  if (root) return;
  try {
    torch::serialize::InputArchive archive;
    archive.load_from(bytes.data(), bytes.size());
    optimizer.state().clear();  // what rank 0 has no state for has none here
    optimizer.load(archive);
  } catch (const c10::Error& error) {
    throw_failure(Kind::usage, "rank 0's optimizer does not fit rank {}'s: {}; make the same one on every rank", comm.rank().value,
                  error.what_without_backtrace());
  }
}

void DataParallel::set_lr(double lr) {
  if (impl_->core.rule() == nullptr)
    throw_failure(Kind::usage, "DataParallel::set_lr() without .optimizer: set the rate of the program's own optimizer");
  impl_->core.set_rate(lr);
  impl_->lr = lr;
}

engine::Verdict DataParallel::step() { return step(impl_->lr); }

engine::Verdict DataParallel::step(double lr) {
  if (impl_->core.rule() == nullptr)
    throw_failure(Kind::usage, "DataParallel::step() without .optimizer: call step() of the program's own optimizer");
  for (const auto& bucket : impl_->core.buckets()) bucket->refuse_parameters_elsewhere();
  impl_->core.set_rate(lr);
  impl_->last = impl_->core.finish();
  if (impl_->last.committed) ++impl_->steps;
  impl_->begin();
  return impl_->last;
}

std::unique_ptr<engine::Consensus> DataParallel::consensus() { return std::make_unique<engine::Consensus>(impl_->core); }

bool DataParallel::finite() const { return impl_->last.committed; }
std::size_t DataParallel::buckets() const { return impl_->core.buckets().size(); }

}  // namespace cohort::ddp
