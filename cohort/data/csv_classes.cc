#include "cohort/data/csv_classes.h"

#include <algorithm>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/data/csv_columns.h"

namespace cohort::data {

CsvClasses::CsvClasses(const SpecValues& v, const Form* training) : v_(v), training_(training) {
  if (v.word("labels") == "names") words_ = true;
  if (v.word("labels") == "numbers") words_ = false;
  if (training == nullptr || training->targets > 0) return;
  words_ = !training->names.empty();
  for (const std::string& name : training->names) known_.emplace(name, std::ssize(known_));
}

void CsvClasses::add(std::string_view field, const CsvReader& reader, const CsvRoles& roles) {
  const std::string_view label = trim(field);
  if (!words_) words_ = !csv_number(label);  // the first label decides: a number that is none later is a mistake, not a class
  if (!*words_) return labels_.push_back(csv_integer(label, reader, *roles.label));
  const auto [at, fresh] = known_.emplace(label, std::ssize(known_));
  if (fresh && training_ != nullptr)
    throw_failure(Kind::corrupt, "{}: {} holds '{}', none of the {} classes that were trained on: {}", reader.place(),
                  roles.column(*roles.label), printable(label, 40), training_->classes, printable(join(training_->names, ", "), 300));
  labels_.push_back(at->second);
}

std::vector<std::int64_t> CsvClasses::finish(Form& form) {
  if (training_ != nullptr) form.names = training_->names;
  const std::int64_t wanted = v_.integer("classes") == 0 && training_ != nullptr ? training_->classes : v_.integer("classes");
  if (words_.value_or(false) && training_ == nullptr) number_in_order(form);
  if (words_.value_or(false) && wanted > std::ssize(form.names))  // a class without a word has no name in a checkpoint
    throw_failure(Kind::usage, "{}: classes={}, but its labels are {} different words; leave classes= out", v_.text("file"), wanted,
                  form.names.size());
  form.classes = count_classes(labels_, wanted, v_.text("file"));
  return std::move(labels_);
}

void CsvClasses::number_in_order(Form& form) {
  constexpr std::size_t kMany = 100;
  if (known_.size() > std::max(kMany, labels_.size() / 2) && v_.word("labels") == "auto")
    throw_failure(
        Kind::usage,
        "{}: label={} has {} different words in {} lines; say another label=, labels=names, or target= of `csv` for a number to predict",
        v_.text("file"), v_.text("label"), known_.size(), labels_.size());
  std::vector<std::int64_t> place(known_.size());
  for (const auto& [name, number] : known_) {
    place[static_cast<std::size_t>(number)] = std::ssize(form.names);
    form.names.push_back(name);
  }
  for (std::int64_t& label : labels_) label = place[static_cast<std::size_t>(label)];
}

}  // namespace cohort::data
