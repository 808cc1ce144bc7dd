#include "cohort/checkpoint/manifest.h"

#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/checkpoint/samples.h"
#include "cohort/checkpoint/sha256.h"
#include "cohort/checkpoint/strict_json.h"

namespace cohort::checkpoint {
namespace {

using ::testing::HasSubstr;

Manifest sample() {
  auto manifest = SampleCheckpoint(1200).manifest;
  manifest.files = {{"model.safetensors", 123, std::string(64, 'a')}, {"optimizer.safetensors", 0, std::string(64, '0')}};
  return manifest;
}

// The manifest with this in its body instead of that, under a digest that agrees.
std::string forged(std::string_view that, std::string_view now) {
  auto text = format_manifest(sample());
  auto body = text.substr(text.find('\n') + 1);
  const auto at = body.find(that);
  EXPECT_NE(at, body.npos) << that;
  body.replace(at, that.size(), now);
  return fmt::format("{{\"sha256\": \"{}\",\n{}", sha256_hex(std::as_bytes(std::span(body))), body);
}
Error refusal(const std::string& text) {
  return failure_of([&] { parse_manifest(text, "m.json"); });
}

TEST(Manifest, ComesBackAsItWasAndIsPlainJson) {
  const auto text = format_manifest(sample());
  EXPECT_EQ(parse_manifest(text, "m.json"), sample());
  EXPECT_EQ(nlohmann::json::parse(text).at("values").at("selector").at("all_reduce").at(0), "ring");
}

TEST(Manifest, EveryByteIsGuarded) {
  const auto good = format_manifest(sample());
  for (std::size_t at = 0; at < good.size(); ++at) {
    EXPECT_EQ(refusal(good.substr(0, at)).kind, Kind::corrupt) << "cut at " << at;
    for (const int mask : {1, 32, 128}) {
      auto damaged = good;
      damaged[at] = static_cast<char>(damaged[at] ^ mask);
      EXPECT_EQ(refusal(damaged).kind, Kind::corrupt) << "byte " << at;
    }
  }
  EXPECT_THAT(refusal(good + " ").what, HasSubstr("damaged, or edited by hand"));
}

TEST(Manifest, TheReaderIsStrictAlsoWhenTheDigestAgrees) {
  EXPECT_EQ(forged("1200", "1200"), format_manifest(sample()));
  EXPECT_THAT(refusal(forged("\"step\": 1200", "\"step\": -1")).what, HasSubstr("m.json: 'step' is no integer from 0"));
  EXPECT_THAT(refusal(forged("\"step\": 1200", "\"step\": 1.5")).what, HasSubstr("'step'"));
  EXPECT_THAT(refusal(forged("\"step\": 1200", "\"step\": 18446744073709551615")).what, HasSubstr("'step'"));
  EXPECT_THAT(refusal(forged("\"step\": 1200", "\"stepp\": 1200")).what, HasSubstr("'step' is missing"));
  EXPECT_THAT(refusal(forged("\"step\": 1200", "\"step\": 1200, \"extra\": 1")).what, HasSubstr("unknown field 'extra'"));
  EXPECT_THAT(refusal(forged("\"step\": 1200", "\"step\": 1200, \"step\": 1200")).what, HasSubstr("'step' is given twice"));
  EXPECT_THAT(refusal(forged("\"world_size\": 4", "\"world_size\": 0")).what, HasSubstr("'world_size'"));
  EXPECT_THAT(refusal(forged("\"optimizer.safetensors\"", "\"../optimizer\"")).what, HasSubstr("no name for a file"));
  EXPECT_THAT(refusal(forged("\"optimizer.safetensors\"", "\"model.safetensors\"")).what, HasSubstr("listed twice"));
  EXPECT_THAT(refusal(forged("\"00ff\"", "7")).what, HasSubstr("texts: 'rng' is no text"));
  EXPECT_THAT(refusal(forged("0.5", std::string(100, '[') + std::string(100, ']'))).what, HasSubstr("nested deeper"));
  EXPECT_THAT(refusal(forged("0.5", "1e999")).what, HasSubstr("no JSON"));
}

TEST(Manifest, ANewerFormatIsNoDamage) {
  const auto error = refusal(forged("\"format\": 1", "\"format\": 4"));
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_THAT(error.what, HasSubstr("format 4 by a newer cohort; this one reads up to 3"));
}

// Two ranks' pieces of a tensor, and a scalar.
Manifest sharded() {
  auto m = sample();
  m.files = {{"model-00000-of-00002.safetensors", 400, std::string(64, 'a')},
             {"model-00001-of-00002.safetensors", 400, std::string(64, 'b')}};
  m.pieces = {{"model-00000-of-00002.safetensors", 64, Dtype::f32, {"w", {4, 5}, 0}, 12, std::string(64, 'c')},
              {"model-00001-of-00002.safetensors", 64, Dtype::f32, {"w", {4, 5}, 12}, 8, std::string(64, 'd')},
              {"model-00001-of-00002.safetensors", 96, Dtype::bf16, {"s", {}, 0}, 1, std::string(64, 'e')}};
  return m;
}

TEST(Manifest, PiecesComeBackAndRaiseTheFormat) {
  const auto text = format_manifest(sharded());
  EXPECT_EQ(parse_manifest(text, "m.json"), sharded());
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json.at("format"), 2);
  EXPECT_EQ(json.at("pieces").at(1).at("first"), 12);
  EXPECT_EQ(nlohmann::json::parse(format_manifest(sample())).at("format"), 1);
}

// The ranks of two tp places, which share `w` out by columns; the left half in two runs.
Manifest in_boxes() {
  auto m = sharded();
  const Box left{{0, 0}, {4, 3}}, right{{0, 3}, {4, 2}};
  m.pieces[0] = {"model-00000-of-00002.safetensors", 64, Dtype::f32, {"w", {4, 5}, 0, left}, 5, std::string(64, 'c')};
  m.pieces[1] = {"model-00001-of-00002.safetensors", 64, Dtype::f32, {"w", {4, 5}, 0, right}, 8, std::string(64, 'd')};
  m.pieces.push_back({"model-00000-of-00002.safetensors", 96, Dtype::f32, {"w", {4, 5}, 5, left}, 7, std::string(64, 'f')});
  return m;
}

TEST(Manifest, BoxesComeBackAndRaiseTheFormatOnceMore) {
  const auto text = format_manifest(in_boxes());
  EXPECT_EQ(parse_manifest(text, "m.json"), in_boxes());
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json.at("format"), 3);
  EXPECT_EQ(json.at("pieces").at(1).at("box").at("first").dump(), "[0,3]");
  EXPECT_FALSE(json.at("pieces").at(2).contains("box")) << "a whole tensor has none";
  const auto tensors = assemble(in_boxes().pieces, "m.json");
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[1].pieces[0].name(), "w[0:4, 0:3][0:5]");
  EXPECT_EQ(tensors[1].pieces[1].name(), "w[0:4, 0:3][5:12]");
  EXPECT_EQ(tensors[1].pieces[2].name(), "w[0:4, 3:5]");
}

