// Language modelling: the file is cut into windows of `context` tokens; the label of a token is the token after it. Tokens are bytes, the
// file's characters, or byte pairs learned from it (data/tokens/); a test set has the vocabulary of training.
#include <cmath>

#include "cohort/base/error.h"
#include "cohort/data/dataset.h"
#include "cohort/data/input.h"
#include "cohort/data/tokens/tokenizer.h"
#include "cohort/data/tokens/utf8.h"

namespace cohort::data {
namespace {

using Type = SpecParam::Type;

const SpecSchema& schema() {
  static const SpecSchema one{
      "text",
      "a text: windows of tokens in, next tokens out",
      {{.name = "file", .type = Type::text, .doc = "path, plain or gzip"},
       {.name = "context", .type = Type::integer, .doc = "tokens in a window", .preset = "128", .low = 1, .high = 1 << 24},
       {.name = "from", .type = Type::real, .doc = "leave out what comes before this part of the file", .preset = "0", .low = 0, .high = 1},
       {.name = "to",
        .type = Type::real,
        .doc = "and what comes after this one: to=0.9 trains, from=0.9 tests",
        .preset = "1",
        .low = 0,
        .high = 1},
       {.name = "tokens",
        .type = Type::word,
        .doc = "what a token is: a byte, a character of the file, or a byte pair learned from it",
        .preset = "bytes",
        .words = {"bytes", "characters", "bpe"}},
       {.name = "vocab", .type = Type::integer, .doc = "of bpe: tokens to learn, at most", .preset = "512", .low = 256, .high = 1 << 20}}};
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

// The same windows of tokens that may be more than 256: int64, and as many labels.
class TokenWindows final : public Dataset {
 public:
  TokenWindows(Form form, std::string source, std::vector<std::int64_t> tokens, std::int64_t windows)
      : Dataset(std::move(form), windows), source_(std::move(source)), tokens_(std::move(tokens)) {}

  Sample sample(std::int64_t index, Scratch&) const override {
    const std::int64_t* at = tokens_.data() + index * form().shape[0];
    return {.input = reinterpret_cast<const std::uint8_t*>(at), .ids = at + 1};
  }
  std::string where(std::int64_t index) const override { return fmt::format("{}, token {}", source_, index * form().shape[0]); }

 protected:
  Fingerprint content() const override {
    const std::span bytes(reinterpret_cast<const std::uint8_t*>(tokens_.data()), tokens_.size() * sizeof(std::int64_t));
    return {{fmt::format("content of {}", source_), fmt::format("{} tokens with hash {}", tokens_.size(), hash_text(content_hash(bytes)))}};
  }

 private:
  std::string source_;
  std::vector<std::int64_t> tokens_;
};

struct Part {
  std::size_t begin, end;
};

Part part_of(std::string_view text, const SpecValues& v, bool characters) {
  const auto place = [&](double part) {
    auto at = static_cast<std::size_t>(std::floor(part * static_cast<double>(text.size())));
    while (characters && at < text.size() && continues_character(text[at])) ++at;
    return at;
  };
  return {place(v.real("from")), place(v.real("to"))};
}

std::int64_t windows_of(std::size_t tokens, std::int64_t context, const Part& part, const SpecValues& v) {
  if (tokens < static_cast<std::size_t>(context) + 1)
    throw_failure(Kind::usage,
                  "{}: bytes {} to {} are too few for one window of {} and the {} after it; use a smaller context= or a longer text",
                  v.text("file"), part.begin, part.end, context, v.word("tokens") == "bytes" ? "byte" : "token");
  return static_cast<std::int64_t>(tokens - 1) / context;
}

// training: whose vocabulary is used; nullptr: learned from the whole file, so that both of its parts have the same.
std::shared_ptr<const Dataset> read(const SpecValues& v, const Form* training) {
  const std::string& path = v.text("file");
  std::string bytes = read_input(path);
  const auto unit = Tokenizer::unit_of(v.word("tokens"));
  const Part part = part_of(bytes, v, unit != Tokenizer::Unit::bytes);
  const std::int64_t context = v.integer("context");
  const std::size_t length = part.end > part.begin ? part.end - part.begin : 0;
  if (unit == Tokenizer::Unit::bytes) {
    const std::int64_t windows = windows_of(length, context, part, v);
    return std::make_shared<Windows>(path, std::move(bytes), part.begin, context, windows);
  }
  const bool known = training != nullptr && !training->names.empty();
  const Tokenizer tokens = known ? Tokenizer(unit, training->names, path) : Tokenizer::learn(unit, bytes, v.integer("vocab"), path);
  std::vector<std::int64_t> all = tokens.encode(std::string_view(bytes).substr(part.begin, length), path);
  const std::int64_t windows = windows_of(all.size(), context, part, v);
  all.resize(static_cast<std::size_t>(windows * context) + 1);
  Form form{.input = Input::tokens,
            .shape = {context},
            .classes = tokens.size(),
            .vocabulary = tokens.size(),
            .names = tokens.names(),
            .wide = true,
            .ids = context};
  return std::make_shared<TokenWindows>(std::move(form), path, std::move(all), windows);
}

std::shared_ptr<const Dataset> open(const SpecValues& v) { return read(v, nullptr); }
std::shared_ptr<const Dataset> open_like(const SpecValues& v, const Form& training) { return read(v, &training); }

}  // namespace

extern const DatasetKind row_text{
    .name = "text", .about = "windows of a text: bytes, characters or byte pairs", .schema = schema, .open = open, .open_like = open_like};

}  // namespace cohort::data
