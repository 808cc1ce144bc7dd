// Laws that every codec of the table keeps; a new one is held to them by its word.
#include <gmock/gmock.h>

#include <thread>

#include "cohort/base/bracket.h"
#include "cohort/base/failure_of.h"
#include "cohort/base/isa.h"
#include "cohort/codec/codec_row.h"
#include "cohort/codec/feedback.h"
#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

using testing::Each;
using testing::HasSubstr;

// Every word with its defaults, and what parameters change much.
std::vector<std::string> specs() {
  std::vector<std::string> all{"fp16(sum=fp32)",
                               "bf16(sum=fp32)",
                               "int8(rounding=stochastic)",
                               "int8(feedback=false)",
                               "qsgd(levels=1)",
                               "qsgd(levels=127, norm=max)",
                               "qsgd(elias=true)",
                               "qsgd(levels=127, elias=true)",
                               "terngrad(clip=2.5)",
                               "topk(ratio=0.1)",
                               "topk(ratio=1)",
                               "randomk(ratio=0.25)",
                               "randomk(ratio=0.25, feedback=false)",
                               "randomk(ratio=1)",
                               "threshold(value=0.5, cap=1)",
                               "significant(share=0.5, cap=0.4)",
                               "powersgd(rank=1, min_rate=1)",
                               "powersgd(rank=7, min_rate=1)",
                               "dgc(ratio=1)",
                               "dgc(ratio=0.1, warmup=10)",
                               "sketch(ratio=0.05, width=2, rows=1)"};
  for (const CodecRow* row : codecs()) all.emplace_back(row->name);
  return all;
}

template <class Body>
void for_every_codec(const Body& body) {
  for (const std::string& spec : specs()) {
    SCOPED_TRACE(spec);
    body(*make(spec));
  }
}

const Random kRandom(42, 7);
const Layout kLayout = [] {
  Layout layout = layout_of({1, 5, 256, 257, 1000, 4099});
  layout.tensors[2].shape = {16, 16};
  layout.tensors[4].shape = {25, 8, 5};
  return layout;
}();

double squared(const std::vector<float>& x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return sum;
}
std::vector<float> difference(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> out(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) out[i] = a[i] - b[i];
  return out;
}

class Codecs : public testing::Test {
 protected:
  ~Codecs() override { use_isa(runnable_isas().back()); }
};

TEST_F(Codecs, TakeNoMoreBytesThanTheirBoundAndWriteNothingBehindIt) {
  for_every_codec([](const Codec& codec) {
    for (const std::size_t count : {0, 1, 2, 15, 16, 255, 256, 257, 511, 513}) {
      const Layout layout = layout_of({count, 3});
      const std::size_t bound = codec.bound(layout, layout.all());
      Buffer out(bound + 64, std::byte{0xA5});
      const std::vector<float> values = noise(layout, 1);
      EXPECT_LE(codec.encode({.layout = layout, .range = layout.all(), .values = whole(values), .random = kRandom}, out), bound);
      EXPECT_THAT(Buffer(out.begin() + static_cast<std::ptrdiff_t>(bound), out.end()), Each(std::byte{0xA5}));
    }
  });
}

TEST_F(Codecs, GiveTheSameBitsHoweverTensorsAreGroupedIntoBuckets) {
  const std::vector<float> values = noise(kLayout, 2);
  for_every_codec([&](const Codec& codec) {
    const auto together = sent(codec, kLayout, values, kRandom);
    for (const TensorPlace& t : kLayout.tensors) {
      Layout alone{{{t.name, 16, t.count, t.shape}}, round_up(t.count + 32, 16)};  // with other gaps, too
      std::vector<float> own(alone.count);
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(t.first), t.count, own.begin() + 16);
      const auto back = sent(codec, alone, own, kRandom);
      EXPECT_EQ(std::memcmp(back.data() + 16, together.data() + t.first, t.count * sizeof(float)), 0) << t.name;
    }
  });
}