TEST(Manifest, BoxesThatCannotBeAreRefusedAlsoUnderAGoodDigest) {
  const auto refused = [](auto change) {
    auto m = in_boxes();
    change(m);
    const auto error = refusal(format_manifest(m));
    EXPECT_EQ(error.kind, Kind::corrupt) << error.what;
    return error.what;
  };
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[1].of.box = Box{{0, 2}, {4, 3}}, m.pieces[1].count = 12; }), HasSubstr("overlap"));
  EXPECT_THAT(refused([](Manifest& m) {
                m.pieces[1].of.box = Box{{0, 4}, {4, 1}}, m.pieces[1].count = 4;
              }),
              HasSubstr("4 of the 20 elements of 'w' are in no piece"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[3].of.first = 4; }), HasSubstr("overlap"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[3].count = 6; }), HasSubstr("elements 11 to 11 of 'w'"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces.erase(m.pieces.begin()); }), HasSubstr("elements 0 to 4 of 'w'"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[1].of.box.reset(); }), HasSubstr("elements 8 to 19 of 'w'"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[1].of.box = Box{{0, 3}, {4, 3}}; }), HasSubstr("has no box [0:4, 3:6]"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[1].of.box = Box{{0, 0, 3}, {1, 4, 2}}; }), HasSubstr("has no box"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[1].of.box = Box{{3}, {4, 2}}; }), HasSubstr("has no box [of other dimensions]"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[1].of.box = Box{{0, 3}, {4, 0}}, m.pieces[1].count = 0; }), HasSubstr("no run of"));
}

