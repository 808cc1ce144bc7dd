#include "cohort/checkpoint/safetensors.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/checkpoint/samples.h"

namespace cohort::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Dtype, NamesAreOneToOneAndSizesAreWholeBytesExceptForPackedOnes) {
  EXPECT_EQ(all_dtypes().size(), 20U);
  for (const Dtype dtype : all_dtypes()) {
    EXPECT_EQ(dtype_of_name(dtype_name(dtype)), dtype);
    EXPECT_TRUE(dtype_bits(dtype) % 8 == 0 || dtype_bits(dtype) == 4 || dtype_bits(dtype) == 6);
  }
  EXPECT_EQ(dtype_of_name("f32"), std::nullopt);
  EXPECT_EQ(tensor_bytes(Dtype::f32, Shape{}), 4U);
  EXPECT_EQ(tensor_bytes(Dtype::f32, Shape{2, 0}), 0U);
  EXPECT_EQ(tensor_bytes(Dtype::f4, Shape{3}), std::nullopt) << "a byte and a half";
  EXPECT_EQ(tensor_bytes(Dtype::f64, Shape{std::int64_t{1} << 40, std::int64_t{1} << 40}), std::nullopt);
  EXPECT_EQ(tensor_bytes(Dtype::u8, Shape{-1}), std::nullopt);
}

TEST(Sha256, IsTheStandardsOne) {
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex(std::as_bytes(std::span("abc", 3))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Safetensors, EveryTypeAndShapeComesBackAsItWas) {
  const TempDir folder;
  SampleTensors samples;
  for (const Dtype dtype : all_dtypes()) {
    const std::string name(dtype_name(dtype));
    samples.add(name + ".matrix", dtype, {3, 8});
    samples.add(name + ".empty", dtype, {0, 5});
    if (dtype_bits(dtype) >= 8) samples.add(name + ".scalar", dtype, {});
  }
  samples.add("schöner \"Name\"\n\\", Dtype::f32, {1});
  const Metadata metadata{{"format", "pt"}, {"größe", "\u00fc\t"}};
  const auto path = folder.file("all.safetensors");
  const auto written = write_safetensors(path, samples.tensors(), metadata);
  const auto content = slurp(path);
  EXPECT_EQ(written.bytes, content.size());
  EXPECT_EQ(written.sha256, sha256_hex(std::as_bytes(std::span(content))));

  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), samples.tensors().size());
  for (const TensorView& tensor : samples.tensors()) {
    const TensorEntry& entry = file.at(tensor.name);
    EXPECT_EQ(entry.dtype, tensor.dtype);
    EXPECT_EQ(entry.shape, tensor.shape);
    EXPECT_TRUE(std::ranges::equal(file.read(tensor.name), tensor.data)) << tensor.name;
  }
}

TEST(Safetensors, DataIsAlignedForEveryElementAndOrderedByAlignmentThenName) {
  const TempDir folder;
  SampleTensors samples;
  samples.add("z", Dtype::f64, {3});
  samples.add("b", Dtype::u8, {5});
  samples.add("a", Dtype::u8, {5});
  samples.add("h", Dtype::f16, {7});
  samples.add("c", Dtype::f32, {3});
  const auto path = folder.file("x.safetensors");
  write_safetensors(path, samples.tensors());
  std::uint64_t header = 0;
  std::memcpy(&header, slurp(path).data(), sizeof header);
  EXPECT_EQ((header + 8) % 64, 0U);
  std::string order;
  const SafetensorsFile file(path);
  for (const TensorEntry& entry : file.tensors()) {
    order += entry.name;
    EXPECT_EQ(entry.begin % dtype_alignment(entry.dtype), 0U);
  }
  EXPECT_EQ(order, "zchab");
}

TEST(Safetensors, NoTensorsAtAllIsAFile) {
  const TempDir folder;
  write_safetensors(folder.file("none"), {});
  EXPECT_TRUE(SafetensorsFile(folder.file("none")).tensors().empty());
}

