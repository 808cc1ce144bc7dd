#include "cohort/data/form_json.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>

#include "cohort/base/error.h"
#include "cohort/base/failure_of.h"

namespace cohort::data {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

const std::vector<std::string> kWhole{
    R"({"shape": [1, 28, 28], "classes": 3, "names": ["a", "b", "c"], "tokens": 0})",
    R"({"shape": [3, 4, 5], "classes": 2, "names": [], "tokens": 0, "input": "images", "targets": 0, "columns": [], "fill": []})",
    R"({"shape": [16], "classes": 32, "names": [], "tokens": 32, "input": "tokens"})",
    R"({"shape": [2], "classes": 0, "names": ["price"], "tokens": 0, "input": "float values", "targets": 1,)"
    R"( "columns": ["x", "y"], "fill": [0.5, -1]})",
    R"({"shape": [4], "classes": 0, "names": [], "tokens": 1, "input": "tokens", "wide": true, "ids": 3})",
    R"({"shape": [2], "classes": 0, "names": [], "tokens": 0, "input": "float values"})"};  // of a set that does not count its classes

TEST(FormJson, GivesBackWhatWasWritten) {
  for (const auto& text : kWhole) {
    const Form form = form_of_json(text, "run");
    EXPECT_EQ(to_json(form_of_json(to_json(form), "run")), to_json(form));
    const json was = json::parse(text), is = json::parse(to_json(form));
    for (const auto& [key, value] : was.items()) EXPECT_EQ(is.at(key), value) << key;
  }
}

TEST(FormJson, NumbersThatDoNotBelongTogetherAreRefusedByName) {
  const auto refused = [](std::size_t whole, const char* key, const json& value, const char* say) {
    json changed = json::parse(kWhole[whole]);
    changed[key] = value;
    const auto error = failure_of([&] { form_of_json(changed.dump(), "runs/a"); });
    EXPECT_EQ(error.kind, Kind::corrupt);
    EXPECT_THAT(error.what, AllOf(HasSubstr("runs/a"), HasSubstr(key), HasSubstr(say))) << changed;
  };
  refused(0, "shape", {28, 28}, "channels, height and width");
  refused(0, "shape", {1, 28, -28}, "no integer from 1");
  refused(0, "shape", {1, 1 << 20, 1 << 20}, "larger than any sample");
  refused(0, "shape", {1LL << 62, 4, 1}, "no integer");
  refused(0, "shape", json::array(), "0 sizes");
  refused(0, "shape", "1x28x28", "no list");
  refused(0, "names", {"a"}, "1 entries for 3");
  refused(0, "names", {"a", "b", 3}, "no text");
  refused(0, "classes", 1e300, "no integer");
  refused(0, "classes", 18446744073709551615ULL, "no integer");
  refused(1, "tokens", 5, "token input");
  refused(2, "tokens", 0, "token input");
  refused(3, "columns", {"x"}, "1 entries for 2");
  refused(3, "fill", {1, 2, 3}, "3 entries for 2");
  refused(3, "fill", {1, nullptr}, "no finite number");
  refused(3, "names", {"a", "b"}, "2 entries for 1");
  refused(3, "input", "sounds", "none of");
  for (const char* text : {"", "[]", "{", "null", "{}"})
    EXPECT_EQ(failure_of([&] { form_of_json(text, "run"); }).kind, Kind::corrupt) << text;
}

// What form_of_json() lets through can be allocated and indexed.
TEST(FormJson, WhateverIsChangedItIsRefusedOrItsNumbersBelongTogether) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  const std::vector<json> values{0,
                                 1,
                                 -1,
                                 3,
                                 1LL << 40,
                                 -(1LL << 62),
                                 18446744073709551615ULL,
                                 1.5,
                                 "a",
                                 nullptr,
                                 json::array(),
                                 json::object(),
                                 json::array({1, 2, 3}),
                                 json::array({"a", "b"}),
                                 json::array({0, 1, 1}),
                                 "tokens",
                                 "float values"};
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    json changed = json::parse(kWhole[random() % kWhole.size()]);
    for (unsigned n = 0; n <= random() % 3; ++n) {
      auto at = changed.begin();
      std::advance(at, random() % changed.size());
      const json& value = values[random() % values.size()];
      if (at->is_array() && !at->empty() && random() % 2 == 0)
        (*at)[random() % at->size()] = value;
      else
        *at = value;
    }
    try {
      const Form form = form_of_json(changed.dump(), "seed 7");
      EXPECT_GT(form.bytes(), 0) << changed;
      EXPECT_LE(form.bytes(), std::int64_t{1} << 30) << changed;
      EXPECT_TRUE(form.names.empty() || form.names.size() == static_cast<std::size_t>(std::max(form.classes, form.targets))) << changed;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.kind(), Kind::corrupt);
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace cohort::data
