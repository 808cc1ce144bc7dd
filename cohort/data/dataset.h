// A data set hands out samples by index. Every sample is memory: bytes for the pixels of an image (planar, channel after channel, 0 to 255)
// or the tokens of a text, of which a batch makes floats and 64-bit integers (batch.h), so that a set takes the memory of its files; or
// float32 values of any shape. What is learned is a class, the next tokens, or `targets` float32 values (regression).
//   auto train = open_dataset("fashion_mnist(split=train)");
// Owner: shared (a Loader keeps its set). Threads: any, everything is const. Failure: Kind::usage for names, paths and parameters,
// Kind::corrupt for bytes, with path, offset, what was expected and found. Folders decode when asked, so sample() may fail too.
// To add a kind: datasets/<word>.cc with `row_<word>`, the word in datasets/CMakeLists.txt, and datasets/<word>_test.cc.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/spec.h"
#include "cohort/data/fingerprint.h"

namespace cohort::data {

enum class Input { pixels, tokens, floats };
std::string_view name_of(Input input);  // "images", "tokens", "float values": for messages

// What one sample is.
struct Form {
  Input input = Input::pixels;
  std::vector<std::int64_t> shape;   // pixels: channels, height, width; tokens: context; floats: 1 to 4 sizes
  std::int64_t classes = 0;          // labels are 0 .. classes - 1; 0 when there are targets
  std::int64_t vocabulary = 0;       // tokens are 0 .. vocabulary - 1
  std::int64_t targets = 0;          // float32 values to predict for each sample (regression); 0: a class or next tokens
  std::vector<std::string> names{};  // of the classes, or of the targets, where the set knows them
  bool next_tokens = false;          // the labels of a sample are its next tokens, one for each; else one label
  bool wide = false;                 // tokens are int64 in a Sample, not bytes: any vocabulary
  std::int64_t ids = 0;              // int64 labels of each sample (a class for each pixel, say); 0: as said above
  // Of a table: how its columns are called (empty: nothing says so), and what stands for a missing value of each, measured on this set.
  std::vector<std::string> columns{};
  std::vector<float> fill{};
  bool unlabelled = false;  // samples without labels, to predict: every label is -100, every target 0

  std::int64_t elements() const;  // of one sample's input
  std::int64_t bytes() const { return elements() * static_cast<std::int64_t>(input == Input::floats ? sizeof(float) : wide ? 8 : 1); }
  std::int64_t labels() const { return next_tokens ? elements() : targets > 0 ? targets : ids > 0 ? ids : 1; }  // of one sample
};

struct Sample {
  const std::uint8_t* input;              // Form::bytes() bytes; of Input::floats: float32 values as they lie in memory
  std::int64_t label = 0;                 // unless Form::next_tokens or Form::targets
  const std::uint8_t* targets = nullptr;  // if Form::next_tokens
  const float* values = nullptr;          // if Form::targets, so many
  const std::int64_t* ids = nullptr;      // if Form::ids, so many
};

using Scratch = std::vector<std::uint8_t>;

class Dataset {
 public:
  virtual ~Dataset() = default;
  const Form& form() const { return form_; }
  std::int64_t size() const { return size_; }
  // 0 <= index < size(). The pointers are valid until the set dies or scratch is touched.
  virtual Sample sample(std::int64_t index, Scratch& scratch) const = 0;
  virtual void prefetch(std::int64_t /*index*/) const {}    // a hint: this sample comes soon
  virtual std::string where(std::int64_t index) const = 0;  // for messages: "photos/cat/1.jpg", "train-images-idx3-ubyte, sample 7"
  const Fingerprint& fingerprint() const;                   // what tells this set from others, as it was when first asked for

 protected:
  Dataset(Form form, std::int64_t size);  // Kind::usage for an empty set
  virtual Fingerprint content() const;    // of the fingerprint: by default that of some samples

 private:
  Form form_;
  std::int64_t size_;
  mutable std::once_flag fingerprint_made_;
  mutable Fingerprint fingerprint_;
};

std::vector<std::uint8_t> bytes_of(std::span<const float> values);  // what a Sample of Input::floats points to

// A set whose samples lie in memory, one after the other. values: Form::targets of each sample; there are no labels then.
class MemoryDataset final : public Dataset {
 public:
  MemoryDataset(Form form, std::string source, std::vector<std::uint8_t> inputs, std::vector<std::int64_t> labels,
                std::vector<float> values = {});
  Sample sample(std::int64_t index, Scratch& scratch) const override;
  void prefetch(std::int64_t index) const override;
  std::string where(std::int64_t index) const override;

 protected:
  Fingerprint content() const override;

 private:
  std::string source_;
  std::vector<std::uint8_t> inputs_;
  std::vector<std::int64_t> labels_;
  std::vector<float> values_;
};

struct DatasetKind {
  std::string_view name, about;
  const SpecSchema& (*schema)();
  std::shared_ptr<const Dataset> (*open)(const SpecValues& values);
  // Where a set depends on what was trained on (the numbers of classes, what fills missing values, the order of columns): the same with
  // that of training, as a test set or one to predict is opened. None: open does.
  std::shared_ptr<const Dataset> (*open_like)(const SpecValues& values, const Form& training) = nullptr;
};

std::span<const DatasetKind* const> dataset_rows();
void add_dataset(const DatasetKind& row, std::string_view plugin);  // row: stays for good
std::shared_ptr<const Dataset> open_dataset(std::string_view spec);
std::shared_ptr<const Dataset> open_dataset(std::string_view spec, const Form& training);  // for what was trained on such samples
std::string dataset_help();                                                                // every kind and its parameters

// "1x28x28" as {1, 28, 28}: `parts` positive numbers (0: any number of them), at most 2^31 elements together.
std::vector<std::int64_t> parse_shape(std::string_view text, std::size_t parts);

// Labels as the files have them, checked: classes is `wanted`, or one more than the largest when wanted is 0.
std::int64_t count_classes(std::span<const std::int64_t> labels, std::int64_t wanted, std::string_view source);

}  // namespace cohort::data