TEST_F(Codecs, GiveTheSameBitsHoweverARangeIsCut) {
  const std::vector<float> values = noise(kLayout, 3);
  const std::size_t big = kLayout.tensors.back().first;
  for_every_codec([&](const Codec& codec) {
    const auto together = sent(codec, kLayout, values, kRandom);
    std::vector<float> pieces;
    std::size_t from = 0;
    for (const std::size_t to : {std::size_t{0}, kLayout.tensors[3].first + 256, big, big + 256, big + 4096, kLayout.count}) {
      const Range range{from, to - from};
      const auto part = absorbed(codec, kLayout, {encoded(codec, kLayout, values, range, kRandom)}, range, 1, 0, kRandom);
      pieces.insert(pieces.end(), part.begin(), part.end());
      from = to;
    }
    EXPECT_TRUE(same_bits(together, pieces));
    const Range keep{big + 256, 512};  // a part of what was sent whole
    std::vector<float> kept(keep.count);
    const Buffer payload = encoded(codec, kLayout, values, kLayout.all(), kRandom);
    const ConstBytes one[]{payload};
    codec.absorb({.layout = kLayout, .range = kLayout.all(), .keep = keep, .values = whole(kept), .random = kRandom}, one);
    EXPECT_EQ(std::memcmp(kept.data(), together.data() + keep.first, keep.count * sizeof(float)), 0);
  });
}

TEST_F(Codecs, GiveTheSameBitsOnEveryInstructionSetAndAtAnyAddress) {
  const std::vector<float> values = noise(kLayout, 4);
  for_every_codec([&](const Codec& codec) {
    use_isa(Isa::plain);
    const Buffer payload = encoded(codec, kLayout, values, kLayout.all(), kRandom);
    const auto back = absorbed(codec, kLayout, {payload, payload, payload}, kLayout.all(), 0.3, 0, kRandom);
    for (const Isa isa : runnable_isas()) {
      use_isa(isa);
      Buffer moved(codec.bound(kLayout, kLayout.all()) + 1);  // odd, where the allocator gives even ones
      const Bytes odd = Bytes(moved).subspan(1);
      const std::size_t size = codec.encode({.layout = kLayout, .range = kLayout.all(), .values = whole(values), .random = kRandom}, odd);
      EXPECT_TRUE(std::equal(payload.begin(), payload.end(), odd.begin(), odd.begin() + static_cast<std::ptrdiff_t>(size))) << name_of(isa);
      std::vector<float> out(kLayout.count);
      const ConstBytes three[]{odd.first(size), odd.first(size), odd.first(size)};
      const Range all = kLayout.all();
      codec.absorb({.layout = kLayout, .range = all, .keep = all, .values = whole(out), .scale = 0.3, .random = kRandom}, three);
      EXPECT_TRUE(same_bits(back, out)) << name_of(isa);
    }
  });
}

TEST_F(Codecs, GiveTheSameBitsFromManyThreadsAtOnce) {
  const std::vector<float> values = noise(kLayout, 5);
  for_every_codec([&](const Codec& codec) {
    const auto alone = sent(codec, kLayout, values, kRandom);
    std::vector<std::vector<float>> each(4);
    std::vector<std::thread> threads;
    for (auto& own : each) threads.emplace_back([&] { own = sent(codec, kLayout, values, kRandom); });
    for (auto& thread : threads) thread.join();
    for (const auto& own : each) EXPECT_TRUE(same_bits(alone, own));
  });
}

float bracket(const std::vector<std::vector<float>>& all, std::size_t low, std::size_t high, std::size_t i) {
  if (high - low == 1) return all[low][i];
  const std::size_t middle = low + bracket_split(high - low);
  return bracket(all, low, middle, i) + bracket(all, middle, high, i);
}

