// Autoencoders: the samples of another set, to be reconstructed.
//   target_i = value_i of the input: pixels in [0, 1], float values as they are
// The set's labels are left out. Images with `normalise` have normalised inputs and targets in [0, 1] all the same.
#include <algorithm>
#include <cstring>

#include "cohort/base/error.h"
#include "cohort/data/dataset.h"

namespace cohort::data {
namespace {

using Type = SpecParam::Type;

const SpecSchema& schema() {
  static const SpecSchema one{"reconstruct",
                              "the samples of another set with themselves as targets",
                              {{.name = "of", .type = Type::spec, .doc = "that set: reconstruct(of=fashion_mnist)"},
                               {.name = "samples", .type = Type::integer, .doc = "the first so many; 0: all", .preset = "0", .low = 0}}};
  return one;
}

Form form_of(const Dataset& set) {
  Form form = set.form();
  if (form.input == Input::tokens) throw_failure(Kind::usage, "reconstruct: its set has tokens; give one of images or float values");
  form.targets = form.elements();
  form.classes = form.ids = 0;
  form.names.clear();
  form.next_tokens = form.unlabelled = false;
  return form;
}

class Reconstruct final : public Dataset {
 public:
  Reconstruct(std::shared_ptr<const Dataset> set, std::int64_t samples) : Dataset(form_of(*set), samples), set_(std::move(set)) {}

  Sample sample(std::int64_t index, Scratch& scratch) const override {
    Scratch inner;
    const std::uint8_t* input = set_->sample(index, inner).input;
    const auto count = static_cast<std::size_t>(form().targets), bytes = static_cast<std::size_t>(form().bytes());
    scratch.resize(count * sizeof(float) + bytes);  // targets, then the input: floats first, for their alignment
    auto* targets = reinterpret_cast<float*>(scratch.data());
    std::uint8_t* copy = scratch.data() + count * sizeof(float);
    std::memcpy(copy, input, bytes);
    if (form().input == Input::floats) {
      std::memcpy(targets, input, bytes);
    } else {
      for (std::size_t i = 0; i < count; ++i) targets[i] = static_cast<float>(input[i]) / 255.0F;
    }
    return {.input = copy, .values = targets};
  }
  void prefetch(std::int64_t index) const override { set_->prefetch(index); }
  std::string where(std::int64_t index) const override { return set_->where(index); }

 protected:
  Fingerprint content() const override { return set_->fingerprint(); }

 private:
  std::shared_ptr<const Dataset> set_;
};

std::shared_ptr<const Dataset> open(const SpecValues& v) {
  auto set = open_dataset(v.spec("of").to_string());
  const std::int64_t samples = v.integer("samples") == 0 ? set->size() : std::min(set->size(), v.integer("samples"));
  return std::make_shared<Reconstruct>(std::move(set), samples);
}

}  // namespace

extern const DatasetKind row_reconstruct{
    .name = "reconstruct", .about = "the samples of another set with themselves as targets", .schema = schema, .open = open};

}  // namespace cohort::data
