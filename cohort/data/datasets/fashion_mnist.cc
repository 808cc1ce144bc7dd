// Fashion-MNIST (Xiao, Rasul, Vollgraf 2017): 60000 + 10000 grey images of 28 x 28 in ten classes, where Debian's package puts it.
#include "cohort/data/idx_dataset.h"

namespace cohort::data {
namespace {

using Type = SpecParam::Type;

const SpecSchema& schema() {
  static const SpecSchema one{
      "fashion_mnist",
      "Fashion-MNIST of Debian's package dataset-fashion-mnist",
      {{.name = "split", .type = Type::word, .doc = "60000 or 10000 images", .preset = "train", .words = {"train", "test"}},
       {.name = "dir", .type = Type::text, .doc = "folder of the four files", .preset = "/usr/share/datasets/fashion-mnist"}}};
  return one;
}

std::shared_ptr<const Dataset> open(const SpecValues& v) {
  return open_idx(v.text("dir"), v.word("split"), 10,
                  "apt-get install dataset-fashion-mnist brings them, or set dir= to the folder that has them",
                  {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"});
}

}  // namespace

extern const DatasetKind row_fashion_mnist{
    .name = "fashion_mnist", .about = "Fashion-MNIST, as Debian installs it", .schema = schema, .open = open};

}  // namespace cohort::data
