#include "cohort/train/config.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/spec.h"
#include "cohort/collective/plugin/backend.h"
#include "cohort/data/dataset.h"
#include "cohort/data/sampler.h"
#include "cohort/data/transform.h"
#if __has_include("cohort/nn/models_words.h")  // generated where there is torch
#include "cohort/nn/losses_words.h"
#include "cohort/nn/models_words.h"
#endif
#include "cohort/base/model_sizes.h"
#include "cohort/codec/codec_row.h"
#include "cohort/group/device_mesh.h"
#include "cohort/optim/groups.h"
#include "cohort/optim/loss_scale.h"
#include "cohort/optim/rule.h"
#include "cohort/optim/schedule.h"
#include "cohort/plan/recompute_choice.h"
#include "cohort/sync/codec_choice.h"
#include "cohort/sync/strategy_row.h"

namespace cohort::train {
namespace {

#if __has_include("cohort/nn/models_words.h")
constexpr auto& kModels = nn::kModelsWords;
constexpr auto& kLosses = nn::kLossesWords;
#else
constexpr std::string_view kModels[] = {"(this build has no torch, and no models)"};
constexpr std::string_view kLosses[] = {"(this build has no torch, and no losses)"};
#endif

// The variants of a setting as its documentation names them, from the tables that also make them: "sgd(..), adam(..)".
std::string listed(const SpecSchema& schema) { return schema.name() + (schema.params().empty() ? "" : "(..)"); }
std::string listed(const SpecSchema* schema) { return listed(*schema); }
template <class Row>
std::string listed(const Row* row) {
  return listed(row->schema());
}

template <class Table>
std::string list_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& row : table) names.push_back(listed(row));
  return fmt::format("{}", fmt::join(names, ", "));
}

// "zero(stage=1..3, op=average|sum, buddy=, offload=)"
std::string with_parameters(const SpecSchema& schema) {
  std::vector<std::string> params;
  for (const SpecParam& p : schema.params()) {
    const bool range = p.type == SpecParam::Type::integer && p.high < 10;  // few enough to be words
    params.push_back(range ? fmt::format("{}={}..{}", p.name, p.low, p.high) : fmt::format("{}={}", p.name, fmt::join(p.words, "|")));
  }
  return fmt::format("{}({})", schema.name(), fmt::join(params, ", "));
}

std::string strategies() {
  std::vector<std::string> all;
  for (const sync::StrategyRow* row : sync::strategies()) all.push_back(with_parameters(row->schema()));
  return fmt::format("{}", fmt::join(all, ", "));
}

std::string schedules() {
  const auto& params = optim::Schedule::schemas().front()->params();  // every schedule has warmup and scale
  const auto scale = std::find_if(params.begin(), params.end(), [](const SpecParam& p) { return p.name == "scale"; });
  return fmt::format("{}, each with warmup= and scale={}", list_of(optim::Schedule::schemas()), fmt::join(scale->words, "|"));
}

std::string models() {
  std::vector<std::string_view> sizes;
  for (const auto& size : kModelSizes) sizes.push_back(size.word);
  return fmt::format("{}, with parameters in parentheses; or a model of a known size: {}", fmt::join(kModels, ", "),
                     fmt::join(sizes, ", "));
}

Words samplers() {
  Words words;
  for (const data::Sampler* sampler : data::sampler_rows()) words.emplace_back(sampler->name);
  return words;
}

}  // namespace

void fields(DataConfig& c, FieldList& f) {
  f("train", c.train, "training set: " + list_of(data::dataset_rows()));
  f("test", c.test, "set that is evaluated each epoch; empty: none");
  f("transforms", c.transforms, "list, the random ones for training only: " + list_of(data::transform_rows()));
  f("sampler", c.sampler, samplers(), "order of samples: partition gives every sample once per epoch over all ranks");
  f("batch", c.batch, Range{1, 1e6}, "samples a rank takes at once");
  f("accumulate", c.accumulate, Range{1, 1e4}, "batches whose gradients are added up before ranks communicate");
  f("drop_last", c.drop_last, "leave out a last batch that is not full");
  f("threads", c.threads, Range{0, 64}, "threads of each rank that make batches ahead; 0: made by the training thread");
  f("max_pixels", c.max_pixels, Range{1, 1e12},
    "pixels of one picture, as its file declares it; larger ones are refused, a JPEG in several scans from a third on");
  f("max_scans", c.max_scans, Range{1, 1e6}, "passes of a progressive JPEG over its picture");
  f("max_inflate_ratio", c.max_inflate_ratio, Range{1, 1e6}, "bytes that one byte of a gzip file may become, beyond the first 16 MiB");
}