TEST_F(Codecs, AddPayloadsInTheCanonicalBracketAndScaleOnce) {
  for_every_codec([](const Codec& codec) {
    for (std::size_t ranks = 1; ranks <= 7; ++ranks) {
      std::vector<Buffer> payloads;
      std::vector<std::vector<float>> each;
      for (std::size_t r = 0; r < ranks; ++r) {
        const auto values = noise(kLayout, static_cast<unsigned>(10 + r));
        payloads.push_back(encoded(codec, kLayout, values));
        each.push_back(sent(codec, kLayout, values));
      }
      const double scale = 1.0 / static_cast<double>(ranks);
      const auto sum = absorbed(codec, kLayout, payloads, kLayout.all(), scale, NAN);  // overwritten
      for (const TensorPlace& t : kLayout.tensors)
        for (std::size_t i = t.first; i < t.first + t.count; ++i)
          ASSERT_EQ(sum[i], static_cast<float>(static_cast<double>(bracket(each, 0, ranks, i)) * scale)) << i << " of " << ranks;
    }
    for (const TensorPlace& t : kLayout.tensors) {
      const auto nothing = absorbed(codec, kLayout, {}, kLayout.all(), 1, NAN);
      EXPECT_EQ(nothing[t.first + t.count - 1], 0.0F);
    }
  });
}

// In the mean over draws, five standard errors allowed: none for a codec that does not draw.
TEST_F(Codecs, ThatAreBiasedContractAsTheyDeclare) {
  std::vector<std::string> without_bound;
  for_every_codec([&](const Codec& codec) {
    if (codec.unbiased()) return;
    const double delta = codec.contraction(kLayout);
    if (delta == 0) return without_bound.push_back(codec.spec());
    EXPECT_GT(delta, 0);
    EXPECT_LE(delta, 1);
    for (unsigned seed = 0; seed < 8; ++seed) {
      auto x = noise(kLayout, 20 + seed);
      for (float& v : x) v = std::copysign(std::pow(std::abs(v), 1.0F + static_cast<float>(seed) / 2), v);  // from flat to heavy tails
      constexpr int kDraws = 40;
      double sum = 0, squares = 0;
      for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
        const double lost = squared(difference(x, sent(codec, kLayout, x, Random(3, draw)))) / squared(x);
        sum += lost / kDraws;
        squares += lost * lost / kDraws;
      }
      EXPECT_LE(sum, 1 - delta + 5 * std::sqrt(std::max(0.0, squares - sum * sum) / kDraws) + 1e-12) << seed;
    }
  });
  EXPECT_THAT(without_bound, testing::UnorderedElementsAre("sign_majority", HasSubstr("terngrad(clip=2.5"), HasSubstr("threshold"),
                                                           HasSubstr("threshold"), HasSubstr("sketch"), HasSubstr("sketch")));
}

TEST_F(Codecs, WithRandomnessSendWhatTheyWereGivenInTheMean) {
  int unbiased = 0;
  for_every_codec([&](const Codec& codec) {
    if (!codec.unbiased()) return;
    ++unbiased;
    EXPECT_FALSE(codec.feedback());
    const Layout layout = layout_of({3, 30});
    const auto x = noise(layout, 6);
    constexpr int kDraws = 10000;
    std::vector<double> sum(x.size()), squares(x.size());
    for (int draw = 0; draw < kDraws; ++draw) {
      const auto c = sent(codec, layout, x, Random(9, static_cast<std::uint64_t>(draw)));
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double error = static_cast<double>(c[i]) - static_cast<double>(x[i]);
        sum[i] += error;
        squares[i] += error * error;
      }
    }
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_LE(std::abs(sum[i]), 5 * std::sqrt(squares[i]) + 1e-30) << i;  // five standard errors
  });
  EXPECT_GT(unbiased, 0);
}

