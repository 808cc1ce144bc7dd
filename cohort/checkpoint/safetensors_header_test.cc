// Headers with wrong contents. Each is refused with the reason.
#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/checkpoint/samples.h"

namespace cohort::checkpoint {
namespace {

using ::testing::HasSubstr;

// What parse_header says about a header in front of this many bytes of data; "accepted" when it takes it.
std::string verdict(std::string_view header, std::uint64_t data_bytes) {
  try {
    parse_header(header, 8 + header.size() + data_bytes, "x");
    return "accepted";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::corrupt) << failure.what();
    EXPECT_THAT(failure.what(), testing::StartsWith("x: "));
    return failure.what();
  }
}

std::string tensor(std::string_view inside) { return fmt::format(R"({{"t":{{{}}}}})", inside); }

TEST(SafetensorsHeader, WhatTheFormatAllowsIsRead) {
  EXPECT_EQ(verdict("{}", 0), "accepted");
  EXPECT_EQ(verdict("{}      ", 0), "accepted");
  EXPECT_EQ(verdict(R"({"__metadata__":{}})", 0), "accepted");
  EXPECT_EQ(verdict(tensor(R"("shape":[],"data_offsets":[0,4],"dtype":"F32")"), 4), "accepted");
  EXPECT_EQ(verdict(tensor(R"("dtype":"F32","shape":[0,7],"data_offsets":[0,0])"), 0), "accepted");
  EXPECT_EQ(verdict(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2),
            "accepted");
}

TEST(SafetensorsHeader, WrongSizesAreNamed) {
  const auto f32 = [](std::string_view shape, std::string_view offsets) {
    return tensor(fmt::format(R"("dtype":"F32","shape":[{}],"data_offsets":[{}])", shape, offsets));
  };
  EXPECT_THAT(verdict(f32("2", "0,4"), 4), HasSubstr("F32 of shape [2] has 8 bytes, data_offsets [0, 4] span 4"));
  EXPECT_THAT(verdict(f32("1", "4,8"), 8), HasSubstr("a hole"));
  EXPECT_THAT(verdict(f32("1", "0,4"), 5), HasSubstr("too long"));
  EXPECT_THAT(verdict(f32("1", "0,4"), 3), HasSubstr("cut short"));
  EXPECT_THAT(verdict(f32("1", "4,0"), 4), HasSubstr("no range"));
  EXPECT_THAT(verdict(f32("1", "0"), 4), HasSubstr("no range"));
  EXPECT_THAT(verdict(f32("1", "0,4,4"), 4), HasSubstr("more than two"));
  EXPECT_THAT(verdict(f32("4294967296,4294967296", "0,0"), 0), HasSubstr("no whole number of bytes"));
  EXPECT_THAT(verdict(f32("9223372036854775808", "0,0"), 0), HasSubstr("too large"));
  EXPECT_THAT(verdict(f32("99999999999999999999", "0,0"), 0), HasSubstr("is no size"));
  EXPECT_THAT(verdict(f32("-1", "0,4"), 4), HasSubstr("-1 is no size"));
  EXPECT_THAT(verdict(f32("1.0", "0,4"), 4), HasSubstr("1.0 is no size"));
  EXPECT_THAT(verdict(f32(fmt::format("{}", fmt::join(std::vector(65, 1), ",")), "0,4"), 4), HasSubstr("more than 64 dimensions"));
  EXPECT_THAT(verdict(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3),
              HasSubstr("tensor 'b' begins at data offset 1, the one before it ends at 2: the file has an overlap"));
}

TEST(SafetensorsHeader, EveryOtherShapeOfJsonIsRefused) {
  const std::string good = R"("dtype":"U8","shape":[1],"data_offsets":[0,1])";
  EXPECT_THAT(verdict("", 0), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(verdict(" {}", 0), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(verdict("{", 0), HasSubstr("no JSON at offset"));
  EXPECT_THAT(verdict("{} x", 0), HasSubstr("no JSON at offset 11"));
  EXPECT_THAT(verdict("{\"\xff\":1}", 0), HasSubstr("no JSON at offset"));
  EXPECT_THAT(verdict(R"({"t":1})", 0), HasSubstr("at 't': a number where none is allowed"));
  EXPECT_THAT(verdict(R"({"t":[]})", 0), HasSubstr("an array"));
  EXPECT_THAT(verdict(R"({"t":null})", 0), HasSubstr("null"));
  EXPECT_THAT(verdict(R"({"t":true})", 0), HasSubstr("true or false"));
  EXPECT_THAT(verdict(R"({"t":{}})", 0), HasSubstr("are needed"));
  EXPECT_THAT(verdict(tensor(good + R"(,"more":1)"), 1), HasSubstr("unknown key 'more'"));
  EXPECT_THAT(verdict(tensor(good + R"(,"shape":[1])"), 1), HasSubstr("'shape' is given twice"));
  EXPECT_THAT(verdict(tensor(R"("dtype":"X","shape":[1],"data_offsets":[0,1])"), 1), HasSubstr("unknown dtype 'X'"));
  EXPECT_THAT(verdict(tensor(R"("dtype":"U8","shape":[[1]],"data_offsets":[0,1])"), 1), HasSubstr("an array where none is allowed"));
  EXPECT_THAT(verdict(tensor(R"("dtype":"U8","shape":{"a":1},"data_offsets":[0,1])"), 1), HasSubstr("an object where none is allowed"));
  EXPECT_THAT(verdict(fmt::format(R"({{"t":{{{0}}},"t":{{{0}}}}})", good), 1), HasSubstr("the key is given twice"));
  EXPECT_THAT(verdict(R"({"__metadata__":{"a":"1","a":"2"}})", 0), HasSubstr("'a' is given twice"));
  EXPECT_THAT(verdict(R"({"__metadata__":{"a":1}})", 0), HasSubstr("a number where none is allowed"));
  EXPECT_THAT(verdict(R"({"__metadata__":{},"__metadata__":{}})", 0), HasSubstr("twice"));
  EXPECT_THAT(verdict(std::string(1'000'000, '[').replace(0, 5, "{\"a\":"), 0), HasSubstr("an array where none is allowed"));
}

TEST(SafetensorsHeader, LengthsBeyondTheFileOrTheLimitAreRefusedBeforeAnythingIsAllocated) {
  const auto bytes = [](std::uint64_t length, std::uint64_t file) {
    return failure_of([&] { header_bytes_of(bytes_of(length), file, "x"); }).what;
  };
  EXPECT_THAT(bytes(UINT64_MAX, 100), HasSubstr("at most 100000000"));
  EXPECT_THAT(bytes(100'000'001, UINT64_MAX), HasSubstr("at most 100000000"));
  EXPECT_THAT(bytes(93, 100), HasSubstr("a header of 93 bytes in a file of 100"));
  EXPECT_EQ(bytes(92, 100), "(it did not fail)");
  EXPECT_THAT(bytes(0, 7), HasSubstr("too few"));
}

TEST(SafetensorsHeader, EverySingleByteOfDamageIsRefusedOrStillAWellFormedFile) {
  const TempDir folder;
  SampleTensors samples;
  samples.add("a", Dtype::f32, {2, 3});
  samples.add("b", Dtype::u8, {5});
  write_safetensors(folder.file("x"), samples.tensors(), {{"k", "v"}});
  const auto good = slurp(folder.file("x"));
  const auto check = [](const std::string& content) {  // as SafetensorsFile does, without the disk
    try {
      const auto bytes = std::as_bytes(std::span(content));
      const auto header = header_bytes_of(bytes.first(std::min<std::size_t>(8, bytes.size())), content.size(), "x");
      const auto index = parse_header(std::string_view(content).substr(8, header), content.size(), "x");
      EXPECT_EQ(index.data_start + index.data_bytes(), content.size());
      return true;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.kind(), Kind::corrupt);
      return false;
    }
  };
  ASSERT_TRUE(check(good));
  for (std::size_t at = 0; at < good.size(); ++at) {
    EXPECT_FALSE(check(good.substr(0, at))) << "cut at " << at;
    for (const int mask : {1, 2, 4, 8, 16, 32, 64, 128, 255}) {
      auto damaged = good;
      damaged[at] = static_cast<char>(damaged[at] ^ mask);
      check(damaged);
    }
  }
  EXPECT_FALSE(check(good + "x"));
}

}  // namespace
}  // namespace cohort::checkpoint
