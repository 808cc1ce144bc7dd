// Tables come from anywhere. Whatever the bytes: Kind::corrupt, or records of equal width; and written again with every field in quotes
// they read back the same. Taken as a data set, they give samples of finite numbers and labels within the classes, or Kind::corrupt or
// usage; and opened again as a test set beside themselves, the same samples.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/data/csv_table.h"
#include "cohort/data/formats.h"

namespace {

using Table = std::vector<std::vector<std::string>>;

Table read(std::string_view text) {
  Table table;
  cohort::data::CsvReader reader(text, "input");
  while (reader.next()) {
    table.emplace_back(reader.fields().begin(), reader.fields().end());
    if (table.back().empty() || table.back().size() != table[0].size() || reader.place().empty()) __builtin_trap();
  }
  return table;
}

std::string write(const Table& table) {
  std::string text;
  for (const auto& record : table) {
    for (std::size_t i = 0; i < record.size(); ++i) {
      text += i == 0 ? "\"" : ",\"";
      for (const char c : record[i]) text += c == '"' ? std::string("\"\"") : std::string(1, c);
      text += '"';
    }
    text += "\r\n";
  }
  return text;
}

std::vector<float> checked(const cohort::data::Dataset& set) {
  const auto& form = set.form();
  std::vector<float> all;
  cohort::data::Scratch scratch;
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const auto sample = set.sample(i, scratch);
    std::vector<float> values(static_cast<std::size_t>(form.elements()));
    if (form.input == cohort::data::Input::floats)
      std::memcpy(values.data(), sample.input, values.size() * sizeof(float));
    else
      values.assign(sample.input, sample.input + form.elements());
    for (std::int64_t t = 0; t < form.targets; ++t) values.push_back(sample.values[t]);
    for (const float value : values)
      if (!std::isfinite(value)) __builtin_trap();
    if (form.targets == 0 && (sample.label < 0 || sample.label >= form.classes)) __builtin_trap();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

void take_as_set(std::string_view text, const char* spec) {
  using namespace cohort;
  const SpecValues values = data::csv_schema().read(Spec::parse(spec));
  std::shared_ptr<const data::Dataset> set;
  try {
    set = data::read_csv(text, values);
  } catch (const Failure& failure) {
    if (failure.kind() != Kind::corrupt && failure.kind() != Kind::usage) __builtin_trap();
    return;
  }
  const auto again = data::read_csv(text, values, &set->form());
  if (!again->form().unlabelled && checked(*set) != checked(*again)) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const char* spec : {"csv(file=input)", "csv(file=input, label=-1, missing=mean)", "csv(file=input, target=y, missing=drop)",
                           "csv(file=input, label=0, shape=1x1x2, header=no)", "csv(file=input, target=0, separator=semicolon)"})
    take_as_set({reinterpret_cast<const char*>(data), size}, spec);
  Table table;
  try {
    table = read({reinterpret_cast<const char*>(data), size});
  } catch (const cohort::Failure& failure) {
    if (failure.kind() != cohort::Kind::corrupt) __builtin_trap();
    return 0;
  }
  if (read(write(table)) != table) __builtin_trap();  // a failure here is a crash too: it leaves uncaught
  return 0;
}
