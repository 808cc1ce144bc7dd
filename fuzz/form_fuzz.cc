// What a manifest says about its data, behind a digest that agrees. Whatever the bytes: refused, or a form whose numbers belong together,
// so that a sample of it can be allocated and its class names be indexed by labels; and it reads back to the same.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cohort/base/error.h"
#include "cohort/data/form_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cohort;
  data::Form form;
  try {
    form = data::form_of_json({reinterpret_cast<const char*>(data), size}, "input");
  } catch (const Failure& failure) {
    if (failure.kind() != Kind::corrupt) std::abort();
    return 0;
  }
  if (form.bytes() < 1 || form.bytes() > (std::int64_t{1} << 30) || form.classes < 0 || form.targets < 0) std::abort();
  if (!form.names.empty() && form.names.size() != static_cast<std::size_t>(std::max(form.classes, form.targets))) std::abort();
  if (!form.fill.empty() && form.fill.size() != static_cast<std::size_t>(form.elements())) std::abort();
  const auto text = data::to_json(form);
  if (data::to_json(data::form_of_json(text, "again")) != text) std::abort();
  return 0;
}
