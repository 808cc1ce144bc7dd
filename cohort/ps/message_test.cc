#include "cohort/ps/message.h"

#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"

namespace cohort::ps {
namespace {

TEST(Message, RequestsAndRepliesRoundTrip) {
  const Request request{.verb = Verb::mark,
                        .go = false,
                        .table = 7,
                        .which = 2,
                        .clock = 1LL << 40,
                        .seq = 99,
                        .first = 3,
                        .count = 4,
                        .slack = 0,
                        .payload = 1ULL << 33,
                        .lr = 0.1,
                        .scale = -2.5};
  EXPECT_EQ(decode_request(encode(request)), request);
  const Reply reply{.failed = true, .kind = Kind::peer_lost, .table = 3, .clock = 4, .low = 2, .version = 77, .payload = 5, .text = "why"};
  EXPECT_EQ(decode_reply(encode(reply)), reply);
  EXPECT_EQ(decode_reply(encode(Reply{.text = std::string(10'000, 'x')})).text, std::string(kMostReplyText, 'x'));
}

TEST(Message, DefinitionsRoundTrip) {
  const std::vector<Part> parts{{.first = 1, .count = 2, .lr_scale = 3}, {.first = 4}};
  const Definition d{.dense = {.name = "w", .dtype = Dtype::f64, .count = 10, .parts = parts, .rule = "sgd"},
                     .width = 0,
                     .clock = "ssp(2)",
                     .workers = 3,
                     .average = false};
  const Definition again = decode_definition(encode(d));
  EXPECT_EQ(encode(again), encode(d));
  EXPECT_EQ(again.dense.parts, d.dense.parts);
}

TEST(Message, WhichTensorsAreMissingTakesABitEach) {
  for (const std::size_t n : {0U, 1U, 8U, 13U}) {
    std::vector<bool> missing(n);
    for (std::size_t i = 0; i < n; i += 3) missing[i] = true;
    EXPECT_EQ(encode_missing(missing).size(), (n + 7) / 8);
    EXPECT_EQ(decode_missing(encode_missing(missing), n), missing);
  }
}

TEST(Message, WhateverIsCutOrFlippedIsRefusedOrMeansSomething) {
  const auto check = [](const auto& bytes, const auto& decode) {
    for (std::size_t n = 0; n < bytes.size(); ++n)
      EXPECT_EQ(failure_of([&] { decode(ConstBytes(bytes).first(n)); }).kind, Kind::corrupt) << n;
    for (std::size_t i = 0; i < bytes.size() * 8; ++i) {
      auto flipped = bytes;
      flipped[i / 8] ^= static_cast<std::byte>(1U << (i % 8));
      try {
        decode(ConstBytes(flipped));
      } catch (const Failure& failure) {
        EXPECT_EQ(failure.kind(), Kind::corrupt);
      }
    }
  };
  check(encode(Request{.verb = Verb::pull}), [](ConstBytes b) { decode_request(b); });
  check(encode(Reply{.text = "hm"}), [](ConstBytes b) { decode_reply(b); });
  check(encode(Definition{.dense = {.name = "w", .count = 2, .parts = {{.count = 2}}, .rule = "sgd"}, .clock = "bsp"}),
        [](ConstBytes b) { decode_definition(b); });
}

}  // namespace
}  // namespace cohort::ps