void fields(OptimizerConfig& c, FieldList& f) {
  f("schedule", c.schedule, schedules());
  f("decay_1d", c.decay_1d, "decay biases and weights of normalisations too");
  f("frozen", c.frozen, "patterns of parameters that stay as they are");
  f("lr_scale", c.lr_scale, "rules like 'head.*: 10': these parameters learn that much faster");
  f("label_smoothing", c.label_smoothing, Range{0, 1}, "share of the target spread over all classes");
}

void fields(CheckpointConfig& c, FieldList& f) {
  f("every_steps", c.every_steps, Range{0, 1e9}, "steps between checkpoints; 0: by epochs only");
  f("every_epochs", c.every_epochs, Range{0, 1e6}, "epochs between checkpoints; 0: by steps only");
  f("keep", c.keep, Range{1, 1000},
    "newest checkpoints to keep; two at least: only the step after the newest tells that it had not diverged");
  f("last_try", c.last_try, Range{0, 1e6},
    "how long the last checkpoint of a run is tried again when it cannot be written; then the run ends with exit status 1");
  f("resume", c.resume, Words{"auto", "never", "must"},
    "auto: go on from the newest checkpoint if there is one, and stop if all that are there are damaged; never: start anew; must: fail "
    "without one");
  f("allow", c.allow, Words{"data", "optimizer", "restart_epoch"},
    "differences from the checkpoint that are refused otherwise. data: another training set; optimizer: state that does not fit is dropped "
    "and begins anew; restart_epoch: an epoch that was begun with another seed, sampler or number of samples begins again");
  f("takeover", c.takeover, "take the run's folder from another job that still holds it; that job saves nothing there any more");
}

void fields(ObserveConfig& c, FieldList& f) {
  f("every_steps", c.every_steps, Range{1, 1e6}, "steps between two lines of metrics.jsonl and points of the curves");
  f("tensorboard", c.tensorboard, "write TensorBoard event files");
  f("histograms", c.histograms, "with tensorboard: every parameter's values, each epoch");
  f("images", c.images, Range{0, 64}, "with tensorboard: so many training images as the model first sees them");
  f("prometheus_port", c.prometheus_port, Range{-1, 65535}, "metrics over HTTP on the loopback interface; 0: a free port; -1: none");
  f("trace", c.trace, "record a timeline of every rank, merged into trace.json at the end");
  f("report", c.report, "write report.html at the end");
  f("plan", c.plan, "predict memory and step time before the run and hold them against what is measured (`cohort train --plan`)");
}

namespace {
constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {{"optim.rule", "optimizer"},
                                                                      {"engine.strategy", "sync"},
                                                                      {"comm", "backend"},
                                                                      {"bits", "deterministic"},
                                                                      {"scale", "loss_scale"},
                                                                      {"engine.wire", "engine.comm_dtype"},
                                                                      {"engine.wire_sum", "engine.comm_sum_dtype"}};
}

