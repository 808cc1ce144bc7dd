// Every beginning of a line and the word that comes next, as Keras' tutorials on text generation make them:
//   "the cat sat" -> (0 0 the) cat, (0 the cat) sat       words by number (data/tokens/words.h), padded in front with 0
// A line of n known words gives n - 1 samples. Longer beginnings than the context lose their first words.
#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/data/dataset.h"
#include "cohort/data/input.h"
#include "cohort/data/tokens/tokenizer.h"
#include "cohort/data/tokens/utf8.h"
#include "cohort/data/tokens/words.h"

namespace cohort::data {
namespace {

constexpr std::size_t kLongestContext = 4096;  // words

using Type = SpecParam::Type;

const SpecSchema& schema() {
  static const SpecSchema one{
      "ngrams",
      "lines of a text: the first words of a line in, the next word out",
      {{.name = "file", .type = Type::text, .doc = "path, plain or gzip; a headline, a verse in each line"},
       {.name = "context",
        .type = Type::integer,
        .doc = "words of a sample; 0: those of the longest line but one",
        .preset = "0",
        .low = 0,
        .high = static_cast<double>(kLongestContext)},
       {.name = "lines", .type = Type::integer, .doc = "the first so many lines; 0: all", .preset = "0", .low = 0}}};
  return one;
}

std::vector<std::string> lines_of(const SpecValues& v) {
  const std::string text = read_input(v.text("file"));
  for (std::size_t at = 0; at < text.size();) next_code_point(text, at, v.text("file"));  // words go into checkpoints, which are UTF-8
  std::vector<std::string> lines;
  for (const std::string_view line : split(text, '\n')) {
    if (v.integer("lines") > 0 && std::ssize(lines) >= v.integer("lines")) break;
    if (!trim(line).empty()) lines.emplace_back(trim(line));
  }
  return lines;
}

std::shared_ptr<const Dataset> read(const SpecValues& v, const Form* training) {
  const std::string& path = v.text("file");
  const std::vector<std::string> lines = lines_of(v);
  const Tokenizer words(Tokenizer::Unit::words, training != nullptr ? training->names : word_vocabulary(lines), path);
  std::vector<std::vector<std::int64_t>> numbers;
  std::size_t longest = 0;
  for (const std::string& line : lines) {
    numbers.push_back(words.encode(line, path));
    longest = std::max(longest, numbers.back().size());
  }
  if (longest < 2) throw_failure(Kind::usage, "{}: no line has two words{}", path, training != nullptr ? " that training had" : "");
  if (training == nullptr && v.integer("context") == 0 && longest > kLongestContext)
    throw_failure(Kind::usage, "{}: a line has {} words, and every one of them is a sample with all before it; say context=, as context=20",
                  path, longest);
  const auto context = training != nullptr         ? static_cast<std::size_t>(training->shape[0])
                       : v.integer("context") == 0 ? longest - 1
                                                   : static_cast<std::size_t>(v.integer("context"));
  std::vector<std::int64_t> inputs, labels;
  for (const auto& line : numbers) {
    for (std::size_t next = 1; next < line.size(); ++next) {
      const std::size_t first = next > context ? next - context : 0;
      inputs.insert(inputs.end(), context - (next - first), 0);
      inputs.insert(inputs.end(), line.begin() + static_cast<std::ptrdiff_t>(first), line.begin() + static_cast<std::ptrdiff_t>(next));
      labels.push_back(line[next]);
    }
  }
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(inputs.data());
  Form form{.input = Input::tokens,
            .shape = {static_cast<std::int64_t>(context)},
            .classes = words.size(),
            .vocabulary = words.size(),
            .names = words.names(),
            .wide = true};
  return std::make_shared<MemoryDataset>(std::move(form), path, std::vector(bytes, bytes + inputs.size() * sizeof(std::int64_t)),
                                         std::move(labels));
}

std::shared_ptr<const Dataset> open(const SpecValues& v) { return read(v, nullptr); }
std::shared_ptr<const Dataset> open_like(const SpecValues& v, const Form& training) { return read(v, &training); }

}  // namespace

extern const DatasetKind row_ngrams{
    .name = "ngrams", .about = "beginnings of lines and the next word", .schema = schema, .open = open, .open_like = open_like};

}  // namespace cohort::data
