#include "cohort/base/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <sstream>

#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort {
namespace {

using Type = YamlNode::Type;

// Takes the parser's events of one document. Owned by parse_yaml for one call.
class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string_view where) : where_(where) {}
  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) refuse(mark, "a configuration is one document, and something follows its end");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { place(mark, Type::null, "", anchor); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse(mark, "anchors and aliases are not known here"); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    YamlNode& node = place(mark, Type::scalar, tag, anchor);
    node.text = value;
    node.quoted = tag == "!";  // how yaml-cpp marks quotes; plain scalars have "?"
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    descend(place(mark, Type::list, tag, anchor));
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    descend(place(mark, Type::map, tag, anchor));
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  [[noreturn]] void refuse(const YAML::Mark& mark, std::string_view what) const {
    throw_failure(Kind::usage, "{}:{}:{}: {}", where_, mark.line + 1, mark.column + 1, what);
  }
  // Pointers into open_ stay valid: only the innermost node's children grow.
  YamlNode& place(const YAML::Mark& mark, Type type, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) refuse(mark, "anchors and aliases are not known here");
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, fmt::format("tags like {} are not known here", printable(tag, 40)));
    YamlNode node{.type = type, .line = mark.line + 1, .column = mark.column + 1};
    if (open_.empty()) return root_ = std::move(node);
    return open_.back()->children.emplace_back(std::move(node));
  }
  void descend(YamlNode& node) {
    if (open_.size() == kYamlMostDepth)
      throw_failure(Kind::usage, "{}:{}:{}: nested more than {} deep", where_, node.line, node.column, kYamlMostDepth);
    open_.push_back(&node);
  }

  std::string_view where_;
  int documents_ = 0;
  YamlNode root_;
  std::vector<YamlNode*> open_;
};

}  // namespace

void refuse_yaml(std::string_view where, const YamlNode& node, std::string_view what) {
  if (node.line == 0) throw_failure(Kind::usage, "{}: {}", where, what);
  throw_failure(Kind::usage, "{}:{}:{}: {}", where, node.line, node.column, what);
}

YamlNode parse_yaml(std::string_view text, std::string_view where) {
  if (text.size() > kYamlMostBytes)
    throw_failure(Kind::usage, "{}: {} bytes are too many for a configuration; at most {}", where, text.size(), kYamlMostBytes);
  std::istringstream stream{std::string(text)};
  TreeBuilder builder(where);
  try {
    YAML::Parser parser(stream);
    for (int document = 0; document < 2 && parser.HandleNextDocument(builder); ++document) {
    }
  } catch (const YAML::Exception& e) {
    throw_failure(Kind::usage, "{}:{}:{}: not YAML: {}", where, e.mark.line + 1, e.mark.column + 1, e.msg);
  }
  return builder.take();
}

}  // namespace cohort