void fields(TrainConfig& c, FieldList& f) {
  f("name", c.name, "of the run");
  f("out", c.out, "folder of everything the run writes; empty: runs/<name>");
  f("model", c.model, models());
  f("loss", c.loss,
    fmt::format("what training makes small: {}; huber takes delta=; auto: by the data set, cross_entropy for classes and tokens, mse for "
                "float targets",
                fmt::join(kLosses, ", ")));
  f("pretrained", c.pretrained,
    "safetensors file with the model's first values, by their names: BERT, GPT-2, torchvision's networks; a last layer of another shape is "
    "new; empty: drawn from the seed");
  f("plugins", c.plugins, "libraries with models, data sets and losses of your own (docs/own_models.md), loaded by every rank");
  f("optimizer", c.optimizer, "the update rule: " + list_of(optim::rules()));
  f("sync", c.sync, "how ranks train together: " + strategies());
  f("codec", c.codec,
    "how gradients are sent in fewer bytes (docs/codecs.md): none, " + list_of(codec::codecs()) +
        ", or auto, which measures at the start what takes the least time; with all_reduce and zero");
  f("mesh", c.mesh,
    "the ranks as a grid, dp=2,tp=2: dp ranks take different samples, tp ranks share layers out; one size may be -1, the rest; empty: dp "
    "alone (docs/mesh.md)");
  f("backend", c.backend, collective::backend_names(),
    "who moves gradients between ranks: native, or another library (docs/backends.md), which needs deterministic=false; auto: the "
    "fastest that is here");
  f("deterministic", c.deterministic,
    "the same bits for any number of hosts and chunks; false: whatever is fastest may add in its own order");
  f("seed", c.seed, Range{0, 9e15}, "of first values, order of samples, random transforms and dropout");
  f("epochs", c.epochs, Range{0, 1e6}, "passes over the training set; 0: steps decides");
  f("steps", c.steps, Range{0, 1e12}, "updates; 0: epochs decides; with both, whichever ends first");
  f("device", c.device,
    "where the model computes and is updated: cpu; cuda, a GPU for each rank of a host; cuda:1, that one, which ranks may share; with "
    "all_reduce and zero (docs/gpu.md)");
  f("threads", c.threads, Range{0, 1024}, "threads a rank computes with; 0: its share of the cores");
  f("sync_batch_norm", c.sync_batch_norm, "batch norm over the samples of all ranks");
  f("precision", c.precision, Words{"fp32", "bf16", "fp16"},
    "what forward and backward compute in where that is safe; parameters, gradients and updates are fp32");
  f("loss_scale", c.loss_scale, list_of(optim::LossScale::schemas()) + "; auto: torch for fp16, else none");
  f("recompute", c.recompute,
    fmt::format("blocks whose inner results are computed again in backward instead of kept: {}", kRecomputeForms));
  f("check_replicas", c.check_replicas, Range{0, 1e9},
    "steps between two comparisons of the tensors that are replicated on all ranks, which are also compared before every checkpoint: a "
    "difference stops the run and names the rank; 0: never");
  f("max_skipped_steps", c.max_skipped_steps, Range{0, 1e9},
    "so many steps in a row with a loss or gradients that are not finite stop the job with the likely cause and the newest checkpoint; "
    "gradients are not counted while a dynamic loss scale is above 1, because it falls by itself; 0: never");
  f("data", c.data, "what is learned from");
  f("optim", c.optim, "how parameters are updated");
  f("engine", c.engine, "how gradients travel");
  f("checkpoint", c.checkpoint, "what is kept on disk, and when");
  f("observe", c.observe, "what can be watched");
  for (const auto& [was, now] : kRenamed) f.renamed(was, now);
}