TEST_F(Codecs, WithFeedbackLoseNothingToTheBit) {
  for_every_codec([](const Codec& codec) {
    if (!codec.feedback()) return;
    Feedback feedback(kLayout.count);
    std::vector<double> sent_in_all(kLayout.count), given(kLayout.count), lost(kLayout.count);  // the last: by rounding, 0 but of products
    std::mt19937 random(8);
    for (int step = 0; step < 30; ++step) {
      std::vector<float> g(kLayout.count);
      for (float& v : g) v = std::ldexp(std::round(normal(random) * 256), -4);  // dyadic: sums are exact
      const Piece p = feedback.begin(whole(g), 0.5);
      const std::vector<float> before(static_cast<const float*>(p.data), static_cast<const float*>(p.data) + p.count);
      const auto c = sent(codec, kLayout, before, Random(1, static_cast<std::uint64_t>(step)));
      const double ulp = codec.rounds() > 1 ? 0x1p-24 : 0;  // of products of matrices, rounded as any sum in fp32
      const bool committed = step % 4 != 2;
      const std::vector<float> kept(feedback.residual().begin(), feedback.residual().end());
      feedback.note_sent(whole(c));
      feedback.settle(committed);
      const std::vector<float> left(feedback.residual().begin(), feedback.residual().end());
      if (!committed) {
        EXPECT_TRUE(same_bits(kept, left));
        continue;
      }
      for (const TensorPlace& t : kLayout.tensors)
        for (std::size_t i = t.first; i < t.first + t.count; ++i) {
          sent_in_all[i] += static_cast<double>(c[i]);
          given[i] += static_cast<double>(g[i]);
          const double error = ulp * (std::abs(static_cast<double>(c[i])) + std::abs(static_cast<double>(before[i])));
          lost[i] += 2 * error;
          ASSERT_NEAR(static_cast<double>(c[i]) + static_cast<double>(left[i]), static_cast<double>(before[i]), error) << step << " " << i;
          ASSERT_NEAR(sent_in_all[i] + static_cast<double>(left[i]), given[i], lost[i]) << step << " " << i;
        }
    }
  });
}

TEST_F(Codecs, WithFeedbackSubtractExactlyForAnyNumbers) {
  for_every_codec([](const Codec& codec) {
    if (!codec.feedback() || !codec.exact()) return;
    for (unsigned seed = 0; seed < 20; ++seed) {
      auto x = noise(kLayout, 30 + seed);
      for (float& v : x) v = std::ldexp(v, static_cast<int>(seed) * 11 - 100);
      const auto c = sent(codec, kLayout, x);
      for (std::size_t i = 0; i < x.size(); ++i)
        ASSERT_EQ(static_cast<double>(x[i] - c[i]), static_cast<double>(x[i]) - static_cast<double>(c[i])) << x[i];
    }
  });
}

TEST_F(Codecs, LetWhatIsNotFiniteComeOutNotFinite) {
  for_every_codec([](const Codec& codec) {
    for (const float bad : {NAN, INFINITY, -INFINITY})
      for (const std::size_t tensor : {0u, 3u, 4u, 5u}) {
        const TensorPlace& t = kLayout.tensors[tensor];
        auto x = noise(kLayout, 40);
        x[t.first + t.count - 1] = bad;
        const auto fine = encoded(codec, kLayout, noise(kLayout, 41), kLayout.all(), kRandom);
        const auto poor = encoded(codec, kLayout, x, kLayout.all(), kRandom);
        const auto sum = absorbed(codec, kLayout, {fine, poor, fine}, kLayout.all(), 1.0 / 3, 0, kRandom);
        EXPECT_FALSE(std::isfinite(sum[t.first + t.count - 1])) << bad << " in " << t.name;
      }
  });
}

TEST_F(Codecs, SendZerosAsZerosAndNothingAsNothing) {
  for_every_codec([](const Codec& codec) {
    EXPECT_THAT(sent(codec, kLayout, std::vector<float>(kLayout.count)), Each(0.0F));
    const Layout empty{};
    EXPECT_EQ(codec.bound(empty, {}), 0u);
    EXPECT_TRUE(sent(codec, empty, {}).empty());
    const Layout none = layout_of({0, 0});
    EXPECT_TRUE(sent(codec, none, {}).empty());
    EXPECT_EQ(codec.bound(kLayout, {kLayout.tensors[3].first + 256, 0}), 0u);
    EXPECT_TRUE(encoded(codec, kLayout, noise(kLayout, 1), {kLayout.tensors[3].first + 256, 0}).empty());
  });
}

