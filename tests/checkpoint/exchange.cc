// The C++ half of check.py:
//   safetensors_exchange write <path>   a file with every type, as a matrix, an empty tensor and (whole bytes only) a single element
//   safetensors_exchange checkpoint <path/step-00000007>   a checkpoint of those tensors, and of an optimizer's state
//   safetensors_exchange read <path>    one line of JSON for each tensor: name, dtype, shape, bytes in hex; then one for the metadata
// Byte i of a tensor written here is (7 i + 1) mod 256, or mod 2 for BOOL.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/checkpoint/store.h"

namespace {

using namespace cohort;
using namespace cohort::checkpoint;
using cohort::checkpoint::Dtype;
using cohort::checkpoint::Shape;

struct Tensors {
  std::vector<std::vector<std::byte>> memory;
  std::vector<TensorView> tensors;
};

Tensors every_type() {
  Tensors made;
  auto& memory = made.memory;
  auto& tensors = made.tensors;
  const auto add = [&](std::string name, Dtype dtype, Shape shape) {
    auto& bytes = memory.emplace_back(tensor_bytes(dtype, shape).value());
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((7 * i + 1) % (dtype == Dtype::boolean ? 2 : 256));
    tensors.push_back({std::move(name), dtype, std::move(shape), bytes});
  };
  for (const Dtype dtype : all_dtypes()) {
    const std::string name(dtype_name(dtype));
    add(name, dtype, {3, 8});
    add(name + ".empty", dtype, {0, 5});
    if (dtype_bits(dtype) >= 8) add(name + ".single", dtype, {});
  }
  return made;
}

void write(const std::string& path) { write_safetensors(path, every_type().tensors, {{"format", "pt"}, {"größe", "\"quoted\"\n"}}); }

void write_checkpoint(const std::string& path) {
  const auto model = every_type();
  std::vector<std::byte> bytes(4 * 1000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i);
  Manifest manifest;
  manifest.step = 7;
  manifest.world_size = 4;
  manifest.texts["config"] = "model: mlp\n";
  const std::vector<TensorFile> files{{"model.safetensors", model.tensors, {{"format", "pt"}}},
                                      {"optimizer.safetensors", {{"F32/momentum", Dtype::f32, {10, 100}, bytes}}}};
  Store(std::filesystem::path(path).parent_path().string()).save(manifest, files);
}

void read(const std::string& path) {
  const SafetensorsFile file(path);
  for (const TensorEntry& tensor : file.tensors()) {
    std::string hex;
    for (const std::byte byte : file.read(tensor.name)) hex += fmt::format("{:02x}", static_cast<unsigned>(byte));
    const nlohmann::json line{{"name", tensor.name}, {"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"hex", hex}};
    fmt::print("{}\n", line.dump());
  }
  fmt::print("{}\n", nlohmann::json{{"metadata", file.metadata()}}.dump());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc == 3 ? argv[1] : "";
  try {
    if (verb == "write") return write(argv[2]), 0;
    if (verb == "checkpoint") return write_checkpoint(argv[2]), 0;
    if (verb == "read") return read(argv[2]), 0;
  } catch (const Failure& failure) {
    fmt::print(stderr, "{}\n", failure.what());
    return 1;
  }
  fmt::print(stderr, "usage: safetensors_exchange write|checkpoint|read <path>\n");
  return 2;
}
