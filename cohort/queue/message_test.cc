#include "cohort/queue/message.h"

#include <gtest/gtest.h>

#include <random>

namespace cohort::queue {
namespace {

Signature sample() {
  return {.collective = Collective::all_gather,
          .op = Op::max,
          .root = Rank{3},
          .prescale = 0.5,
          .postscale = -2.0,
          .sizes_asked = true,
          .adasum = true,
          .codec = "topk(ratio=0.01)",
          .parts = {{Dtype::bf16, Device::cpu, {kAnyLength, 7}}, {Dtype::boolean, Device::cuda, {}}}};
}

Request a_request() {
  return {77,
          {{.type = Entry::Type::known, .id = 9},
           {.type = Entry::Type::fresh, .name = "grad \xc3\xbc", .signature = sample()},
           {.type = Entry::Type::join},
           {.type = Entry::Type::leave}}};
}

Response a_response() {
  Response response{78, {4, 5}, {}};
  response.decisions.push_back(
      {.decision = {.action = Decision::Action::run}, .name_refs = {{.id = 9}, {10, "b", sample()}, {kNoId, "c", sample()}}});
  response.decisions.push_back(
      {.decision = {.action = Decision::Action::refuse, .kind = Kind::usage, .text = "no"}, .name_refs = {{kNoId, "d", {}}}});
  response.decisions.push_back({.decision = {.action = Decision::Action::joined, .rank = Rank{2}}});
  return response;
}

TEST(Message, RequestsSurviveEncodingAndDecoding) {
  const Request there = decode_request(encode(a_request()));
  EXPECT_EQ(there.acknowledged, 77u);
  ASSERT_EQ(there.entries.size(), 4u);
  EXPECT_EQ(there.entries[0].id, 9u);
  EXPECT_EQ(there.entries[1].name, "grad \xc3\xbc");
  EXPECT_EQ(there.entries[1].signature, sample());
  EXPECT_EQ(there.entries[3].type, Entry::Type::leave);
}

TEST(Message, ResponsesSurviveEncodingAndDecoding) {
  const Response there = decode_response(encode(a_response()));
  EXPECT_EQ(there.number, 78u);
  EXPECT_EQ(there.forgotten, (std::vector<NameId>{4, 5}));
  ASSERT_EQ(there.decisions.size(), 3u);
  EXPECT_EQ(there.decisions[0].name_refs[1].name, "b");
  EXPECT_EQ(there.decisions[0].name_refs[2].signature, sample());
  EXPECT_EQ(there.decisions[1].decision.text, "no");
  EXPECT_EQ(there.decisions[2].decision.rank, Rank{2});
}

template <class Decode>
void expect_corrupt_or_fine(ConstBytes bytes, Decode decode, bool must_fail) {
  try {
    decode(bytes);
    EXPECT_FALSE(must_fail);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::corrupt);
  }
}

TEST(Message, EveryTruncationIsCorrupt) {
  const auto request = encode(a_request());
  for (std::size_t n = 0; n < request.size(); ++n) expect_corrupt_or_fine(ConstBytes(request).first(n), decode_request, true);
  const auto response = encode(a_response());
  for (std::size_t n = 0; n < response.size(); ++n) expect_corrupt_or_fine(ConstBytes(response).first(n), decode_response, true);
}

TEST(Message, TrailingBytesAreCorrupt) {
  auto request = encode(a_request());
  request.push_back(std::byte{0});
  expect_corrupt_or_fine(request, decode_request, true);
}

TEST(Message, RandomDamageIsCorruptOrHarmlessNeverWorse) {
  std::mt19937 random(42);
  for (int i = 0; i < 20'000; ++i) {
    auto request = encode(a_request());
    auto response = encode(a_response());
    for (auto hits = random() % 4 + 1; hits > 0; --hits) {
      request[random() % request.size()] = static_cast<std::byte>(random());
      response[random() % response.size()] = static_cast<std::byte>(random());
    }
    expect_corrupt_or_fine(request, decode_request, false);
    expect_corrupt_or_fine(response, decode_response, false);
  }
}

}  // namespace
}  // namespace cohort::queue
