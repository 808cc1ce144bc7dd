#include "cohort/data/form_json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort::data {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostLabels = std::numeric_limits<std::int32_t>::max();  // classes, tokens
constexpr std::int64_t kMostTargets = 1 << 24;
constexpr std::uint64_t kMostSampleBytes = 1_GiB;
constexpr std::size_t kMostDims = 4;

[[noreturn]] void refuse_form(std::string_view where, const char* field, const std::string& why) {
  throw_failure(Kind::corrupt, "{}: 'data' of its manifest cannot be: {} {}", printable(where), field, why);
}

struct Reader {
  const json& object;
  std::string_view where;

  std::int64_t count(const char* field, std::int64_t most, bool required) const {
    const auto at = object.find(field);
    if (at == object.end() && !required) return 0;
    if (at == object.end()) refuse_form(where, field, "is missing");
    return whole(*at, field, 0, most);
  }
  std::int64_t whole(const json& value, const char* field, std::int64_t least, std::int64_t most) const {
    if (!value.is_number_integer() || value > most || value < least)
      refuse_form(where, field, fmt::format("is no integer from {} to {}", least, most));
    return value.get<std::int64_t>();
  }
  const json& list(const char* field, bool required) const {
    static const json none = json::array();
    const auto at = object.find(field);
    if (at == object.end() && !required) return none;
    if (at == object.end() || !at->is_array()) refuse_form(where, field, "is no list");
    return *at;
  }
  std::vector<std::string> texts(const char* field, bool required) const {
    std::vector<std::string> all;
    for (const json& text : list(field, required)) {
      if (!text.is_string()) refuse_form(where, field, "has an entry that is no text");
      all.push_back(text.get<std::string>());
    }
    return all;
  }
};

std::vector<std::int64_t> read_sizes(const Reader& from) {
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = sizeof(std::int64_t);  // the widest element
  for (const json& n : from.list("shape", true)) {
    shape.push_back(from.whole(n, "shape", 1, static_cast<std::int64_t>(kMostSampleBytes)));
    if (bytes > kMostSampleBytes / static_cast<std::uint64_t>(shape.back())) refuse_form(from.where, "shape", "is larger than any sample");
    bytes *= static_cast<std::uint64_t>(shape.back());
  }
  if (shape.empty() || shape.size() > kMostDims)
    refuse_form(from.where, "shape", fmt::format("has {} sizes, not 1 to {}", shape.size(), kMostDims));
  return shape;
}

Input read_input(const Reader& from, std::int64_t vocabulary) {
  const auto at = from.object.find("input");
  if (at == from.object.end()) return vocabulary > 0 ? Input::tokens : Input::pixels;  // manifests of before there were tables
  for (const Input input : {Input::pixels, Input::tokens, Input::floats})
    if (at->is_string() && at->get<std::string>() == name_of(input)) return input;
  refuse_form(from.where, "input", "is none of images, tokens and float values");
}

void check_form(const Form& form, std::string_view where) {
  const auto elements = static_cast<std::size_t>(form.elements());
  if (form.input == Input::pixels && form.shape.size() != 3) refuse_form(where, "shape", "of images is channels, height and width");
  if ((form.input == Input::tokens) != (form.vocabulary > 0)) refuse_form(where, "tokens", "goes with token input, and with no other");
  if (form.classes > 0 && form.targets > 0) refuse_form(where, "targets", "and classes exclude each other");
  const auto named = static_cast<std::size_t>(form.targets > 0 ? form.targets : form.classes);
  if (!form.names.empty() && form.names.size() != named)
    refuse_form(where, "names", fmt::format("has {} entries for {}", form.names.size(), named));
  const std::size_t columns = form.input == Input::tokens ? 1 : elements;  // a text is one
  if (!form.columns.empty() && form.columns.size() != columns)
    refuse_form(where, "columns", fmt::format("has {} entries for {} values", form.columns.size(), columns));
  if (!form.fill.empty() && form.fill.size() != elements)
    refuse_form(where, "fill", fmt::format("has {} entries for {} values", form.fill.size(), elements));
}

}  // namespace

std::string to_json(const Form& form) {
  return json{{"shape", form.shape},
              {"classes", form.classes},
              {"names", form.names},
              {"tokens", form.vocabulary},
              {"input", name_of(form.input)},
              {"targets", form.targets},
              {"columns", form.columns},
              {"fill", form.fill},
              {"wide", form.wide},
              {"ids", form.ids}}
      .dump();
}

Form form_of_json(std::string_view text, std::string_view where) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) refuse_form(where, "it", "is no JSON object");
  const Reader from{object, where};
  Form form;
  form.shape = read_sizes(from);
  form.classes = from.count("classes", kMostLabels, true);
  form.vocabulary = from.count("tokens", kMostLabels, true);
  form.targets = from.count("targets", kMostTargets, false);
  form.ids = from.count("ids", kMostTargets, false);
  form.wide = object.value("wide", json(false)) == json(true);
  form.input = read_input(from, form.vocabulary);
  form.names = from.texts("names", true);
  form.columns = from.texts("columns", false);
  for (const json& value : from.list("fill", false)) {
    if (!value.is_number() || !std::isfinite(value.get<float>())) refuse_form(where, "fill", "has an entry that is no finite number");
    form.fill.push_back(value.get<float>());
  }
  check_form(form, where);
  return form;
}

}  // namespace cohort::data
