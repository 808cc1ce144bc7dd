#include "cohort/optim/gpu_measure.cuh"

namespace cohort::optim {
namespace {

template <class T>
struct Load {
  const T* data;
  __device__ T operator()(std::size_t i) const { return data[i]; }
};

}  // namespace

void GpuMeasure::add(const void* data, std::size_t count, Dtype dtype) {
  if (dtype == Dtype::f32)
    add_squares_of<float>(Load<float>{static_cast<const float*>(data)}, count, *this);
  else
    add_squares_of<double>(Load<double>{static_cast<const double*>(data)}, count, *this);
}

}  // namespace cohort::optim
