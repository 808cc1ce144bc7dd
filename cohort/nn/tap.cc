#include "cohort/nn/tap.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/im2col.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/nn/ops/product_watcher.h"

namespace cohort::nn {

// What a convolution lays its filter over its input by.
struct TapFilter {
  std::vector<std::int64_t> size, stride, padding, dilation;
};

struct Tap::Impl {
  std::vector<Layer> layers;
  std::map<const void*, std::size_t> layer_of;  // by the weight's TensorImpl
  std::string refused;
  bool on = true;

  Layer* find(const at::Tensor& weight) {
    const auto found = layer_of.find(weight.unsafeGetTensorImpl());
    return found == layer_of.end() ? nullptr : &layers[found->second];
  }
};

namespace {

// The operations that layers are made of, and which of their inputs are the layer's.
struct Operation {
  std::string_view name;
  std::size_t x, weight;
  bool turned, convolution;  // turned: it is given W^T
};
constexpr Operation kOperations[]{{"aten::linear", 0, 1, false, false},
                                  {"aten::addmm", 1, 2, true, false},
                                  {"aten::matmul", 0, 1, true, false},
                                  {"aten::mm", 0, 1, true, false},
                                  {"aten::conv2d", 0, 1, false, true}};

at::Tensor patches(const at::Tensor& x, const TapFilter& f) {
  return at::im2col(x, f.size, f.dilation, f.padding, f.stride).transpose(1, 2).flatten(0, 1);
}

}  // namespace

// While it lives operations of this thread are seen.
class Tap::Watching {
 public:
  explicit Watching(std::shared_ptr<Impl> impl) : impl_(std::move(impl)), before_(std::exchange(current_, this)) {
    if (before_ == nullptr)
      handle_ = at::addThreadLocalCallback(
          at::RecordFunctionCallback(begin, end).needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~Watching() {
    if (before_ == nullptr) at::removeCallback(handle_);
    current_ = before_;
  }
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

  static Watching* current() { return current_; }

  void see(const at::Tensor& weight, const at::Tensor& x, const at::Tensor& y,
           const std::function<at::Tensor(const at::Tensor&)>& rows_of_x, const std::function<at::Tensor(const at::Tensor&)>& rows_of_y,
           std::int64_t samples) {
    if (!y.requires_grad() || impl_->find(weight) == nullptr) return;
    y.register_hook([impl = std::weak_ptr(impl_), weight = weight.unsafeGetTensorImpl(), type = weight.scalar_type(), x = x.detach(),
                     rows_of_x, rows_of_y, samples](const at::Tensor& gradient) {
      const auto there = impl.lock();
      if (!there) return;
      const at::NoGradGuard no_grad;
      const auto found = there->layer_of.find(weight);
      if (found == there->layer_of.end()) return;
      const auto flat = [&](const at::Tensor& rows) { return rows.detach().to(at::kCPU, type).contiguous(); };
      there->layers[found->second].records.push_back({flat(rows_of_x(x)), flat(rows_of_y(gradient)), samples});
    });
  }

 private:
  // What an operation was given; its result comes when it ends.
  struct Call : at::ObserverContext {
    at::Tensor weight, x;
    std::optional<TapFilter> filter;  // of a convolution
  };
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
    Watching* const watching = current_;
    if (watching == nullptr || watching->open_ || !at::GradMode::is_enabled()) return nullptr;
    const auto found = std::ranges::find(kOperations, std::string_view(call.name()), &Operation::name);
    if (found == std::end(kOperations)) return nullptr;
    const auto inputs = call.inputs();
    const at::Tensor weight = found->turned ? base_of(inputs[found->weight].toTensor()) : inputs[found->weight].toTensor();
    const Layer* const layer = weight.defined() ? watching->impl_->find(weight) : nullptr;
    if (layer == nullptr) return nullptr;
    auto given = std::make_unique<Call>();
    given->x = inputs[found->x].toTensor();
    given->weight = weight;
    if (found->convolution && !(given->filter = filter_of(weight, inputs))) {
      watching->impl_->refused = layer->weight;
      return nullptr;
    }
    watching->open_ = true;
    return given;
  }
  static void end(const at::RecordFunction& call, at::ObserverContext* context) {
    if (context == nullptr || current_ == nullptr) return;
    current_->open_ = false;
    const auto& given = *static_cast<const Call*>(context);
    const at::Tensor y = call.outputs().at(0).toTensor();
    if (!given.filter) return Tap::see(given.weight, given.x, y);
    const auto batched = [](const at::Tensor& t) { return t.dim() == 3 ? t.unsqueeze(0) : t; };
    current_->see(
        given.weight, given.x, y, [=, filter = *given.filter](const at::Tensor& t) { return patches(batched(t), filter); },
        [=](const at::Tensor& t) {
          return batched(t).permute({0, 2, 3, 1}).flatten(0, 2);
        },
        batched(given.x).size(0));
  }
  // W of W^T.
  static at::Tensor base_of(const at::Tensor& t) {
    if (!t.is_view() || t.dim() != 2) return {};
    const at::Tensor base(t._base());
    const bool turned = base.dim() == 2 && base.is_contiguous() && t.size(0) == base.size(1) && t.size(1) == base.size(0) &&
                        t.stride(0) == 1 && t.data_ptr() == base.data_ptr();
    return turned ? base : at::Tensor();
  }
  // inputs: x, weight, bias, stride, padding, dilation, groups.
  static std::optional<TapFilter> filter_of(const at::Tensor& weight, c10::ArrayRef<const c10::IValue> inputs) {
    if (inputs.size() < 7 || !inputs[4].isIntList() || inputs[6].toInt() != 1) return std::nullopt;
    const auto pair = [](const c10::IValue& value) {
      auto numbers = value.toIntVector();
      if (numbers.size() == 1) numbers.push_back(numbers[0]);
      return numbers;
    };
    return TapFilter{weight.sizes().slice(2).vec(), pair(inputs[3]), pair(inputs[4]), pair(inputs[5])};
  }

  static thread_local Watching* current_;
  const std::shared_ptr<Impl> impl_;
  Watching* const before_;
  bool open_ = false;  // a layer's operation runs, of which others are parts
  at::CallbackHandle handle_ = 0;
};

thread_local Tap::Watching* Tap::Watching::current_ = nullptr;

Tap::Tap(const NamedTensors& parameters) : impl_(std::make_shared<Impl>()) {
  constexpr std::string_view kWeight = "weight";
  set_product_watcher(&Tap::see);
  for (const auto& [name, t] : parameters) {
    if (t.dim() < 2 || t.numel() == 0) continue;
    Layer layer{.weight = name, .in = t.numel() / t.size(0), .out = t.size(0)};
    if (name.ends_with(kWeight)) {
      const std::string bias = name.substr(0, name.size() - kWeight.size()) + "bias";
      const auto has = [&](const auto& p) { return p.first == bias && p.second.numel() == layer.out; };
      if (std::any_of(parameters.begin(), parameters.end(), has)) layer.bias = bias;
    }
    impl_->layer_of.emplace(t.unsafeGetTensorImpl(), impl_->layers.size());
    impl_->layers.push_back(std::move(layer));
  }
}

Tap::~Tap() = default;

BlockWrapper Tap::block_wrapper(BlockWrapper inner) {
  return [impl = impl_, inner = std::move(inner)](const Block& block, const at::Tensor& x) {
    Block watched = block;
    watched.forward = [impl, forward = block.forward](const at::Tensor& in) {
      if (!impl->on) return forward(in);
      const Watching watching(impl);
      return forward(in);
    };
    return inner ? inner(watched, x) : watched.forward(x);
  };
}

const std::vector<Tap::Layer>& Tap::layers() const {
  if (!impl_->refused.empty())
    throw_failure(Kind::usage, "what {} sees cannot be given row by row: it is a convolution with groups, or its padding is given by name",
                  impl_->refused);
  return impl_->layers;
}

void Tap::clear() {
  for (Layer& layer : impl_->layers) layer.records.clear();
  impl_->refused.clear();
}

void Tap::watch(bool on) { impl_->on = on; }

void Tap::see(const at::Tensor& weight, const at::Tensor& x, const at::Tensor& y) {
  if (Watching::current() == nullptr) return;
  const auto rows = [](const at::Tensor& t) { return t.reshape({-1, t.size(-1)}); };
  Watching::current()->see(weight, x, y, rows, rows, x.numel() / std::max<std::int64_t>(1, x.size(-1)));
}

}  // namespace cohort::nn