namespace {

sync::Placement placement_of(const TrainConfig& config) { return sync::make(config.sync)->placement(Rank{0}, 1); }

void check_precision(const TrainConfig& config) {
  const auto scale = optim::LossScale::parse(loss_scale_spec(config));
  if (config.engine.early_update && scale.scales())
    throw_failure(Kind::usage, "engine.early_update cannot call off a step whose gradients overflow: it excludes the loss scale '{}'",
                  scale.spec());
  if (scale.dynamic() && sync::make(config.sync)->semantics().commit_scope == sync::Scope::self)
    throw_failure(Kind::usage,
                  "loss_scale={} with sync={}: ranks decide their steps by themselves, and each would come to a scale of its own; take "
                  "precision=bf16, which needs none, or a fixed loss_scale",
                  scale.spec(), config.sync);
}

void check_codec(const TrainConfig& config) {
  if (config.codec != "none" && config.engine.comm_dtype != Precision::fp32)
    throw_failure(Kind::usage, "codec={} and engine.comm_dtype={} both say how gradients are sent: take one of them", config.codec,
                  name_of(config.engine.comm_dtype));
  const std::string spec = engine::codec_of(engine_options(config));
  if (spec == "none") return;
  const auto strategy = sync::make(config.sync);
  if (strategy->schedule(1).commit == sync::Scope::self)
    throw_failure(
        Kind::usage, "codec={} with sync={}: {}; take codec=none", spec, config.sync,
        strategy->semantics().served ? "servers take gradients as they are" : "it is for gradients, and this strategy sends models");
  if (sync::is_codec_auto(spec)) return static_cast<void>(sync::codec_auto_schema().read(Spec::parse(spec)));
  const auto codec = codec::make(spec);
  codec::check_optimizer(*codec, optim::make(config.optimizer)->spec());
  if (codec->momentum() && strategy->semantics().drifts())
    throw_failure(Kind::usage,
                  "codec={} with sync={}: ranks that train by themselves send no gradients, and would have no momentum then; take topk and "
                  "an optimizer with momentum",
                  spec, config.sync);
  if (codec->feedback() && config.data.accumulate > 1 && strategy->placement(Rank{0}, 1).gathers_gradients())
    throw_failure(
        Kind::usage,
        "codec={} with data.accumulate={} and sync={}: gradients are sent in every backward there, and what a codec keeps belongs "
        "to a whole step; take stage 1, or a codec without feedback",
        spec, config.data.accumulate, config.sync);
  if (codec->feedback() && config.engine.early_update)
    throw_failure(Kind::usage,
                  "codec={} with engine.early_update: what a codec keeps follows the verdict of the step; turn off one of them", spec);
}

// What exchanges models through the host's memory, or computes there with whole tensors, does not train on a GPU. The engine refuses the
// same (engine.cc), of programs without settings.
void check_gpu(const TrainConfig& config) {
  const auto refuse = [&](bool wrong, const std::string& what, std::string_view why) {
    if (wrong) throw_failure(Kind::usage, "{} with device={}: {}", what, config.device, why);
  };
  const auto strategy = sync::make(config.sync);
  const sync::Placement placement = placement_of(config);
  const std::string sync = fmt::format("sync={}", config.sync);
  refuse(strategy->semantics().drifts() || strategy->semantics().served || !strategy->slots().empty(), sync,
         "it exchanges models through the host's memory; take all_reduce or zero, or device=cpu");
  refuse(!placement.folder.empty(), sync, "files are mapped into the host's memory; take offload=host, or none");
  refuse(placement.buddy, sync, "buddy copies lie in the host's memory; leave buddy=true out");
  const std::string codec = engine::codec_of(engine_options(config));
  refuse(codec != "none" && !sync::is_codec_auto(codec), "codec=" + codec,
         "codecs read the host's memory; take codec=none and comm_dtype=fp32");
  const optim::Needs needs = optim::make(config.optimizer)->needs();
  refuse(needs.grain == optim::Grain::tensor || needs.taps || needs.side, "optimizer=" + config.optimizer,
         "the rule computes with whole tensors on the processor; take one of single elements, or sync=zero(stage=2, offload=host)");
}

void check_device(const TrainConfig& config) {
  const std::string& device = config.device;
  const bool numbered = device.starts_with("cuda:") && device.size() > 5 && device.size() < 9 &&
                        device.find_first_not_of("0123456789", 5) == std::string::npos;
  if (device != "cpu" && device != "cuda" && !numbered)
    throw_failure(Kind::usage, "device: '{}' is none of cpu, cuda, cuda:0, cuda:1 ..", device);
  const bool host = placement_of(config).copies_to_device();
  if (device == "cpu" && host)
    throw_failure(
        Kind::usage,
        "sync={}: offload=host is for a model on a GPU (device=cuda); on the CPU everything lies in the host's memory already, and "
        "offload=file:FOLDER takes it to a disk",
        config.sync);
  if (device != "cpu" && !host) check_gpu(config);
  const char* const only_cpu = config.sync_batch_norm   ? "sync_batch_norm"
                               : config.engine.autotune ? "engine.autotune"
                               : config.observe.plan    ? "observe.plan"
                                                        : nullptr;
  if (device != "cpu" && only_cpu != nullptr)
    throw_failure(Kind::usage, "{} is for the CPU: turn it off, or take device=cpu instead of {}", only_cpu, device);
}

// What has not been tried with layers that ranks share out, or cannot be.
void check_mesh(const TrainConfig& config) {
  for (const auto& axis : group::parse_mesh(config.mesh))
    if (axis.name != "dp" && axis.name != "tp" && axis.size != 1)
      throw_failure(Kind::usage, "mesh={}: models are trained over dp and tp; no layer here uses {}", config.mesh, axis.name);
  if (!splits_model(config)) return;
  const auto refuse = [&](std::string_view what, std::string_view why) {
    throw_failure(Kind::usage, "mesh={} does not go with {}: {}", config.mesh, what, why);
  };
  if (config.device != "cpu") refuse("device=" + config.device, "what tp ranks add up lies in the host's memory; take device=cpu");
  if (has_buddy_copies(config)) refuse("buddy=true", "a lost rank's part of the layers has no copy that survivors can take up");
  if (config.observe.plan) refuse("observe.plan", "predictions know no layers that ranks share out");
}

}  // namespace

