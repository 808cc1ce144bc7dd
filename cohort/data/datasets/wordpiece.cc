// Texts for BERT, by its tokens (data/tokens/wordpiece.h), filled up to `length`:
//   classify   a table with a text, or two, and a class:  [CLS] text [SEP] or [CLS] text [SEP] second [SEP]
//   tag        lines of a word and its tag, an empty line between sentences: the tag is the label of a word's first token, the others and
//              [CLS], [SEP] have none (-100)
//   answer     a table with a question (text), a passage (second) and an answer that is a part of the passage (label): the labels are the
//              tokens where the answer first starts and ends. Lines whose answer is not in what fits are left out, and counted.
#include "cohort/data/tokens/wordpiece.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/data/csv_classes.h"
#include "cohort/data/csv_columns.h"
#include "cohort/data/csv_roles.h"
#include "cohort/data/dataset.h"
#include "cohort/data/input.h"
#include "cohort/data/tokens/utf8.h"

namespace cohort::data {
namespace {

using Type = SpecParam::Type;
using Tokens = std::vector<std::int64_t>;

const SpecSchema& schema() {
  const auto column = [](std::string name, std::string doc, std::string preset) {
    return SpecParam{.name = std::move(name), .type = Type::text, .doc = std::move(doc), .preset = std::move(preset)};
  };
  static const SpecSchema one{
      "wordpiece",
      "texts by BERT's tokens: classes, tags of words, answers in a text",
      {{.name = "file", .type = Type::text, .doc = "a table whose first line names its columns; of tags: a word and its tag in each line"},
       {.name = "vocab", .type = Type::text, .doc = "file with a token in each line, BERT's vocab.txt"},
       {.name = "task",
        .type = Type::word,
        .doc = "classify: a class for a text or a pair; tag: one for each word; answer: a part of the second text",
        .preset = "classify",
        .words = {"classify", "tag", "answer"}},
       {.name = "length",
        .type = Type::integer,
        .doc = "tokens of a sample; longer texts are cut",
        .preset = "128",
        .low = 5,
        .high = 1 << 20},
       column("text", "column of the text or question, by name or number from 0", "0"),
       column("second", "column of the second text or passage; empty: there is none", ""),
       column("label", "column of the class or answer", "-1"),
       csv_labels_param(),
       csv_classes_param()}};
  return one;
}

// int64 tokens with as many labels for each sample as Form::ids.
class LabelledTokens final : public Dataset {
 public:
  LabelledTokens(Form form, std::string source, Tokens tokens, Tokens ids)
      : Dataset(form, std::ssize(ids) / form.ids), source_(std::move(source)), tokens_(std::move(tokens)), ids_(std::move(ids)) {}
  Sample sample(std::int64_t index, Scratch&) const override {
    return {.input = reinterpret_cast<const std::uint8_t*>(tokens_.data() + index * form().shape[0]),
            .ids = ids_.data() + index * form().ids};
  }
  std::string where(std::int64_t index) const override { return fmt::format("{}, sample {}", source_, index); }

