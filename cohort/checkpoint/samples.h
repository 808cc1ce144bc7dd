// For tests: tensors with known bytes, and files to damage.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "cohort/base/file.h"
#include "cohort/checkpoint/snapshot.h"
#include "cohort/checkpoint/store.h"

namespace cohort::checkpoint {

// Tensors that own their bytes, which follow from the seed.
class SampleTensors {
 public:
  explicit SampleTensors(unsigned seed = 1) : state_(seed) {}
  const TensorView& add(std::string name, Dtype dtype, Shape shape) {
    auto& bytes = bytes_.emplace_back(tensor_bytes(dtype, shape).value());
    for (auto& byte : bytes) byte = static_cast<std::byte>((state_ = state_ * 1664525 + 1013904223) >> 24);
    return tensors_.emplace_back(TensorView{std::move(name), dtype, std::move(shape), bytes});
  }
  const std::vector<TensorView>& tensors() const { return tensors_; }

 private:
  std::uint32_t state_;
  std::vector<std::vector<std::byte>> bytes_;
  std::vector<TensorView> tensors_;
};

// A small checkpoint: a model, an optimizer, and every kind of field.
struct SampleCheckpoint {
  explicit SampleCheckpoint(std::int64_t step, std::int64_t elements = 8) {
    model.add("weight", Dtype::f32, {elements});
    model.add("bias", Dtype::bf16, {3});
    optimizer.add("weight.momentum", Dtype::f32, {elements});
    files = {{"model.safetensors", model.tensors(), {{"format", "pt"}}}, {"optimizer.safetensors", optimizer.tensors()}};
    manifest.step = step;
    manifest.epoch = 2;
    manifest.position = 640;
    manifest.world_size = 4;
    manifest.cohort_version = "0.1.0";
    manifest.torch_version = "2.13.0";
    manifest.texts = {{"config", "lr: 0.1\n"}, {"rng", "00ff"}};
    manifest.values = {{"selector", R"({"all_reduce":["ring",0.5]})"}};
  }
  SampleTensors model{1}, optimizer{2};
  std::vector<TensorFile> files;
  Manifest manifest;
};

// A folder in memory where the machine has one with room, for tests that write thousands of files: a real disk may take milliseconds for
// each.
class MemoryDir {
 public:
  MemoryDir() : path_(is_roomy("/dev/shm") ? "/dev/shm/" + unique_name("cohort") : unique_name("/tmp/cohort")) {
    std::filesystem::create_directory(path_);
  }
  ~MemoryDir() {
    std::error_code ignored;
    if (::getpid() == owner_pid_) std::filesystem::remove_all(path_, ignored);
  }
  MemoryDir(const MemoryDir&) = delete;
  MemoryDir& operator=(const MemoryDir&) = delete;
  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  static bool is_roomy(const char* folder) {
    constexpr std::uintmax_t kLeast = 256 << 20;  // a container may have 64 KiB there
    std::error_code missing;
    return ::access(folder, W_OK) == 0 && std::filesystem::space(folder, missing).available >= kLeast && !missing;
  }

  std::string path_;
  int owner_pid_ = ::getpid();
};

inline std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
inline void spill(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(content.data(), static_cast<std::streamsize>(content.size()));
}

}  // namespace cohort::checkpoint
