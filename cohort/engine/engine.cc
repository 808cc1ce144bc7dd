#include "cohort/engine/engine.h"

#include <fmt/format.h>
#include <malloc.h>
#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "cohort/base/heap.h"
#include "cohort/base/log.h"
#include "cohort/engine/parameter_gatherer.h"
#include "cohort/engine/publisher.h"
#include "cohort/engine/side.h"
#include "cohort/nn/tensor.h"
#include "cohort/nn/unshard/unsharder.h"
#include "cohort/sync/codec_choice.h"
#include "cohort/sync/elements.h"

namespace cohort::engine {

struct Engine::Hook final : torch::autograd::PostAccumulateGradHook {
  Hook(Engine& e, std::size_t i) : engine(e), index(i) {}
  void operator()(const at::Tensor&) override { engine.on_gradient(index); }
  Engine& engine;
  const std::size_t index;
};

namespace {

void check(const std::vector<Parameter>& parameters) {
  for (const auto& p : parameters) {
    if (!p.tensor.is_leaf()) throw_failure(Kind::usage, "parameter {} is not a leaf: pass the tensor that the module registered", p.name);
    if (p.tensor.device() != parameters[0].tensor.device())
      throw_failure(Kind::usage, "parameter {} is on {} and {} on {}: an engine trains on one device, so move the module to it", p.name,
                    p.tensor.device().str(), parameters[0].name, parameters[0].tensor.device().str());
    if (torch::autograd::impl::post_acc_grad_hooks(p.tensor))
      throw_failure(Kind::usage, "parameter {} has a hook for its gradient already: does another engine train it?", p.name);
  }
}

std::vector<Parameter> trainable(std::vector<Parameter> all) {
  std::unordered_set<const void*> seen;
  std::erase_if(all, [&](const Parameter& p) {
    return !p.tensor.requires_grad() || p.group.frozen || !seen.insert(p.tensor.unsafeGetTensorImpl()).second;
  });
  if (all.empty()) throw_failure(Kind::usage, "no parameter requires a gradient: there is nothing to train");
  return all;
}

}  // namespace

void assign_units(const nn::Model& model, std::vector<Parameter>& parameters) {
  nn::NamedTensors named;
  for (const auto& p : parameters) named.emplace_back(p.name, p.tensor);
  const auto units = nn::assign_units(model, named);
  for (std::size_t u = 0; u < units.size(); ++u)
    for (const std::size_t i : units[u]) parameters[i].unit = static_cast<int>(u);
}

namespace {

bool spans_hosts(const collective::Communicator& comm, int ranks_here) {
  return ranks_here < comm.size() && comm.transport() != "shm" && comm.transport() != "loopback";
}

EngineOptions for_the_links(EngineOptions o, bool far) {
  if (far && o.far_bucket > 0 && o.bucket > 0) o.bucket = std::min(o.bucket, o.far_bucket);
  return o;
}

// The same on every rank: they have the same parameters in the same order.
std::vector<int> spans_of(MeshSpans& spans, const std::vector<Parameter>& parameters) {
  std::vector<int> all;
  for (const Parameter& p : parameters) all.push_back(spans.number_of(p.over));
  return all;
}

// The setting, or what it chooses: collective then. With gradients that are sent in every backward, or updated at once, no codec that keeps
// what it does not send can be taken.
std::string chosen_codec(collective::Communicator& comm, const EngineOptions& options, const std::vector<Parameter>& parameters,
                         const sync::Placement& placement) {
  const std::string spec = codec_of(options);
  if (!sync::is_codec_auto(spec)) return spec;
  std::vector<TensorPlace> tensors;
  bool floats = true;
  for (const Parameter& p : parameters) {
    tensors.push_back({p.name, 0, static_cast<std::size_t>(p.tensor.numel()), p.tensor.sizes().vec()});
    floats = floats && p.tensor.scalar_type() == at::kFloat && p.tensor.device().is_cpu();
  }
  const bool feedback = !options.early_update && !placement.gathers_gradients();
  const sync::CodecChoice choice =
      floats ? sync::choose_codec(comm, spec, tensors, options.bucket, {.feedback = feedback})
             : sync::CodecChoice{"none", "codec=auto takes none: parameters are not all f32 in memory of the CPU"};
  if (comm.rank() == Rank{0}) log_info("{}", choice.why);
  return choice.codec;
}

std::shared_ptr<const codec::Codec> make_codec(const std::string& spec) {
  return spec == "none" ? nullptr : std::shared_ptr<const codec::Codec>(codec::make(spec));
}

}  // namespace

Engine::Engine(collective::Communicator& comm, std::vector<Parameter> parameters, EngineOptions options,
               std::unique_ptr<optim::Optimizer> rule, int cores, int ranks_here)
    : comm_(comm),
      options_(for_the_links(std::move(options), spans_hosts(comm, ranks_here))),
      parameters_(trainable(std::move(parameters))),
      rule_(std::move(rule)),
      strategy_(sync::make(options_.strategy)),
      spans_(comm.size(), options_.mesh, comm.rank()),
      span_of_(spans_of(spans_, parameters_)),
      comms_(comm, spans_, false),
      placement_(placement_of(0)),
      codec_(make_codec(chosen_codec(comm_, options_, parameters_, placement_))),
      lanes_(comm_, spans_, comms_, buckets_, arrivals_, context(), placement_.gathers_gradients()) {
  check(parameters_);
  refuse_options();
  refuse_on_mesh();
  refuse_on_gpu();
  const cuda::OnStream on(gpu_stream());
  std::vector<std::size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});  // gradients come from the back of the model to its front
  if (pooled()) pool_ = std::make_unique<sync::BufferPool>(comm_, device());
  make_buckets(order);
  malloc_trim(0);  // what parameters leave behind would stay with this process, in pieces
  keep_freed_memory();
  arrivals_.clear_touched(parameters_.size());
  lanes_.open(choose_lanes(options_.lanes, cores, ranks_here, buckets_.size(), spans_hosts(comm_, ranks_here)), options_.lanes >= 0);
  if (placement_.gathers_parameters()) open_gatherer();
  open_publisher(spans_hosts(comm_, ranks_here));
  if (rule_ && (rule_->needs().taps || rule_->needs().side)) open_side();
  open_strategy();
  for (std::size_t i = 0; i < parameters_.size(); ++i)  // last, because a failure above would leave them on the tensors
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].tensor, std::make_unique<Hook>(*this, i));
}

