#include "cohort/collective/kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "cohort/base/error.h"
#include "cohort/collective/kernels/reference.h"

namespace cohort::collective {
namespace {

using reference::Bits;

constexpr std::size_t kSizes[] = {0, 1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 1000, 4097};
constexpr Op kElementOps[] = {Op::sum, Op::min, Op::max, Op::product};
constexpr std::size_t kGuard = 64;  // bytes before and after every buffer that must not change

// Bits that hit every rule: ordinary numbers, any bits at all, and the edges (zeros, infinities, NaNs, subnormals, extremes).
Bits random_element(Dtype dtype, std::mt19937_64& random) {
  const Bits any = random() >> (64 - 8 * size_of(dtype));
  const unsigned kind = random() % 4;
  if (dtype > Dtype::f64) return kind == 0 ? any & 1 : any;
  const reference::Format f = reference::format_of(dtype);
  if (kind == 0) return any;
  if (kind == 1) return reference::encode(f, (static_cast<double>(random() % 4001) - 2000.0) / 8);
  const Bits sign = any & f.sign();
  const std::array<Bits, 8> edges{
      0, 1, f.exponent(), f.exponent() | 1, f.exponent() | f.quiet() | 5, f.exponent() - 1, f.quiet() * 2, f.quiet()};
  return kind == 2 ? sign | edges[any % edges.size()] : sign | (any % (f.quiet() * 4));  // the last: subnormals and the smallest normals
}

// Elements between guards, off by `shift` bytes from any alignment.
struct Buffer {
  Buffer(Dtype type, std::size_t length, std::size_t shift)
      : dtype(type), count(length), bytes(2 * kGuard + shift + length * size_of(type), 0x5a), at(kGuard + shift) {}
  void* data() { return bytes.data() + at; }
  void fill(std::mt19937_64& random) {
    for (std::size_t i = 0; i < count; ++i) reference::put(dtype, data(), i, random_element(dtype, random));
  }
  bool guarded() const {
    const auto untouched = [](unsigned char byte) { return byte == 0x5a; };
    return std::all_of(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(at), untouched) &&
           std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(at + count * size_of(dtype)), bytes.end(), untouched);
  }
  Dtype dtype;
  std::size_t count;
  std::vector<unsigned char> bytes;
  std::size_t at;
};

std::vector<const void*> readable(std::vector<Buffer>& buffers) {
  std::vector<const void*> pointers;
  for (Buffer& each : buffers) pointers.push_back(each.data());
  return pointers;
}
std::vector<void*> writable(std::vector<Buffer>& buffers, std::size_t first = 0) {
  std::vector<void*> pointers;
  for (std::size_t k = first; k < buffers.size(); ++k) pointers.push_back(buffers[k].data());
  return pointers;
}

// One reduction of n random sources, what must come out of it, and the ways to write it.
struct Case {
  Case(const Reduction& reduction, std::size_t n, std::size_t count, std::uint64_t seed) : how(reduction), expected(how.dtype, count, 0) {
    std::mt19937_64 random(seed);
    for (std::size_t k = 0; k < n; ++k) {
      sources.emplace_back(how.dtype, count, k * 3 % 5 * (seed % 2));  // odd seeds: every source misaligned in its own way
      sources.back().fill(random);
    }
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<Bits> row;
      for (Buffer& source : sources) row.push_back(reference::get(how.dtype, source.data(), i));
      reference::put(how.dtype, expected.data(), i, reference::reduce(how.dtype, how.op, how.pre, how.post, row));
    }
    what = fmt::format("{} {} of {} sources x {}, pre {} post {}, seed {}", name_of(how.op), name_of(how.dtype), n, count, how.pre,
                       how.post, seed);
  }
  void check(Buffer& got, std::string_view set, std::string_view way) {
    ASSERT_TRUE(got.guarded()) << what << ", " << set << ", " << way << ": wrote outside its target";
    for (std::size_t i = 0; i < got.count; ++i)
      ASSERT_EQ(reference::get(how.dtype, got.data(), i), reference::get(how.dtype, expected.data(), i))
          << what << ", " << set << ", " << way << ", element " << i << std::hex;
  }
  void out_of_place(const Kernels& set, std::size_t m) {
    std::vector<Buffer> copies = sources;
    std::vector<Buffer> targets;
    for (std::size_t j = 0; j < m; ++j) targets.emplace_back(how.dtype, expected.count, j + sources[0].at - kGuard);
    set.reduce(how, readable(copies), writable(targets), expected.count);
    for (Buffer& each : targets) check(each, set.name, "out of place");
    for (std::size_t k = 0; k < copies.size(); ++k)
      ASSERT_EQ(copies[k].bytes, sources[k].bytes) << what << ", " << set.name << ": a source changed";
  }
  void in_place(const Kernels& set, std::size_t first_target) {  // sources from first_target on are targets
    std::vector<Buffer> copies = sources;
    set.reduce(how, readable(copies), writable(copies, first_target), expected.count);
    for (std::size_t k = 0; k < first_target; ++k)
      ASSERT_EQ(copies[k].bytes, sources[k].bytes) << what << ", " << set.name << ": a source changed";
    for (std::size_t k = first_target; k < copies.size(); ++k) check(copies[k], set.name, "in place");
  }
  void permuted(const Kernels& set) {  // all sources are targets, in another order
    std::vector<Buffer> copies = sources;
    std::vector<void*> targets = writable(copies);
    std::rotate(targets.begin(), targets.begin() + 1, targets.end());
    set.reduce(how, readable(copies), targets, expected.count);
    for (Buffer& each : copies) check(each, set.name, "in place, permuted");
  }
  void every_way() {
    for (const Kernels& set : runnable_kernels()) {
      out_of_place(set, 1);
      out_of_place(set, 2);
      in_place(set, 0);
      in_place(set, sources.size() - 1);
      permuted(set);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  Reduction how;
  std::vector<Buffer> sources;
  Buffer expected;
  std::string what;
};

class EveryDtype : public ::testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Kernels, EveryDtype,
                         ::testing::Values(Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64, Dtype::i8, Dtype::u8, Dtype::i32, Dtype::i64,
                                           Dtype::boolean, Dtype::i16),
                         [](const auto& row) { return std::string(name_of(row.param)); });

TEST_P(EveryDtype, ReducesToTheReferencesBitsForAnySourcesAndSize) {
  std::uint64_t seed = 1;
  for (const Op op : kElementOps)
    for (std::size_t n = 1; n <= 9; ++n)
      for (const std::size_t count : kSizes) {
        Case({GetParam(), op}, n, count, seed++).every_way();
        if (HasFatalFailure()) return;
      }
}

TEST_P(EveryDtype, FollowsTheBracketForManySources) {
  std::uint64_t seed = 1000;
  for (const std::size_t n : {12, 16, 17, 23, 32, 33, 63, 64, 65, 100}) {
    Case({GetParam(), Op::sum}, n, 77, seed++).every_way();
    Case({GetParam(), Op::product}, n, 5, seed++).every_way();
    if (HasFatalFailure()) return;
  }
}

TEST_P(EveryDtype, ScalesBeforeAndAfter) {
  std::uint64_t seed = 2000;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double factor : {0.5, 0.25, 1.0 / 3, -0.0, 0.0, -1.75, 1e300, 3e-42, std::numeric_limits<double>::infinity(), nan, -nan})
    for (std::size_t n = 1; n <= 9; ++n)
      for (const auto& [pre, post] : {std::pair{1.0, factor}, {factor, 1.0}, {factor, 1.0 / 3}}) {
        Case({GetParam(), n % 2 == 0 ? Op::max : Op::sum, pre, post}, n, 67 + n, seed++).every_way();
        if (HasFatalFailure()) return;
      }
}

