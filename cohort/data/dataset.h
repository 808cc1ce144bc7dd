// A data set hands out samples by index. Every sample is bytes in memory: pixels of an image (planar, channel after channel, 0 to 255) or
// tokens of a text; floats and 64-bit integers are made when a batch is (batch.h), so that a set takes the memory of its files.
//   auto train = open_dataset("fashion_mnist(split=train)");
// Owner: shared (a Loader keeps its set). Threads: any, everything is const. Failure: Kind::usage for names, paths and parameters,
// Kind::corrupt for bytes, with path, offset, what was expected and found. Folders decode when asked, so sample() may fail too.
// To add a kind: datasets/<word>.cc with `row_<word>`, the word in datasets/CMakeLists.txt, and datasets/<word>_test.cc.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/spec.h"

namespace cohort::data {

enum class Input { pixels, tokens };

// What one sample is.
struct Form {
  Input input = Input::pixels;
  std::vector<std::int64_t> shape;   // pixels: channels, height, width; tokens: context
  std::int64_t classes = 0;          // labels are 0 .. classes - 1
  std::int64_t vocabulary = 0;       // tokens are 0 .. vocabulary - 1
  std::vector<std::string> names{};  // of the classes, where the set knows them
  bool next_tokens = false;          // the labels of a sample are its next tokens, one for each; else one label

  std::int64_t elements() const;                                        // of one sample's input
  std::int64_t labels() const { return next_tokens ? elements() : 1; }  // of one sample
};

struct Sample {
  const std::uint8_t* input;              // Form::elements() bytes
  std::int64_t label = 0;                 // unless Form::next_tokens
  const std::uint8_t* targets = nullptr;  // if Form::next_tokens
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

 protected:
  Dataset(Form form, std::int64_t size);  // Kind::usage for an empty set

 private:
  Form form_;
  std::int64_t size_;
};

// A set whose samples lie in memory, one after the other.
class MemoryDataset final : public Dataset {
 public:
  MemoryDataset(Form form, std::string source, std::vector<std::uint8_t> inputs, std::vector<std::int64_t> labels);
  Sample sample(std::int64_t index, Scratch& scratch) const override;
  void prefetch(std::int64_t index) const override;
  std::string where(std::int64_t index) const override;

 private:
  std::string source_;
  std::vector<std::uint8_t> inputs_;
  std::vector<std::int64_t> labels_;
};

struct DatasetKind {
  std::string_view name, about;
  const SpecSchema& (*schema)();
  std::shared_ptr<const Dataset> (*open)(const SpecValues& values);
};

std::span<const DatasetKind* const> dataset_rows();
std::shared_ptr<const Dataset> open_dataset(std::string_view spec);
std::string dataset_help();  // every kind and its parameters

// "1x28x28" as {1, 28, 28}: `parts` positive numbers (0: any number of them), at most 2^31 elements together.
std::vector<std::int64_t> parse_shape(std::string_view text, std::size_t parts);

// Labels as the files have them, checked: classes is `wanted`, or one more than the largest when wanted is 0.
std::int64_t count_classes(std::span<const std::int64_t> labels, std::int64_t wanted, std::string_view source);

}  // namespace cohort::data