// Combinations that cannot be, each with the reason.
void Engine::refuse_options() const {
  const auto refuse = [](bool wrong, const auto& reason) {
    if (wrong) throw_failure(Kind::usage, "{}", reason());
  };
  const bool early = options_.early_update, alone = strategy_->semantics().commit_scope == sync::Scope::self;
  const std::string& sync = options_.strategy;
  const bool served = strategy_->semantics().served;
  refuse(served && !rule_, [&] { return fmt::format("sync={} without an optimizer: servers have no update to make", sync); });
  refuse(served && rule_ && !strategy_->refusal_of(*rule_).empty(), [&] {
    return fmt::format("sync={} with {}: {}; take sgd, adam, adagrad or another rule of single elements", sync, rule_->spec(),
                       strategy_->refusal_of(*rule_));
  });
  refuse(served && options_.publish == PublishWhen::beside, [&] {
    return fmt::format("engine.publish=beside with sync={}: servers send parameters when they are as fresh as the clock says; take auto",
                       sync);
  });
  refuse(early && !rule_, [] { return "early_update without an optimizer: there is nothing to update early"; });
  refuse(placement_.sharded() && !rule_, [&] { return fmt::format("sync={} without an optimizer: there is no update to shard", sync); });
  refuse(alone && !rule_, [&] { return fmt::format("sync={} without an optimizer: ranks exchange models that nobody updates", sync); });
  refuse(early && rule_->needs().rounds > 0, [&] {
    return fmt::format("early_update with {}: it needs the size of whole tensors before it updates a part; turn off early_update",
                       rule_->spec());
  });
  refuse(early && rule_->needs().grain == optim::Grain::tensor, [&] {
    return fmt::format(
        "early_update with {}: it computes with whole tensors, for so long that a lane would reduce nothing meanwhile; turn "
        "off early_update",
        rule_->spec());
  });
  refuse(early && rule_->needs().taps, [&] {
    return fmt::format("early_update with {}: what layers saw is known when backward has ended; turn off early_update", rule_->spec());
  });
  refuse(alone && rule_ && rule_->needs().taps, [&] {
    return fmt::format("sync={} with {}: what layers saw is summed over all ranks in every step, and here each steps by itself", sync,
                       rule_->spec());
  });
  refuse((early || alone) && rule_ && rule_->needs().loss, [&] {
    return fmt::format("{} with {}: it looks at the loss of all ranks, which comes with a vote of every step; take sync=all_reduce or zero",
                       early ? "early_update" : "sync=" + sync, rule_->spec());
  });
  refuse(options_.clip_norm > 0 && rule_ && rule_->needs().loss, [&] {
    return fmt::format("engine.clip_norm with {}: a clipped gradient is not that of the loss it looks at; turn it off", rule_->spec());
  });
  refuse(early && has_buddy(), [&] {
    return fmt::format("early_update with {}: a step in which a rank is lost could not be finished; turn off one of them", sync);
  });
  refuse(early && options_.clip_norm > 0,
         [] { return "early_update updates before the norm of the whole gradient is known: turn off it or clip_norm"; });
  refuse(early && alone, [&] { return fmt::format("early_update with {}: it sends no gradients to wait for; turn it off", sync); });
  refuse(early && codec_ && codec_->feedback(), [&] {
    return fmt::format("early_update with codec={}: what a codec keeps follows the verdict of the step; turn off one of them",
                       codec_->spec());
  });
  if (codec_ && rule_) codec::check_optimizer(*codec_, rule_->spec());
  refuse(codec_ && codec_->momentum() && strategy_->semantics().drifts(), [&] {
    return fmt::format(
        "codec={} with sync={}: ranks that train by themselves send no gradients, and would have no momentum then; take topk and an "
        "optimizer with momentum",
        codec_->spec(), sync);
  });
  refuse(alone && codec_ && strategy_->schedule(1).commit == sync::Scope::self, [&] {
    return fmt::format("codec={} with sync={}: {}; take codec=none", codec_->spec(), sync,
                       served ? "servers take gradients as they are" : "it is for gradients, and this strategy sends models");
  });
}