TEST_P(EveryDtype, ScaleAloneAgreesWithTheReference) {
  std::mt19937_64 random(7);
  for (const Kernels& set : runnable_kernels())
    for (const double factor : {1.0, 0.5, 1.0 / 3, -2.5, 0.0, 1e10, 1e-10, 7e18, std::numeric_limits<double>::quiet_NaN()})
      for (const std::size_t count : kSizes) {
        Buffer data(GetParam(), count, 3);
        data.fill(random);
        Buffer before = data;
        set.scale(GetParam(), data.data(), count, factor);
        ASSERT_TRUE(data.guarded());
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_EQ(reference::get(GetParam(), data.data(), i),
                    reference::scale(GetParam(), reference::get(GetParam(), before.data(), i), factor))
              << set.name << " " << name_of(GetParam()) << " x " << factor << ", element " << i;
      }
}

// Large arrays take other roads (four places at once, past the caches). Small ones were compared with the reference above, so large ones
// are compared with the same work done in small parts.
constexpr std::size_t kPart = 1000;

TEST_P(EveryDtype, LargeArraysScaleLikeSmallOnes) {
  const std::size_t width = size_of(GetParam()), count = (std::size_t{1} << 20) / width + 4321;
  std::mt19937_64 random(11);
  for (const Kernels& set : runnable_kernels())
    for (const double factor : {-0.5, 1.0 / 3}) {
      Buffer whole(GetParam(), count, 5);
      whole.fill(random);
      Buffer parts = whole;
      set.scale(GetParam(), whole.data(), count, factor);
      for (std::size_t i = 0; i < count; i += kPart)
        set.scale(GetParam(), static_cast<char*>(parts.data()) + i * width, std::min(kPart, count - i), factor);
      ASSERT_TRUE(whole.bytes == parts.bytes) << set.name << " x " << factor;
    }
}

TEST_P(EveryDtype, LargeTargetsReduceLikeSmallOnes) {
  const std::size_t width = size_of(GetParam()), count = (std::size_t{4} << 20) / width + 4321;
  std::mt19937_64 random(12);
  std::vector<Buffer> sources;
  for (std::size_t k = 0; k < 3; ++k) sources.emplace_back(GetParam(), count, k), sources.back().fill(random);
  const std::vector<const void*> from = readable(sources);
  for (const Kernels& set : runnable_kernels())
    for (const std::size_t shift : {std::size_t{0}, std::size_t{1}, 3 * width}) {  // on any byte, and on any element
      Buffer whole(GetParam(), count, shift), parts(GetParam(), count, shift);
      const std::array<void*, 1> to{whole.data()};
      set.reduce({GetParam(), Op::sum, 1.0, 1.0 / 3}, from, to, count);
      for (std::size_t i = 0; i < count; i += kPart) {
        std::array<const void*, 3> part_from;
        for (std::size_t k = 0; k < 3; ++k) part_from[k] = static_cast<const char*>(from[k]) + i * width;
        const std::array<void*, 1> part_to{static_cast<char*>(parts.data()) + i * width};
        set.reduce({GetParam(), Op::sum, 1.0, 1.0 / 3}, part_from, part_to, std::min(kPart, count - i));
      }
      ASSERT_TRUE(whole.bytes == parts.bytes) << set.name << " shifted by " << shift;
    }
}

}  // namespace
}  // namespace cohort::collective