TEST_F(Codecs, RefusePayloadsOfAWrongLengthBeforeTheyWrite) {
  const std::vector<float> values = noise(kLayout, 50);
  for_every_codec([&](const Codec& codec) {
    const Buffer payload = encoded(codec, kLayout, values);
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, payload.size() / 2, payload.size() - 1, payload.size() + 1}) {
      Buffer wrong = payload;
      wrong.resize(size, std::byte{1});
      std::vector<float> out(kLayout.count, 5);
      const ConstBytes both[]{payload, wrong};
      const Error error =
          failure_of([&] { codec.absorb({.layout = kLayout, .range = kLayout.all(), .keep = kLayout.all(), .values = whole(out)}, both); });
      EXPECT_EQ(error.kind, Kind::corrupt) << size;
      EXPECT_THAT(out, Each(5.0F));
    }
  });
}

TEST_F(Codecs, OfAnyBytesDecodeOrRefuse) {
  std::mt19937 random(60);
  for_every_codec([&](const Codec& codec) {
    const Buffer good = encoded(codec, kLayout, noise(kLayout, 61));
    int refused = 0;
    for (int i = 0; i < 300; ++i) {
      Buffer bytes = good;
      for (int change = 0; change < 1 + i % 7; ++change) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
      std::vector<float> guarded(kLayout.count + 32, 5);  // 16 elements before and behind
      const Piece out = whole(guarded).part(16, kLayout.count);
      const ConstBytes one[]{bytes};
      const Error error =
          failure_of([&] { codec.absorb({.layout = kLayout, .range = kLayout.all(), .keep = kLayout.all(), .values = out}, one); });
      refused += error.kind == Kind::corrupt ? 1 : 0;
      EXPECT_TRUE(error.kind == Kind::corrupt || error.what == "(it did not fail)") << error.what;
      for (std::size_t k = 0; k < 16; ++k) ASSERT_TRUE(guarded[k] == 5 && guarded[guarded.size() - 1 - k] == 5);
    }
    if (codec.mix() == Mix::gather) {  // places can be wrong
      EXPECT_GT(refused, 0);
    }
  });
}

TEST_F(Codecs, RefuseWhatTheyCannotTakeAndSayWhatToDo) {
  std::vector<double> f64(kLayout.count);
  std::vector<float> f32(kLayout.count);
  for_every_codec([&](const Codec& codec) {
    Buffer out(codec.bound(kLayout, kLayout.all()));
    const auto refused = [&](Piece values, Range range) {
      return failure_of([&] { codec.encode({.layout = kLayout, .range = range, .values = values}, out); });
    };
    const Error of_f64 = refused(piece(std::span(f64)), kLayout.all());
    EXPECT_EQ(of_f64.kind, Kind::usage);
    EXPECT_THAT(of_f64.what, HasSubstr("not f64; send these gradients without a codec"));
    Piece gpu = whole(f32);
    gpu.device = {DeviceKind::cuda, 1};
    EXPECT_THAT(refused(gpu, kLayout.all()).what, HasSubstr("memory of a GPU"));
    EXPECT_THAT(refused(whole(f32), {kLayout.tensors[5].first + 100, 500}).what, HasSubstr("whole blocks of 256"));
    EXPECT_EQ(refused(whole(f32), {0, kLayout.count + 1}).kind, Kind::bug);
    EXPECT_EQ(failure_of([&] {
                codec.encode({.layout = kLayout, .range = kLayout.all(), .values = whole(f32)}, Bytes(out).first(out.size() - 1));
              }).kind,
              Kind::bug);
  });
}

TEST(Make, SpellsEveryParameterOutAndReadsThatAgain) {
  EXPECT_EQ(make("topk(ratio=1e-2)")->spec(), "topk(ratio=0.01, feedback=true)");
  EXPECT_EQ(make("fp16")->spec(), "fp16(sum=comm)");
  for (const std::string& spec : specs()) EXPECT_EQ(make(make(spec)->spec())->spec(), make(spec)->spec());
  EXPECT_THAT(failure_of([] { make("topc"); }).what, HasSubstr("did you mean 'topk'"));
  EXPECT_EQ(failure_of([] { make("topk(ratio=2)"); }).kind, Kind::usage);
}

}  // namespace
}  // namespace cohort::codec
