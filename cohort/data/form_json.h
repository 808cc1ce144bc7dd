// What samples look like (Form) as JSON: the value "data" of a checkpoint's manifest, by which `cohort predict` reads pictures and tables
// as they were when the model was trained. Bytes from outside: a digest says that a manifest is whole, not that its numbers belong
// together. So every number is compared with the others before anything is allocated or indexed by it. Owner: values. Threads: any.
// Failure: Kind::corrupt naming `where` and the field.
#pragma once
#include <string>
#include <string_view>

#include "cohort/data/dataset.h"

namespace cohort::data {

std::string to_json(const Form& form);
Form form_of_json(std::string_view text, std::string_view where);

}  // namespace cohort::data
