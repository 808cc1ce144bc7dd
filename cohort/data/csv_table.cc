#include "cohort/data/csv_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/data/csv_classes.h"
#include "cohort/data/csv_columns.h"
#include "cohort/data/csv_roles.h"
#include "cohort/data/csv_values.h"

namespace cohort::data {
namespace {

std::uint8_t pixel(std::string_view text, const CsvReader& reader, std::size_t column) {
  const auto value = csv_number(text);
  if (!value || *value > 255) {
    throw_failure(Kind::corrupt, "{}: column {} holds '{}', expected a pixel 0 to 255; values=floats reads other numbers", reader.place(),
                  column, printable(text, 40));
  }
  return static_cast<std::uint8_t>(*value);
}

class Table {
 public:
  Table(const SpecValues& v, const CsvRoles& roles, const Form* training)
      : v_(v), roles_(roles), training_(training), missing_(v.word("missing")), classes_(v, training) {}

  void read(std::string_view file) {
    CsvReader reader(file, v_.text("file"), csv_separator(v_));
    if (roles_.header) reader.next();
    while (reader.next()) read_line(reader);
    if (dropped_ > 0 && logs_for_job())
      log_warning("{}: left out {} of {} lines, which have missing values", v_.text("file"), dropped_, dropped_ + lines_);
    if (lines_ == 0) throw_failure(Kind::usage, "{}: not one line with values{}", v_.text("file"), dropped_ > 0 ? " in all columns" : "");
  }

  std::shared_ptr<const Dataset> finish() {
    Form form{.input = roles_.pixels ? Input::pixels : Input::floats, .shape = roles_.shape};
    form.unlabelled = roles_.unlabelled;
    for (const std::size_t i : roles_.features)
      if (i < roles_.names.size()) form.columns.push_back(roles_.names[i]);
    if (!roles_.pixels) fill_missing(form);
    std::vector<std::int64_t> labels = learned(form);
    std::vector<std::uint8_t> inputs = roles_.pixels ? std::move(pixels_) : bytes_of(features_);
    return std::make_shared<MemoryDataset>(std::move(form), v_.text("file"), std::move(inputs), std::move(labels), std::move(targets_));
  }

 private:
  // NaN for a missing value that is filled later; nothing when its line is left out.
  std::optional<float> value(const CsvReader& reader, std::size_t column, bool can_fill) {
    const std::string_view field = reader.fields()[column];
    if (const auto number = csv_float(field)) return number;
    if (!csv_missing(field))
      throw_failure(Kind::corrupt, "{}: {} holds '{}', expected a number; say ignore= for columns that are not to be learned from",
                    reader.place(), roles_.column(column), printable(field, 40));
    if (missing_ == "drop") return std::nullopt;
    if (missing_ == "error" || !can_fill)
      throw_failure(Kind::corrupt, "{}: {} has no value ('{}'); {}", reader.place(), roles_.column(column), printable(field, 40),
                    can_fill ? "say missing=mean, missing=zero or missing=drop" : "missing=drop leaves such lines out");
    return std::numeric_limits<float>::quiet_NaN();
  }

  // False: the line is left out.
  bool append(std::vector<float>& to, const std::vector<std::size_t>& columns, const CsvReader& reader, bool can_fill) {
    const std::size_t before = to.size();
    for (const std::size_t column : columns) {
      const auto number = value(reader, column, can_fill);
      if (!number) return to.resize(before), false;
      to.push_back(*number);
    }
    return true;
  }

  void read_line(const CsvReader& reader) {
    const auto& fields = reader.fields();
    const bool lacks_label = roles_.label && csv_missing(fields[*roles_.label]);
    if (lacks_label && missing_ != "drop" && !roles_.pixels)
      throw_failure(Kind::corrupt, "{}: {} has no value ('{}'); missing=drop leaves such lines out", reader.place(),
                    roles_.column(*roles_.label), printable(fields[*roles_.label], 40));
    const std::size_t before = features_.size();
    if ((lacks_label && missing_ == "drop") || (!roles_.pixels && !append(features_, roles_.features, reader, true))) {
      ++dropped_;
      return;
    }
    if (!append(targets_, roles_.targets, reader, false)) {
      features_.resize(before);
      ++dropped_;
      return;
    }
    if (roles_.label) classes_.add(fields[*roles_.label], reader, roles_);
    for (std::size_t i = 0; roles_.pixels && i < roles_.features.size(); ++i)
      pixels_.push_back(pixel(fields[roles_.features[i]], reader, roles_.features[i]));
    ++lines_;
  }

  // Means of what is there, added up in the order of the file; of a test set those of training.
  void fill_missing(Form& form) {
    const std::size_t width = roles_.features.size();
    if (training_ != nullptr && training_->fill.size() == width) form.fill = training_->fill;
    for (std::size_t f = form.fill.size(); f < width; ++f) {
      double sum = 0;
      std::int64_t count = 0;
      for (std::size_t i = f; i < features_.size(); i += width)
        if (!std::isnan(features_[i])) sum += static_cast<double>(features_[i]), ++count;
      if (count == 0 && missing_ == "mean")
        throw_failure(Kind::corrupt, "{}: {} has no value in any line; say ignore={}", v_.text("file"), roles_.column(roles_.features[f]),
                      roles_.features[f]);
      form.fill.push_back(missing_ == "zero" || count == 0 ? 0.0F : static_cast<float>(sum / static_cast<double>(count)));
    }
    for (std::size_t i = 0; i < features_.size(); ++i)
      if (std::isnan(features_[i])) features_[i] = form.fill[i % width];
  }

  // Classes or targets into the form; returns the labels.
  std::vector<std::int64_t> learned(Form& form) {
    const std::int64_t lines = lines_;
    if (roles_.label) return classes_.finish(form);
    if (roles_.unlabelled) {
      form.names = training_->names;
      form.classes = training_->classes;
      form.targets = training_->targets;
      targets_.resize(static_cast<std::size_t>(lines * form.targets));
      return std::vector<std::int64_t>(form.targets > 0 ? 0 : static_cast<std::size_t>(lines), kNoLabel);
    }
    form.targets = std::ssize(roles_.targets);
    for (const std::size_t i : roles_.targets)
      if (i < roles_.names.size()) form.names.push_back(roles_.names[i]);
    return {};
  }

  const SpecValues& v_;
  const CsvRoles& roles_;
  const Form* training_;
  const std::string missing_;
  CsvClasses classes_;
  std::vector<std::uint8_t> pixels_;
  std::vector<float> features_, targets_;
  std::int64_t lines_ = 0, dropped_ = 0;
};

}  // namespace

std::shared_ptr<const Dataset> read_csv(std::string_view file, const SpecValues& v, const Form* training) {
  file = without_byte_order_mark(file);
  const CsvRoles roles = csv_roles(file, v, training);
  Table table(v, roles, training);
  table.read(file);
  return table.finish();
}

}  // namespace cohort::data