// What is not written for parameters that ranks of a mesh share out.
void Engine::refuse_on_mesh() const {
  if (spans_.plain()) return;
  const auto refuse = [&](bool wrong, const std::string& what, std::string_view why) {
    if (wrong) throw_failure(Kind::usage, "mesh={} does not go with {}: {}", spans_.mesh().text(), what, why);
  };
  const std::string sync = fmt::format("sync={}", options_.strategy);
  refuse(strategy_->semantics().drifts(), sync,
         "replicas that drift are averaged over all ranks, and here not all have the same parameters");
  refuse(strategy_->semantics().served, sync, "tables of servers know no boxes of parameters; leave mesh out");
  refuse(placement_.buddy, sync, "a lost rank takes its boxes with it, and buddies know none; leave buddy=true out");
  refuse(placement_.gathers_parameters() && spans_.count() > 1, sync,
         "parameters whose gradients are summed over different axes are not gathered together; take stage 2");
  const optim::Needs needs = rule_ ? rule_->needs() : optim::Needs{};
  refuse(needs.grain == optim::Grain::tensor || needs.taps, rule_ ? rule_->spec() : "",
         "the rule computes with whole tensors and layers, of which each rank has a part here; take one of single elements");
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    refuse(options_.norms && span_of_[i] != 0, "engine.norms",
           fmt::format("the gradient of {} is whole only when it is summed over more than dp", parameters_[i].name));
}

Device Engine::device() const { return placement_.copies_to_device() ? Device::cpu : nn::device_of_tensor(parameters_[0].tensor); }

// What keeps or sends models in the host's memory, or computes there with whole tensors.
void Engine::refuse_on_gpu() const {
  if (device().kind == DeviceKind::cpu) return;
  const std::string where = parameters_[0].tensor.device().str(), sync = fmt::format("sync={}", options_.strategy);
  if (!cuda::available()) cuda::throw_unavailable(fmt::format("parameters on {}", where));
  const auto refuse = [&](bool wrong, const std::string& what, std::string_view why) {
    if (wrong) throw_failure(Kind::usage, "{} with parameters on {}: {}", what, where, why);
  };
  refuse(strategy_->semantics().drifts() || strategy_->semantics().served || !strategy_->slots().empty(), sync,
         "it exchanges models through the host's memory; take all_reduce or zero, or train on the CPU");
  refuse(!placement_.folder.empty(), sync, "files are mapped into the host's memory; take offload=host, or none");
  refuse(placement_.buddy, sync, "buddy copies lie in the host's memory; leave buddy=true out");
  refuse(codec_ != nullptr, codec_ ? fmt::format("codec={}", codec_->spec()) : "", "codecs read the host's memory; take codec=none");
  refuse(!spans_.plain(), fmt::format("mesh={}", options_.mesh),
         "layers that ranks share out send activations from the host's memory; take dp alone");
  if (rule_)
    refuse(!rule_->runs_on_gpus(), rule_->spec(),
           "the rule computes with whole tensors on the processor; take one of single elements, or sync=zero(stage=2, offload=host)");
}

sync::Placement Engine::placement_of(int span) const {
  sync::Placement placement = strategy_->placement(spans_.place(span), spans_.ranks(span));
  placement.span = span;
  return placement;
}

