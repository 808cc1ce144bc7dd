// A Python object with __len__ and __getitem__(index) -> (input, label) as a data set of the loader. Inputs and labels are tensors, numpy
// arrays or numbers; the first sample says of what kind all of them are:
//   input   float: as it is, float32          | uint8 [channels, height, width]: an image, which a batch makes floats of [0, 1], and the
//           transforms what data.transforms say | another integer: ids, int64
//   label   one integer: a class               | float: what a regression predicts, of any shape | integers: int64 ids, of any shape
// Owner: the Loader keeps the set, the set the Python object. Threads: any; __getitem__ runs with the GIL. Failure: Kind::usage naming the
// sample; an exception of __getitem__ as python_call.h says.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cohort/data/dataset.h"
#include "cohort/python/train/python_call.h"

namespace cohort::python {

class PythonDataset final : public data::Dataset {
 public:
  data::Sample sample(std::int64_t index, data::Scratch& scratch) const override;
  std::string where(std::int64_t index) const override;
  // A batch's labels as Python has them: [n, ..] with the sizes of one label.
  at::Tensor in_shape(const at::Tensor& labels) const;
  // What a model gives, as the default losses want it: [n, targets], or [n, ids, classes]; and back. What does not fit stays.
  at::Tensor as_rows(const at::Tensor& outputs) const;
  at::Tensor outputs_in_shape(const at::Tensor& rows) const;
  const std::vector<std::int64_t>& label_sizes() const { return label_sizes_; }

  struct First {  // what the first sample says
    data::Form form;
    std::vector<std::int64_t> label_sizes;
    std::int64_t size = 0;
  };
  PythonDataset(First first, PythonObject set, std::string name, ExceptionSlot& slot);

 private:
  at::Tensor checked(const pybind11::handle& value, std::string_view part, at::ScalarType type,
                     const std::vector<std::int64_t>& sizes) const;

  const PythonObject set_;
  const std::string name_;
  const std::vector<std::int64_t> label_sizes_;
  ExceptionSlot& slot_;
};

// name: "the training set". slot: outlives the set.
std::shared_ptr<const PythonDataset> dataset_of(const PythonObject& set, std::string name, ExceptionSlot& slot);

}  // namespace cohort::python
