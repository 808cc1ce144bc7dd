#include "cohort/nn/ops/relu_pool.h"

#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>

#include "cohort/nn/ops/relu_pool_rows.h"

namespace cohort::nn {
namespace {

namespace autograd = torch::autograd;

constexpr std::int64_t kGrain = 1 << 15;  // numbers of an image that are worth a thread
std::atomic<int> plain_asked{0};

bool wide() { return has_avx2_rows() && plain_asked == 0; }

// The pairs of rows of all images, one below the other.
template <typename Work>
void in_pairs(std::int64_t planes, const PoolShape& shape, const Work& work) {
  at::parallel_for(0, planes * shape.pairs(), std::max<std::int64_t>(1, kGrain / (2 * shape.width)), work);
}

PoolShape shape_of(at::IntArrayRef sizes) { return {sizes[2], sizes[3]}; }

at::Tensor places_for(at::IntArrayRef sizes, at::TensorOptions like) {
  const PoolShape shape = shape_of(sizes);
  return at::empty({sizes[0] * sizes[1] * shape.pairs() * shape.out() + kPlacePad}, like.dtype(at::kByte));
}

std::tuple<at::Tensor, at::Tensor> pool_shapes(const at::Tensor& x) {
  const PoolShape shape = shape_of(x.sizes());
  return {at::empty({x.size(0), x.size(1), shape.pairs(), shape.out()}, x.options()), places_for(x.sizes(), x.options())};
}

std::tuple<at::Tensor, at::Tensor> pool(const at::Tensor& x) {
  auto [y, places] = pool_shapes(x);
  const PoolShape shape = shape_of(x.sizes());
  const PoolRows rows{x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), places.mutable_data_ptr<std::uint8_t>()};
  in_pairs(x.size(0) * x.size(1), shape, [&](std::int64_t first, std::int64_t end) {
    wide() ? pool_rows_wide(rows, shape, first, end) : pool_rows(rows, shape, first, end);
  });
  return {std::move(y), std::move(places)};
}

at::Tensor unpool_shape(const at::Tensor& out, const at::Tensor&, at::IntArrayRef sizes) { return at::empty(sizes, out.options()); }

at::Tensor unpool(const at::Tensor& out, const at::Tensor& places, at::IntArrayRef sizes) {
  const at::Tensor given = out.contiguous();
  at::Tensor x = at::empty(sizes, given.options());
  const PoolShape shape = shape_of(sizes);
  const UnpoolRows rows{given.const_data_ptr<float>(), places.const_data_ptr<std::uint8_t>(), x.mutable_data_ptr<float>()};
  in_pairs(sizes[0] * sizes[1], shape, [&](std::int64_t first, std::int64_t end) {
    wide() ? unpool_rows_wide(rows, shape, first, end) : unpool_rows(rows, shape, first, end);
  });
  return x;
}

// Once for the process, at the first use: a static registration would fail where two of its libraries have this file.
void register_once() {
  static const bool done = [] {
    if (c10::Dispatcher::singleton().findSchema({"cohort::relu_pool", ""})) return true;
    const auto open = [](torch::Library::Kind kind, std::optional<c10::DispatchKey> key) {
      return new torch::Library(kind, "cohort", key, __FILE__, __LINE__);  // NOLINT: lives as long as the process
    };
    auto* const names = open(torch::Library::FRAGMENT, std::nullopt);
    names->def("relu_pool(Tensor x) -> (Tensor, Tensor)");
    names->def("relu_pool_backward(Tensor out, Tensor places, int[] sizes) -> Tensor");
    auto* const cpu = open(torch::Library::IMPL, c10::DispatchKey::CPU);
    cpu->impl("relu_pool", &pool);
    cpu->impl("relu_pool_backward", &unpool);
    auto* const meta = open(torch::Library::IMPL, c10::DispatchKey::Meta);
    meta->impl("relu_pool", &pool_shapes);
    meta->impl("relu_pool_backward", &unpool_shape);
    return true;
  }();
  (void)done;
}

// The same by torch's operators, which gradients of gradients can follow: it is linear in what comes out.
at::Tensor unpool_slowly(const at::Tensor& out, const at::Tensor& places, at::IntArrayRef sizes) {
  const at::Tensor where = places.narrow(0, 0, out.numel()).view(out.sizes());
  std::vector<at::Tensor> of;
  for (int k = 0; k < 4; ++k) of.push_back(at::where(where == k, out, at::zeros({}, out.options())));  // infinity times zero is NaN
  const at::Tensor even = at::stack({of[0], of[1]}, -1).flatten(-2), odd = at::stack({of[2], of[3]}, -1).flatten(-2);
  const at::Tensor x = at::stack({even, odd}, -2).flatten(-3, -2);
  return at::constant_pad_nd(x, {0, sizes[3] % 2, 0, sizes[2] % 2});
}

struct Pooling : autograd::Function<Pooling> {
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x) {
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("cohort::relu_pool", "").typed<decltype(pool)>();
    auto [y, places] = op.call(x);
    context->save_for_backward({places});
    context->saved_data["sizes"] = x.sizes().vec();
    return y;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context, const autograd::variable_list& given) {
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("cohort::relu_pool_backward", "").typed<decltype(unpool)>();
    const at::Tensor places = context->get_saved_variables()[0];
    const auto sizes = context->saved_data["sizes"].toIntVector();
    return {at::GradMode::is_enabled() ? unpool_slowly(given[0], places, sizes) : op.call(given[0], places, sizes)};
  }
};

}  // namespace

at::Tensor relu_pool(const at::Tensor& x) {
  const bool ours = x.dim() == 4 && x.device().is_cpu() && x.scalar_type() == at::kFloat && x.is_contiguous() && x.numel() > 0 &&
                    x.size(2) >= 2 && x.size(3) >= 2;
  if (!ours) return at::max_pool2d(at::relu(x), 2);
  register_once();
  return Pooling::apply(x);
}

ScalarPoolsGuard::ScalarPoolsGuard() { ++plain_asked; }
ScalarPoolsGuard::~ScalarPoolsGuard() { --plain_asked; }

}  // namespace cohort::nn
