// A Codec turns a run of fp32 elements into fewer bytes, and the bytes of several ranks back into the sum of what they stand for.
//   auto codec = codec::make("topk(ratio=0.01)");
//   std::vector<std::byte> payload(codec->bound(layout, range));
//   payload.resize(codec->encode({.layout = layout, .range = range, .values = gradients}, payload));
//   codec->absorb({.layout = layout, .range = range, .keep = range, .values = out, .scale = 1.0 / ranks}, payloads);   // of all ranks
// A codec has no memory of its own; what it did not send is kept by a Feedback, where feedback() asks for one.
// A codec of several rounds() (Mix::add) sends a payload in parts: a round is encoded when those before it have been added over the ranks,
// and the whole payload is decoded like any other. On one rank encode() makes all rounds at once.
// Laws (codecs_test.cc holds every row to them):
//   - A payload takes at most bound() bytes; zeros behind it, up to bound(), change nothing.
//   - The bits depend on a tensor's name and values, on nothing else: not on buckets, cuts at kBlock, threads, instruction sets.
//   - absorb() adds in the canonical bracket over payloads (base/bracket.h), rounded at each addition.
//   - Of a tensor with an element that is not finite, one comes out not finite, so that the vote of the step sees it.
//   - Biased: |x - C(x)|^2 <= (1 - contraction()) |x|^2, in the mean over draws; with feedback, x - C(x) is exact in fp32, if exact().
//     Unbiased: the mean of C(x) is x.
// Owner: whoever called make(). Threads: any number at once, on outputs that do not overlap.
// Failure: Kind::usage before anything is written. absorb(): Kind::corrupt for payloads that no encode() gives, before anything is
// written: they come from the network.
// To add a codec: codecs/<word>.cc with its formula and `row_<word>`, the word in codecs/CMakeLists.txt, codecs/<word>_test.cc.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cohort/base/bytes.h"
#include "cohort/base/layout.h"
#include "cohort/codec/random.h"

namespace cohort::codec {

using Range = ElementRange;

// How payloads of several ranks become one.
enum class Mix : std::uint8_t {
  add,     // payloads are added as they are, element by element: an all-reduce of payload()
  gather,  // everybody decodes everybody's: an all-gather
  hops,    // owners of ranges decode, add, encode again and hand out: an all-to-all and an all-gather
};
std::string_view name_of(Mix mix);

// Elements that share a scale, counted from the start of their tensor. A range begins and ends where a tensor or a gap does, or whole
// blocks behind a tensor's start: cut() of sync/ownership.h cuts so (a test compares the two numbers).
inline constexpr std::size_t kBlock = 256;

// Momentum that every rank keeps on its own side of the codec, so that what is sent late has the momentum it would have had (feedback.h).
struct Momentum {
  double factor = 0.9;
  bool nesterov = false;
  bool masking = true;  // what is sent loses its momentum
  double clip = 0;      // norm of a tensor's gradient over the ranks, to which every rank's share is clipped; 0: not
};

// What to encode. The values are those of the whole layout, as a tensor's statistics may need all of it; the payload has the range. Ranks
// draw different numbers, but with Mix::add the same: then absorb() must be given them, too.
struct Source {
  const Layout& layout;
  Range range;
  Piece values;
  Random random{};
  std::int64_t step = 0;            // of the job, the first is 1
  int round = -1;                   // which of rounds(); -1: all, as on a single rank
  ConstBytes before{};              // the payload's rounds before this one, added over the ranks
  std::span<const float> memory{};  // what remember() left, tensor after tensor; none: it begins anew
};

// Where to decode to. The payloads have the range; values are the elements of `keep`, a part of it, and no more. They are overwritten
// with scale * sum; what lies between tensors may keep what it was.
struct Target {
  const Layout& layout;
  Range range;
  Range keep;
  Piece values;
  double scale = 1;
  Random random{};  // Mix::add: that of encode()
};

class Codec {
 public:
  Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;
  virtual ~Codec() = default;

  virtual Mix mix() const = 0;
  virtual Dtype payload() const { return Dtype::u8; }  // the elements of a payload; Mix::add: those that are added
  virtual bool feedback() const = 0;                   // what is not sent must be kept and sent later
  virtual bool unbiased() const { return false; }
  virtual bool exact() const { return true; }      // feedback: x - C(x) is a float; else it is rounded to one
  virtual bool votes() const { return false; }     // Mix::hops: the result is C(sum), on owners too, and no sum
  virtual bool variable() const { return false; }  // no Mix::add: payloads are as long as what they hold, often far below bound()
  virtual int rounds() const { return 1; }
  virtual std::optional<Momentum> momentum() const { return {}; }           // feedback: with momentum; the optimizer must have none
  virtual Shape memory(const TensorPlace& /*tensor*/) const { return {}; }  // fp32 kept of a tensor for the next step, alike on all ranks
  virtual double contraction(const Layout& layout) const = 0;               // delta, 0 .. 1; 0: no bound is promised
  virtual std::size_t bound(const Layout& layout, const Range& range) const = 0;  // bytes: what a payload costs
  virtual std::size_t round_bytes(int /*round*/, const Layout& layout, const Range& range) const { return bound(layout, range); }
  const std::string& spec() const { return spec_; }  // canonical, every parameter spelled out

  std::size_t encode(const Source& source, Bytes out) const;                      // checks, then bytes written
  void absorb(const Target& target, std::span<const ConstBytes> payloads) const;  // in rank order; none: zeros
  // What the next step begins with, of the payload of this one, added over the ranks; to: as many as memory() says.
  virtual void remember(const Layout& /*layout*/, ConstBytes /*payload*/, std::span<float> /*to*/) const {}

 private:
  friend std::unique_ptr<Codec> make(std::string_view spec);
  virtual std::size_t write(const Source& source, Bytes out) const = 0;  // all checked
  virtual void read(const Target& target, std::span<const ConstBytes> payloads) const = 0;
  std::string spec_;
};

// "fp16", "topk(ratio=0.01)", ... Kind::usage with the column, or with the known names.
std::unique_ptr<Codec> make(std::string_view spec);

// Kind::usage where the codec does not go with this optimizer: one that keeps momentum takes plain SGD.
void check_optimizer(const Codec& codec, std::string_view optimizer);

std::size_t memory_of(const Codec& codec, const TensorPlace& tensor);  // elements of Codec::memory()

}  // namespace cohort::codec