TEST(Manifest, AnOlderFormatKnowsNoBoxes) {
  auto text = format_manifest(in_boxes());
  const std::string format = "\"format\": 3";
  text.replace(text.find(format), format.size(), "\"format\": 2");
  const auto body = text.substr(text.find('\n') + 1);
  const auto error = refusal(fmt::format("{{\"sha256\": \"{}\",\n{}", sha256_hex(std::as_bytes(std::span(body))), body));
  EXPECT_THAT(error.what, HasSubstr("unknown field 'box'"));
}

TEST(Manifest, EveryByteOfItsPiecesIsGuarded) {
  const auto good = format_manifest(sharded());
  for (std::size_t at = 0; at < good.size(); ++at) {
    auto damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    EXPECT_EQ(refusal(damaged).kind, Kind::corrupt) << "byte " << at;
  }
}

TEST(Manifest, PiecesThatCannotBeAreRefusedAlsoUnderAGoodDigest) {
  const auto refused = [](auto change) {
    auto m = sharded();
    change(m);
    const auto error = refusal(format_manifest(m));
    EXPECT_EQ(error.kind, Kind::corrupt) << error.what;
    return error.what;
  };
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[1].of.first = 11; }), HasSubstr("overlap"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[1].of.first = 13, m.pieces[1].count = 7; }), HasSubstr("elements 12 to 12 of 'w'"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[1].count = 7; }), HasSubstr("elements 19 to 19 of 'w'"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[1].count = 9; }), HasSubstr("no run of the 20 of 'w'"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[1].count = 0; }), HasSubstr("no run of"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[1].of.first = std::uint64_t{1} << 62; }), HasSubstr("no run of"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces.push_back(m.pieces[2]); }), HasSubstr("overlap"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[1].dtype = Dtype::i32; }), HasSubstr("I32 [4, 5]"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[1].offset = 369; }), HasSubstr("are not inside"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[1].file = "other"; }), HasSubstr("not among the files"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[1].sha256 = "x"; }), HasSubstr("no digest"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[2].of.shape = {std::int64_t{1} << 62, 4}; }), HasSubstr("no whole number of bytes"));
  EXPECT_THAT(refused([](Manifest& m) { m.pieces[2].dtype = Dtype::f4; }), HasSubstr("no whole number of bytes"));
}

TEST(Manifest, FilesSayWhichGroupTheyAreOf) {
  EXPECT_EQ(shard_file("optimizer", 3, 8), "optimizer-00003-of-00008.safetensors");
  for (const auto* name : {"model.safetensors", "model-00003-of-00008.safetensors", "model"}) EXPECT_EQ(group_of(name), "model") << name;
  EXPECT_EQ(group_of("model-0003-of-00008.safetensors"), "model-0003-of-00008");
}

TEST(Manifest, WhatCannotBeReadBackIsNotWritten) {
  const auto refused = [](auto change) {
    auto manifest = sample();
    change(manifest);
    const auto error = failure_of([&] { format_manifest(manifest); });
    EXPECT_EQ(error.kind, Kind::usage);
    return error.what;
  };
  EXPECT_THAT(refused([](Manifest& m) { m.step = -1; }), HasSubstr("step -1"));
  EXPECT_THAT(refused([](Manifest& m) { m.texts["x"] = "\xff"; }), HasSubstr("no UTF-8"));
  EXPECT_THAT(refused([](Manifest& m) { m.values["x"] = "{"; }), HasSubstr("value 'x'"));
  EXPECT_THAT(refused([](Manifest& m) { m.values["x"] = R"({"a":1,"a":2})"; }), HasSubstr("twice"));
  EXPECT_THAT(refused([](Manifest& m) { m.values["x"] = std::string(30, '[') + std::string(30, ']'); }), HasSubstr("nested deeper"));
  auto deep = sample();
  deep.values["x"] = std::string(24, '[') + std::string(24, ']');
  EXPECT_EQ(parse_manifest(format_manifest(deep), "m.json"), deep);
}

TEST(Manifest, FileNamesStayInsideTheFolder) {
  EXPECT_TRUE(is_file_name("optimizer-0003-of-0008.safetensors"));
  for (const auto* name : {"", ".", "..", ".hidden", "a/b", "manifest.json", "a b", "a\n"}) EXPECT_FALSE(is_file_name(name)) << name;
}

}  // namespace
}  // namespace cohort::checkpoint