bool Engine::has_boxes() const {
  return std::ranges::any_of(parameters_, [](const Parameter& p) { return !p.shard.name.empty(); });
}

// Slots begin as their specs say: all ranks hold the same parameters here.
void Engine::open_strategy() {
  std::vector<sync::Bucket*> all;
  for (const auto& b : buckets_) {
    all.push_back(b.get());
    for (const auto& slot : strategy_->slots()) {
      b->open_slot(slot.name, slot.in_communicator ? &comm_ : nullptr, slot.per_tensor);
      sync::begin_slot(*b, slot);
    }
  }
  sync::Site site{comm_, all, rule_.get()};
  strategy_->open(site);
}

void Engine::open_side() {
  nn::NamedTensors named;
  for (const auto& p : parameters_) named.emplace_back(p.name, p.tensor);
  side_ = std::make_unique<EngineSide>(comm_, named);
  side_->set_averages(averages());
}

Engine::~Engine() {
  unsharder_.reset();
  gatherer_.reset();
  publisher_.reset();
  lanes_.close();
  strategy_.reset();  // before the memory that it moves, in which threads of its own may work
  for (auto& p : parameters_) torch::autograd::impl::set_post_acc_grad_hooks(p.tensor, nullptr);
}

void Engine::open_gatherer() {
  std::vector<const Bucket*> sharded;
  std::vector<nn::Unit> units;
  for (const auto& b : buckets_) {
    if (!b->placement().gathers_parameters()) continue;
    nn::Unit unit{.name = b->name(), .members = {}, .bytes = b->bytes(), .on_device = b->placement().copies_to_device()};
    for (std::size_t i = 0; i < b->members().size(); ++i)
      unit.members.push_back({b->members()[i].name, b->param(i), b->members()[i].first * size_of(b->type())});
    sharded.push_back(b.get());
    units.push_back(std::move(unit));
  }
  if (sharded.empty())
    throw_failure(Kind::usage,
                  "sync={} shards parameters block by block, and no parameter is in a block: name the model's blocks, or take "
                  "stage 2",
                  options_.strategy);
  gatherer_ = std::make_unique<ParameterGatherer>(comms_.of(0), std::move(sharded), lanes_.empty() ? nullptr : comms_.of(0).split(0));
  unsharder_ = std::make_unique<nn::Unsharder>(*gatherer_, std::move(units));
  malloc_trim(0);
}

void Engine::open_publisher(bool far) {
  if (options_.publish == PublishWhen::wait || (options_.publish == PublishWhen::automatic && !far)) return;
  const auto reason = [&]() -> std::string_view {
    if (strategy_->semantics().served) return "servers send what is new";
    if (!placement_.sharded()) return "there is nothing to publish: every rank updates all parameters";
    if (placement_.gathers_parameters()) return "parameters are gathered block by block there already";
    if (placement_.copies_to_device()) return "the host sends updated parameters to the GPU when all of them are there";
    if (device().kind == DeviceKind::cuda) return "a GPU's parameters are published on its stream, beside what the host does next";
    if (options_.early_update) return "engine.early_update publishes beside backward";
    if (std::ranges::all_of(parameters_, [](const Parameter& p) { return p.unit < 0; }))
      return "no parameter is in a block that could wait";
    return {};
  }();
  if (reason.empty()) {
    publisher_ = std::make_unique<Publisher>(SpanComms(comm_, spans_, true), *strategy_, comm_.rank());
  } else if (options_.publish == PublishWhen::beside) {
    throw_failure(Kind::usage, "engine.publish=beside with sync={}: {}; take auto", options_.strategy, reason);
  }
}

// Which of them a block reads.
std::vector<const sync::Bucket*> Engine::buckets_of(const nn::Block& block) const {
  std::vector<const sync::Bucket*> all;
  for (const auto& module : block.modules)
    for (const at::Tensor& p : module->parameters()) {
      const auto found = bucket_by_tensor_.find(p.unsafeGetTensorImpl());
      if (found != bucket_by_tensor_.end()) all.push_back(found->second);
    }
  return all;
}

// 6 In blocks the next forward waits for it; what is read outside of them has to be there when the step ends.
void Engine::publish(Bucket& bucket) {
  const auto in_block = [&](const sync::Member& m) { return parameters_[m.order].unit >= 0; };
  if (publisher_ && gated_ && std::ranges::all_of(bucket.members(), in_block)) return publisher_->start(bucket, wire(bucket));
  engine::publish(bucket, update_context(), wire(bucket));
}

void Engine::await_parameters() const {
  if (publisher_) publisher_->await_all();
}

}  // namespace cohort::engine
