// MNIST and its relatives: train-images-idx3-ubyte and train-labels-idx1-ubyte (t10k-... for the test split), plain or .gz.
#include <array>

#include "cohort/base/error.h"
#include "cohort/data/formats.h"
#include "cohort/data/idx_dataset.h"
#include "cohort/data/input.h"

namespace cohort::data {

std::shared_ptr<const Dataset> open_idx(const std::string& dir, std::string_view split, std::int64_t classes, std::string_view hint,
                                        std::vector<std::string> names) {
  const bool train = split == "train";
  // Some copies of the files have a dot where the original has a dash.
  const std::array<std::string_view, 2> image_names =
      train ? std::array<std::string_view, 2>{"train-images-idx3-ubyte", "train-images.idx3-ubyte"}
            : std::array<std::string_view, 2>{"t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte"};
  const std::array<std::string_view, 2> label_names =
      train ? std::array<std::string_view, 2>{"train-labels-idx1-ubyte", "train-labels.idx1-ubyte"}
            : std::array<std::string_view, 2>{"t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte"};
  const std::string image_path = find_input(dir, image_names, hint);
  const std::string label_path = find_input(dir, label_names, hint);
  const std::string image_file = read_input(image_path);
  const std::string label_file = read_input(label_path);
  const IdxArray images = parse_idx(image_file, image_path);
  const IdxArray numbers = parse_idx(label_file, label_path);
  if (images.sizes.size() < 3 || numbers.sizes.size() != 1 || images.sizes[0] != numbers.sizes[0]) {
    throw_failure(
        Kind::corrupt,
        "{} has {} dimensions and {} images, {} has {} dimensions and {} labels; expected images x height x width and as many labels",
        image_path, images.sizes.size(), images.sizes[0], label_path, numbers.sizes.size(), numbers.sizes[0]);
  }
  std::vector<std::int64_t> labels(numbers.body.size());
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<unsigned char>(numbers.body[i]);
  Form form{.shape = {images.sizes.end() - 2, images.sizes.end()}};
  form.shape.insert(form.shape.begin(), images.sizes.size() == 4 ? images.sizes[1] : 1);
  form.classes = count_classes(labels, classes, label_path);
  form.names = std::move(names);
  return std::make_shared<MemoryDataset>(std::move(form), image_path, std::vector<std::uint8_t>(images.body.begin(), images.body.end()),
                                         std::move(labels));
}

namespace {

using Type = SpecParam::Type;

const SpecSchema& schema() {
  static const SpecSchema one{"idx",
                              "images and labels in IDX files (MNIST and its relatives), plain or gzip",
                              {{.name = "dir", .type = Type::text, .doc = "folder of the four files"},
                               {.name = "split", .type = Type::word, .doc = "which files", .preset = "train", .words = {"train", "test"}},
                               {.name = "classes",
                                .type = Type::integer,
                                .doc = "labels are 0 to classes - 1; 0: as the labels say",
                                .preset = "0",
                                .low = 0,
                                .high = 256}}};
  return one;
}

std::shared_ptr<const Dataset> open(const SpecValues& v) {
  return open_idx(v.text("dir"), v.word("split"), v.integer("classes"), "set dir= to the folder that has them");
}

}  // namespace

extern const DatasetKind row_idx{.name = "idx", .about = "IDX files of bytes", .schema = schema, .open = open};

}  // namespace cohort::data
