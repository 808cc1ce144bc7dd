// Tables come from anywhere. Whatever the bytes: Kind::corrupt, or records of equal width; and written again with every field in quotes
// they read back the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cohort/base/error.h"
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
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