void check(const TrainConfig& config) {
  if (config.epochs == 0 && config.steps == 0) throw_failure(Kind::usage, "epochs and steps are both 0: say how long to train");
  if (config.name.empty() || config.name.find('/') != std::string::npos)
    throw_failure(Kind::usage, "name: '{}' must be one word that can name a folder", config.name);
  optim::make(config.optimizer);
  optim::Schedule::parse(config.optim.schedule);
  for (const auto& rule : config.optim.lr_scale) optim::parse_lr_scale(rule);
  RecomputeChoice::parse(config.recompute);
  Spec::parse(model_spec_of(config.model));
  Spec::parse(config.loss);
  Spec::parse(config.data.train);
  if (!config.data.test.empty()) Spec::parse(config.data.test);
  const auto strategy = sync::make(config.sync);
  if (config.engine.early_update && strategy->semantics().commit_scope == sync::Scope::self)
    throw_failure(Kind::usage, "engine.early_update with sync={}: it sends no gradients to wait for; turn it off", config.sync);
  if (config.engine.early_update && config.engine.clip_norm > 0)
    throw_failure(Kind::usage, "engine.early_update updates before the norm of the whole gradient is known: it excludes engine.clip_norm");
  check_precision(config);
  check_codec(config);
  check_device(config);
  check_mesh(config);
  if (config.deterministic && config.backend != "native" && config.backend != "auto")
    throw_failure(Kind::usage,
                  "backend={} adds in an order of its own, so runs would not repeat bit for bit: say deterministic=false too, or "
                  "backend=native",
                  config.backend);
}

engine::EngineOptions engine_options(const TrainConfig& config) {
  engine::EngineOptions options = config.engine;
  options.strategy = config.sync;
  options.codec = config.codec;
  options.seed = static_cast<std::uint64_t>(config.seed);
  options.mesh = config.mesh;
  return options;
}

std::string loss_scale_spec(const TrainConfig& config) {
  if (config.loss_scale != "auto") return config.loss_scale;
  const bool fp16 = config.precision == Precision::fp16 || config.engine.comm_dtype == Precision::fp16 || config.codec.starts_with("fp16");
  return fp16 ? "torch" : "none";
}

std::string forecast_file(const TrainConfig& config) { return run_folder(config) + "/forecast.json"; }
std::string run_folder(const TrainConfig& config) { return config.out.empty() ? "runs/" + config.name : config.out; }

bool shards_state(const TrainConfig& config) { return placement_of(config).sharded(); }
bool has_buddy_copies(const TrainConfig& config) { return placement_of(config).buddy; }
bool drifts(const TrainConfig& config) { return sync::make(config.sync)->semantics().drifts(); }
bool splits_model(const TrainConfig& config) {
  const auto axes = group::parse_mesh(config.mesh);
  return std::any_of(axes.begin(), axes.end(), [](const group::MeshAxis& axis) { return axis.name != "dp" && axis.size != 1; });
}

void check_elastic(const TrainConfig& config) {
  const auto refuse = [](std::string_view what, std::string_view why) {
    throw_failure(Kind::usage, "an elastic job (--min-n) cannot have {}: {}", what, why);
  };
  if (config.device != "cpu")
    refuse(fmt::format("device={}", config.device), "state that goes from one roster to the next is in the host's memory; take device=cpu");
  if (config.engine.early_update) refuse("engine.early_update", "a step in which a rank is lost could not be called off");
  if (sync::make(config.sync)->semantics().served)
    refuse(fmt::format("sync={}", config.sync), "a lost rank takes its server's part of the parameters with it; resume from a checkpoint");
  if (config.sync_batch_norm) refuse("sync_batch_norm", "its layers are tied to one set of ranks");
  if (config.engine.autotune) refuse("engine.autotune", "it would try everything again after every change");
  if (config.backend != "native")
    refuse(fmt::format("backend={}", config.backend), "it keeps to the ranks it was opened with; take backend=native");
  if (config.observe.plan) refuse("observe.plan", "a prediction is for one number of ranks");
  if (splits_model(config)) refuse(fmt::format("mesh={}", config.mesh), "a rank that is lost takes its part of the layers with it");
  const auto axes = group::parse_mesh(config.mesh);
  if (std::ranges::any_of(axes, [](const group::MeshAxis& axis) { return axis.size > 1; }))
    refuse(fmt::format("mesh={}", config.mesh), "its number of ranks changes; leave the mesh out");
}

}  // namespace cohort::train