 private:
  std::string source_;
  Tokens tokens_, ids_;
};

Form form_of(const SpecValues& v, const WordPiece& pieces) {
  return {.input = Input::tokens, .shape = {v.integer("length")}, .vocabulary = pieces.size(), .wide = true};
}

struct Columns {
  CsvRoles roles;  // names, label, unlabelled
  std::size_t text = 0;
  std::optional<std::size_t> second;
};

Columns columns_of(CsvReader& reader, const SpecValues& v, const Form* training) {
  const std::string& path = v.text("file");
  if (!reader.next()) throw_failure(Kind::usage, "{}: an empty file", path);
  Columns columns;
  columns.roles.header = true;
  columns.roles.names = trimmed(reader.fields());
  const std::size_t width = columns.roles.names.size();
  columns.text = resolve_column(v.text("text"), columns.roles.names, width, path, "text");
  if (!v.text("second").empty()) columns.second = resolve_column(v.text("second"), columns.roles.names, width, path, "second");
  const auto label = find_column(v.text("label"), columns.roles.names, width);
  columns.roles.unlabelled = training != nullptr && (!label || *label == columns.text || label == columns.second);
  if (!columns.roles.unlabelled) columns.roles.label = resolve_column(v.text("label"), columns.roles.names, width, path, "label");
  if (columns.roles.label == columns.text || (columns.roles.label && columns.roles.label == columns.second))
    throw_failure(Kind::usage, "{}: text and label are the same column; set text= and label=", path);
  return columns;
}

std::vector<std::uint8_t> as_bytes(const Tokens& tokens) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(tokens.data());
  return {bytes, bytes + tokens.size() * sizeof(std::int64_t)};
}

void append(Tokens& all, const Tokens& some) { all.insert(all.end(), some.begin(), some.end()); }

std::shared_ptr<const Dataset> read_classes(std::string_view file, const SpecValues& v, const WordPiece& pieces, const Form* training) {
  CsvReader reader(file, v.text("file"));
  const Columns columns = columns_of(reader, v, training);
  const auto length = static_cast<std::size_t>(v.integer("length"));
  CsvClasses classes(v, training);
  Tokens tokens, labels;
  while (reader.next()) {
    Tokens text = pieces.encode(reader.fields()[columns.text]);
    append(tokens, columns.second ? pieces.pair(std::move(text), pieces.encode(reader.fields()[*columns.second]), length)
                                  : pieces.single(std::move(text), length));
    if (columns.roles.label)
      classes.add(reader.fields()[*columns.roles.label], reader, columns.roles);
    else
      labels.push_back(kNoLabel);
  }
  if (tokens.empty()) throw_failure(Kind::usage, "{}: no line below the names of its columns", v.text("file"));
  Form form = form_of(v, pieces);
  form.unlabelled = columns.roles.unlabelled;
  if (columns.roles.label) {
    labels = classes.finish(form);
  } else {
    form.names = training->names;
    form.classes = training->classes;
  }
  return std::make_shared<MemoryDataset>(std::move(form), v.text("file"), as_bytes(tokens), std::move(labels));
}

// The first place of `part` within [from, to) of `whole`.
std::optional<std::size_t> find_part(const Tokens& whole, const Tokens& part, std::size_t from) {
  if (part.empty()) return std::nullopt;
  const auto at = std::search(whole.begin() + static_cast<std::ptrdiff_t>(from), whole.end(), part.begin(), part.end());
  return at == whole.end() ? std::nullopt : std::optional(static_cast<std::size_t>(at - whole.begin()));
}

std::shared_ptr<const Dataset> read_answers(std::string_view file, const SpecValues& v, const WordPiece& pieces) {
  if (v.text("second").empty()) throw_failure(Kind::usage, "wordpiece: task=answer wants second=, the column of the passage");
  CsvReader reader(file, v.text("file"));
  const Columns columns = columns_of(reader, v, nullptr);
  const auto length = static_cast<std::size_t>(v.integer("length"));
  Tokens tokens, ids;
  std::int64_t left_out = 0;
  while (reader.next()) {
    const auto& fields = reader.fields();
    const Tokens sample = pieces.pair(pieces.encode(fields[columns.text]), pieces.encode(fields[*columns.second]), length);
    const Tokens answer = pieces.encode(fields[*columns.roles.label]);
    const auto passage = static_cast<std::size_t>(std::ranges::find(sample, pieces.separator()) - sample.begin()) + 1;
    const auto start = find_part(sample, answer, passage);
    if (!start) {
      ++left_out;
      continue;
    }
    append(tokens, sample);
    append(ids, {static_cast<std::int64_t>(*start), static_cast<std::int64_t>(*start + answer.size() - 1)});
  }
  if (ids.empty()) throw_failure(Kind::usage, "{}: no answer is a part of its passage within length={}", v.text("file"), length);
  if (left_out > 0) log_warning("{}: {} answers are not in the {} tokens that fit and are left out", v.text("file"), left_out, length);
  Form form = form_of(v, pieces);
  form.classes = v.integer("length");
  form.ids = 2;
  return std::make_shared<LabelledTokens>(std::move(form), v.text("file"), std::move(tokens), std::move(ids));
}

using TaggedWord = std::pair<std::string_view, std::string_view>;

std::vector<std::vector<TaggedWord>> sentences_of(std::string_view file, const std::string& path) {
  std::vector<std::vector<TaggedWord>> sentences(1);
  std::int64_t number = 0;
  for (const std::string_view raw : split(file, '\n')) {
    const std::string_view line = trim(raw);
    ++number;
    if (line.empty()) {
      if (!sentences.back().empty()) sentences.emplace_back();
      continue;
    }
    const std::size_t first = line.find_first_of(" \t"), last = line.find_last_of(" \t");
    if (first == std::string_view::npos)
      throw_failure(Kind::corrupt, "{}, line {}: '{}' has no tag; a line is a word, a blank or tab, and its tag", path, number,
                    printable(line));
    sentences.back().emplace_back(line.substr(0, first), line.substr(last + 1));
  }
  if (sentences.back().empty()) sentences.pop_back();
  if (sentences.empty()) throw_failure(Kind::usage, "{}: not one word with a tag", path);
  return sentences;
}

std::vector<std::string> tags_of(const std::vector<std::vector<TaggedWord>>& sentences, const Form* training) {
  if (training != nullptr && !training->names.empty()) return training->names;
  std::vector<std::string> tags;
  for (const auto& sentence : sentences)
    for (const auto& [word, tag] : sentence) tags.emplace_back(tag);
  for (const std::string& tag : tags)
    for (std::size_t at = 0; at < tag.size();) next_code_point(tag, at, "tag '" + printable(tag) + "'");  // they go into checkpoints
  std::ranges::sort(tags);
  tags.erase(std::unique(tags.begin(), tags.end()), tags.end());
  return tags;
}

std::shared_ptr<const Dataset> read_tags(std::string_view file, const SpecValues& v, const WordPiece& pieces, const Form* training) {
  const auto sentences = sentences_of(file, v.text("file"));
  const std::vector<std::string> tags = tags_of(sentences, training);
  const auto length = static_cast<std::size_t>(v.integer("length"));
  Tokens tokens, ids;
  for (const auto& sentence : sentences) {
    Tokens words, labels{kNoLabel};  // of [CLS]
    for (const auto& [word, tag] : sentence) {
      const auto known = std::ranges::find(tags, tag);
      if (known == tags.end()) throw_failure(Kind::corrupt, "{}: tag '{}' is not among those of training", v.text("file"), printable(tag));
      for (const std::string& part : WordPiece::words(word)) pieces.add_word(part, words);
      if (labels.size() < words.size() + 1) labels.push_back(known - tags.begin());
      labels.resize(words.size() + 1, kNoLabel);
    }
    labels.resize(std::min(labels.size(), length - 1));
    labels.resize(length, kNoLabel);
    append(tokens, pieces.single(std::move(words), length));
    append(ids, labels);
  }
  Form form = form_of(v, pieces);
  form.classes = std::ssize(tags);
  form.names = tags;
  form.ids = v.integer("length");
  return std::make_shared<LabelledTokens>(std::move(form), v.text("file"), std::move(tokens), std::move(ids));
}

std::shared_ptr<const Dataset> read(const SpecValues& v, const Form* training) {
  const WordPiece pieces = WordPiece::open(v.text("vocab"));
  const std::string bytes = read_input(v.text("file"));
  const std::string_view file = without_byte_order_mark(bytes);
  if (v.word("task") == "tag") return read_tags(file, v, pieces, training);
  return v.word("task") == "answer" ? read_answers(file, v, pieces) : read_classes(file, v, pieces, training);
}

std::shared_ptr<const Dataset> open(const SpecValues& v) { return read(v, nullptr); }
std::shared_ptr<const Dataset> open_like(const SpecValues& v, const Form& training) { return read(v, &training); }

}  // namespace

extern const DatasetKind row_wordpiece{
    .name = "wordpiece", .about = "texts by BERT's tokens", .schema = schema, .open = open, .open_like = open_like};

}  // namespace cohort::data
