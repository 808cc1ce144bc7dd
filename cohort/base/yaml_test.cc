#include "cohort/base/yaml.h"

#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"

namespace cohort {
namespace {

using testing::HasSubstr;
using Type = YamlNode::Type;

std::string said(std::string_view text) {
  const auto error = failure_of([&] { parse_yaml(text, "f.yaml"); });
  EXPECT_EQ(error.kind, Kind::usage) << error.what;
  return error.what;
}

TEST(Yaml, GivesATreeWithPlacesAndScalarsAsWritten) {
  const auto root = parse_yaml("a: 010\nb:\n  - \"x\"\n  - {c: }\n", "f.yaml");
  ASSERT_EQ(root.type, Type::map);
  ASSERT_EQ(root.children.size(), 4U);
  EXPECT_EQ(root.children[1].text, "010");
  EXPECT_FALSE(root.children[1].quoted);
  const auto& list = root.children[3];
  ASSERT_EQ(list.type, Type::list);
  EXPECT_TRUE(list.children[0].quoted);
  EXPECT_EQ(list.children[0].line, 3);
  EXPECT_EQ(list.children[0].column, 5);
  EXPECT_EQ(list.children[1].children[1].type, Type::null);
}

TEST(Yaml, AnEmptyDocumentIsNull) {
  for (const char* text : {"", "# comment\n", "---\n", "---\n...\n"}) EXPECT_EQ(parse_yaml(text, "f").type, Type::null) << text;
}

TEST(Yaml, RefusesWhatAConfigurationDoesNotNeed) {
  EXPECT_EQ(said("a: 1\n---\nb: 2\n"), "f.yaml:2:1: a configuration is one document, and something follows its end");
  EXPECT_THAT(said("a: &x 1\nb: *x\n"), HasSubstr("f.yaml:1:4: anchors and aliases"));
  EXPECT_THAT(said("a: !!binary x\n"), HasSubstr("tags like"));
  EXPECT_THAT(said("a: [1\n"), HasSubstr("not YAML"));
  EXPECT_THAT(said("a: 1\n]\n"), HasSubstr("f.yaml:2")) << "a stray bracket must not be waited for";
  EXPECT_THAT(said(std::string(kYamlMostBytes + 1, ' ')), HasSubstr("too many"));
}

TEST(Yaml, RefusesDeepNestingAtAnySize) {
  EXPECT_NO_THROW(parse_yaml(std::string(32, '[') + std::string(32, ']'), "f"));
  EXPECT_THAT(said(std::string(33, '[') + std::string(33, ']')), HasSubstr("f.yaml:1:33: nested more than 32 deep"));
  EXPECT_EQ(failure_of([] { parse_yaml(std::string(500'000, '['), "f"); }).kind, Kind::usage);
}

}  // namespace
}  // namespace cohort