TEST(Safetensors, LargeTensorsPassInPiecesWithTheSameDigest) {
  const TempDir folder;
  SampleTensors samples;
  samples.add("big", Dtype::u8, {3 * 1024 * 1024 + 17});
  samples.add("small", Dtype::u8, {17});
  const auto written = write_safetensors(folder.file("x"), samples.tensors());
  const auto content = slurp(folder.file("x"));
  EXPECT_EQ(written.sha256, sha256_hex(std::as_bytes(std::span(content))));
  EXPECT_TRUE(std::ranges::equal(SafetensorsFile(folder.file("x")).read("big"), samples.tensors()[0].data));
}

TEST(Safetensors, WhatCannotBeWrittenIsRefusedAndLeavesNoFile) {
  const TempDir folder;
  SampleTensors samples;
  const auto good = samples.add("a", Dtype::f32, {2});
  const auto refused = [&](std::vector<TensorView> tensors, const Metadata& metadata = {}) {
    const auto error = failure_of([&] { write_safetensors(folder.file("x"), tensors, metadata); });
    EXPECT_EQ(error.kind, Kind::usage);
    EXPECT_NE(::access(folder.file("x").c_str(), F_OK), 0);
    return error.what;
  };
  EXPECT_THAT(refused({good, good}), HasSubstr("two tensors are called 'a'"));
  EXPECT_THAT(refused({{"b", Dtype::f32, {3}, good.data}}), HasSubstr("has 12 bytes, 8 were given"));
  EXPECT_THAT(refused({{"__metadata__", Dtype::f32, {2}, good.data}}), HasSubstr("keeps this name"));
  EXPECT_THAT(refused({{"\xff", Dtype::f32, {2}, good.data}}), HasSubstr("no UTF-8"));
  EXPECT_THAT(refused({good}, {{"k", "\xff"}}), HasSubstr("no UTF-8"));
  EXPECT_THAT(refused({{"m", Dtype::f32, {-2}, good.data}}), HasSubstr("no whole number of bytes"));
}

TEST(Safetensors, AnUnknownNameIsAnsweredWithTheNearest) {
  const TempDir folder;
  SampleTensors samples;
  samples.add("layer1.weight", Dtype::f32, {2});
  write_safetensors(folder.file("x"), samples.tensors());
  const SafetensorsFile file(folder.file("x"));
  EXPECT_EQ(file.find("nothing"), nullptr);
  const auto error = failure_of([&] { file.at("layer1.wieght"); });
  EXPECT_THAT(error.what, AllOf(HasSubstr("no tensor 'layer1.wieght'"), HasSubstr("did you mean 'layer1.weight'?")));
  std::vector<std::byte> small(4);
  EXPECT_THAT(failure_of([&] { file.read(file.at("layer1.weight"), small); }).what, HasSubstr("has 8 bytes, the memory to fill has 4"));
}

TEST(Safetensors, AFileCutShortWhileOpenIsAnErrorAndNoSignal) {
  const TempDir folder;
  SampleTensors samples;
  samples.add("w", Dtype::u8, {100});
  write_safetensors(folder.file("x"), samples.tensors());
  const SafetensorsFile file(folder.file("x"));
  ASSERT_EQ(::truncate(folder.file("x").c_str(), 150), 0);
  const auto error = failure_of([&] { file.read("w"); });
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, AllOf(HasSubstr("tensor 'w'"), HasSubstr("ends at offset 150")));
}

TEST(Safetensors, AFileThatExistsIsNotOverwritten) {
  const TempDir folder;
  spill(folder.file("x"), "precious");
  EXPECT_EQ(failure_of([&] { write_safetensors(folder.file("x"), {}); }).kind, Kind::system);
  EXPECT_EQ(slurp(folder.file("x")), "precious");
}

}  // namespace
}  // namespace cohort::checkpoint
