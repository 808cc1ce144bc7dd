// CIFAR-10, binary version: data_batch_1.bin .. data_batch_5.bin and test_batch.bin.
#include <array>

#include "cohort/data/dataset.h"
#include "cohort/data/formats.h"
#include "cohort/data/input.h"

namespace cohort::data {
namespace {

using Type = SpecParam::Type;
constexpr std::string_view kHint = "set dir= to the folder of the binary version (cifar-10-batches-bin)";

const SpecSchema& schema() {
  static const SpecSchema one{"cifar10",
                              "CIFAR-10, binary version: colour images of 32 x 32 in ten classes",
                              {{.name = "dir", .type = Type::text, .doc = "folder with data_batch_1.bin and so on"},
                               {.name = "split", .type = Type::word, .doc = "which files", .preset = "train", .words = {"train", "test"}}}};
  return one;
}

std::shared_ptr<const Dataset> open(const SpecValues& v) {
  constexpr std::array<std::string_view, 5> kTrain{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                                                   "data_batch_5.bin"};
  constexpr std::array<std::string_view, 1> kTest{"test_batch.bin"};
  const bool train = v.word("split") == "train";
  std::vector<std::uint8_t> pixels;
  std::vector<std::int64_t> labels;
  for (const std::string_view& name : train ? std::span<const std::string_view>(kTrain) : kTest) {
    const std::string path = find_input(v.text("dir"), {&name, 1}, kHint);
    const std::string file = read_input(path);
    const CifarRecords records = parse_cifar(file, path);
    for (std::size_t i = 0; i < records.count(); ++i) {
      const std::string_view image = records.pixels(i);
      pixels.insert(pixels.end(), image.begin(), image.end());
      labels.push_back(records.label(i));
    }
  }
  Form form{.shape = {3, 32, 32}, .classes = 10};
  form.names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
  return std::make_shared<MemoryDataset>(std::move(form), v.text("dir"), std::move(pixels), std::move(labels));
}

}  // namespace

extern const DatasetKind row_cifar10{.name = "cifar10", .about = "CIFAR-10, binary version", .schema = schema, .open = open};

}  // namespace cohort::data
