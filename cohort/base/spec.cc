#include "cohort/base/spec.h"

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort {
namespace {

bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool name_char(char c) { return letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '.'; }
bool starts_number(char c) { return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.'; }
bool bare_char(char c) { return name_char(c) || std::string_view("+:/%*@~").find(c) != std::string_view::npos; }

[[noreturn]] void refuse(std::string_view text, std::size_t column, std::string_view what) {
  throw_failure(Kind::usage, "spec '{}', column {}: {}", printable(text), column, what);
}

// Recursive descent over one text; columns count from 1.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Spec whole() {
    skip_blanks();
    Spec spec = parse_spec(1);
    skip_blanks();
    if (at_ < text_.size()) fail("expected the end");
    return spec;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const { refuse(text_, at_ + 1, what); }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t') ++at_;
  }
  template <class Accept>
  std::string_view take(Accept accept) {
    const auto start = at_;
    while (at_ < text_.size() && accept(text_[at_])) ++at_;
    return text_.substr(start, at_ - start);
  }

  std::string_view take_name(std::string_view what) {
    if (!letter(peek())) fail(fmt::format("expected {}", what));
    return take(name_char);
  }

  Spec parse_spec(int depth) {
    Spec spec{.name = std::string(take_name("a name")), .params = {}, .text = {}};
    skip_blanks();
    if (peek() == '(') parse_params(spec, depth);
    return spec;
  }

  void parse_params(Spec& spec, int depth) {
    if (depth > kSpecMostDepth) fail(fmt::format("nested more than {} deep", kSpecMostDepth));
    ++at_;  // the opening parenthesis
    skip_blanks();
    if (starts_number(peek())) return parse_only_value(spec);
    while (peek() != ')') {
      spec.params.push_back(parse_param(spec, depth));
      skip_blanks();
      if (peek() == ')') break;
      if (peek() != ',') fail("expected ',' or ')'");
      ++at_;
      skip_blanks();
      if (peek() == ')') fail("expected a parameter after ','");
    }
    ++at_;
  }

  // "ssp(2)": a number without a name is all that stands there.
  void parse_only_value(Spec& spec) {
    Spec::Param param;
    param.key_column = param.column = at_ + 1;
    param.value = take(bare_char);
    skip_blanks();
    if (peek() != ')') fail("expected ')', as a value without a name stands alone");
    ++at_;
    spec.params.push_back(std::move(param));
  }

  Spec::Param parse_param(const Spec& spec, int depth) {
    Spec::Param param;
    param.key_column = at_ + 1;
    const auto key = take_name("a parameter");
    if (spec.find(key) != nullptr) refuse(text_, param.key_column, fmt::format("'{}' is given twice", key));
    param.key = key;
    skip_blanks();
    if (peek() != '=') fail(fmt::format("expected '=' after '{}'", key));
    ++at_;
    skip_blanks();
    param.column = at_ + 1;
    if (peek() == '"')
      param.value = parse_quoted();
    else
      parse_bare(param, depth);
    return param;
  }

  void parse_bare(Spec::Param& param, int depth) {
    const auto start = at_;
    param.value = take(bare_char);
    if (param.value.empty()) fail(fmt::format("expected a value for '{}'", param.key));
    skip_blanks();
    if (peek() != '(') return;
    at_ = start;
    const Spec inner = parse_spec(depth + 1);  // stops at the first character that no name has, and parse_params complains there
    param.nested = !inner.params.empty();      // ring() is ring
    param.value = inner.to_string();
  }

  std::string parse_quoted() {
    std::string value;
    for (++at_; peek() != '"'; ++at_) {
      if (at_ >= text_.size()) fail("the quoted text does not end");
      const bool escaped = peek() == '\\';
      if (escaped) ++at_;
      if (escaped && peek() != '"' && peek() != '\\') fail("after '\\' only '\"' and '\\' are known");
      if (static_cast<unsigned char>(peek()) < 0x20 || peek() == 0x7f) fail("control characters are not allowed");
      value += peek();
    }
    ++at_;
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::string in_quotes(std::string_view value) {
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace

Spec Spec::parse(std::string_view text) {
  if (text.size() > kSpecMostBytes)
    throw_failure(Kind::usage, "spec '{}' is {} bytes long; at most {}", printable(text, 40), text.size(), kSpecMostBytes);
  Spec spec = Parser(text).whole();
  spec.text = text;
  if (spec.to_string().size() > kSpecMostBytes) throw_failure(Kind::usage, "spec '{}' is too long when spelt out", printable(text, 40));
  return spec;
}

std::string Spec::to_string() const {
  std::string out = name;
  if (params.empty()) return out;
  for (const Param& p : params) {
    const bool bare = !p.value.empty() && std::all_of(p.value.begin(), p.value.end(), bare_char);
    out += &p == params.data() ? "(" : ", ";
    if (!p.key.empty()) out += p.key + "=";
    out += bare || p.nested ? p.value : in_quotes(p.value);
  }
  return out + ")";
}

// A value without a name stands alone, and is that of the one parameter there is: SpecSchema::read() sees to it.
const Spec::Param* Spec::find(std::string_view key) const {
  if (params.size() == 1 && params[0].key.empty()) return params.data();
  const auto at = std::find_if(params.begin(), params.end(), [&](const Param& p) { return p.key == key; });
  return at == params.end() ? nullptr : &*at;
}

}  // namespace cohort
