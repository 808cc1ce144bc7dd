// Language modelling by bytes: the file is cut into windows of `context` bytes; the label of a byte is the byte after it.
#include <cmath>

#include "cohort/base/error.h"
#include "cohort/data/dataset.h"
#include "cohort/data/input.h"

namespace cohort::data {
namespace {

using Type = SpecParam::Type;

const SpecSchema& schema() {
  static const SpecSchema one{
      "text",
      "a text by bytes: windows of tokens in, next tokens out",
      {{.name = "file", .type = Type::text, .doc = "path, plain or gzip"},
       {.name = "context", .type = Type::integer, .doc = "tokens in a window", .preset = "128", .low = 1, .high = 1 << 24},
       {.name = "from", .type = Type::real, .doc = "leave out what comes before this part of the file", .preset = "0", .low = 0, .high = 1},
       {.name = "to",
        .type = Type::real,
        .doc = "and what comes after this one: to=0.9 trains, from=0.9 tests",
        .preset = "1",
        .low = 0,
        .high = 1}}};
  return one;
}

class Windows final : public Dataset {
 public:
  Windows(std::string source, std::string bytes, std::size_t begin, std::int64_t context, std::int64_t windows)
      : Dataset({.input = Input::tokens, .shape = {context}, .classes = 256, .vocabulary = 256, .next_tokens = true}, windows),
        source_(std::move(source)),
        bytes_(std::move(bytes)),
        begin_(begin) {}

  Sample sample(std::int64_t index, Scratch&) const override {
    const auto* at = reinterpret_cast<const std::uint8_t*>(bytes_.data()) + offset(index);
    return {.input = at, .targets = at + 1};
  }
  std::string where(std::int64_t index) const override { return fmt::format("{}, byte {}", source_, offset(index)); }

 protected:
  Fingerprint content() const override {
    const std::size_t used = offset(size()) + 1 - begin_;  // with the last target
    const std::span bytes(reinterpret_cast<const std::uint8_t*>(bytes_.data()) + begin_, used);
    return {{fmt::format("content of {}", source_), fmt::format("{} bytes with hash {}", used, hash_text(content_hash(bytes)))}};
  }

 private:
  std::size_t offset(std::int64_t index) const { return begin_ + static_cast<std::size_t>(index * form().shape[0]); }
  std::string source_;
  std::string bytes_;
  std::size_t begin_;
};

std::shared_ptr<const Dataset> open(const SpecValues& v) {
  const std::string& path = v.text("file");
  std::string bytes = read_input(path);
  const auto place = [&](double part) { return static_cast<std::size_t>(std::floor(part * static_cast<double>(bytes.size()))); };
  const std::size_t begin = place(v.real("from"));
  const std::size_t end = place(v.real("to"));
  const std::int64_t context = v.integer("context");
  if (end < begin + static_cast<std::size_t>(context) + 1) {
    throw_failure(Kind::usage,
                  "{}: bytes {} to {} are too few for one window of {} and the byte after it; use a smaller context= or a longer text",
                  path, begin, end, context);
  }
  const auto windows = static_cast<std::int64_t>(end - begin - 1) / context;
  return std::make_shared<Windows>(path, std::move(bytes), begin, context, windows);
}

}  // namespace

extern const DatasetKind row_text{.name = "text", .about = "windows of a text, by bytes", .schema = schema, .open = open};

}  // namespace cohort::data
