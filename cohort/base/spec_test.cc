#include "cohort/base/spec.h"

#include <gmock/gmock.h>

#include "cohort/base/bytes.h"
#include "cohort/base/failure_of.h"

namespace cohort {
namespace {

using testing::HasSubstr;
using Type = SpecParam::Type;

std::string canonical(std::string_view text) { return Spec::parse(text).to_string(); }

TEST(Spec, ReadsANameAndItsParametersInOrder) {
  const auto spec = Spec::parse("topk(ratio=0.01, error_feedback=true)");
  EXPECT_EQ(spec.name, "topk");
  ASSERT_EQ(spec.params.size(), 2U);
  EXPECT_EQ(spec.params[0].key, "ratio");
  EXPECT_EQ(spec.params[0].value, "0.01");
  EXPECT_EQ(spec.params[0].column, 12U);
  EXPECT_EQ(spec.params[1].key_column, 18U);
  EXPECT_EQ(spec.find("error_feedback")->value, "true");
  EXPECT_EQ(spec.find("none"), nullptr);
}

TEST(Spec, HasOneCanonicalForm) {
  EXPECT_EQ(canonical("ring"), "ring");
  EXPECT_EQ(canonical(" ring ( ) "), "ring");
  EXPECT_EQ(canonical("topk( ratio =0.01,\terror_feedback= true )"), "topk(ratio=0.01, error_feedback=true)");
  EXPECT_EQ(canonical("h(inner=shm(),outer=ring( chunk=1MiB ))"), "h(inner=shm, outer=ring(chunk=1MiB))");
  EXPECT_EQ(canonical("a(x=\"plain\")"), "a(x=plain)");
  EXPECT_EQ(canonical("a(x=\"two words\")"), "a(x=\"two words\")");
  EXPECT_EQ(canonical("a(x=\"\")"), "a(x=\"\")");
  EXPECT_EQ(canonical(R"(a(x="q\"b\\"))"), R"(a(x="q\"b\\"))");
  EXPECT_EQ(canonical(R"~(a(x="b(c=1)"))~"), R"~(a(x="b(c=1)"))~") << "quoted text stays text";
}

TEST(Spec, RoundTripsThroughItsText) {
  for (const char* text :
       {"a", "openmpi-tuned", "a(b=c)", "h(inner=shm, outer=ring(chunk=1MiB, deep=x(y=z)))", R"(a(x="\\", y=-1e-3, z=/a/b.c:1))"}) {
    const auto spec = Spec::parse(text);
    EXPECT_EQ(Spec::parse(spec.to_string()), spec) << text;
    EXPECT_EQ(spec.to_string(), text);
  }
}

TEST(Spec, ErrorsPointAtTheColumn) {
  const auto said = [](std::string_view text) { return failure_of([&] { Spec::parse(text); }).what; };
  EXPECT_EQ(said(""), "spec '', column 1: expected a name");
  EXPECT_EQ(said("1ring"), "spec '1ring', column 1: expected a name");
  EXPECT_EQ(said("ring)"), "spec 'ring)', column 5: expected the end");
  EXPECT_EQ(said("ring("), "spec 'ring(', column 6: expected a parameter");
  EXPECT_EQ(said("ring(x)"), "spec 'ring(x)', column 7: expected '=' after 'x'");
  EXPECT_EQ(said("ring(x=)"), "spec 'ring(x=)', column 8: expected a value for 'x'");
  EXPECT_EQ(said("ring(x=1"), "spec 'ring(x=1', column 9: expected ',' or ')'");
  EXPECT_EQ(said("ring(x=1,)"), "spec 'ring(x=1,)', column 10: expected a parameter after ','");
  EXPECT_EQ(said("ring(x=1,x=2)"), "spec 'ring(x=1,x=2)', column 10: 'x' is given twice");
  EXPECT_THAT(said("ring(x=1 2)"), HasSubstr("column 10: expected ',' or ')'"));
  EXPECT_THAT(said("ring(x=\"abc)"), HasSubstr("column 13: the quoted text does not end"));
  EXPECT_THAT(said(R"~(ring(x="a\n"))~"), HasSubstr("column 11: after '\\'"));
  EXPECT_THAT(said("ring(x=1(y=2))"), HasSubstr("column 8: expected a name"));
  EXPECT_THAT(said("ring(x=a/b(y=2))"), HasSubstr("column 9: expected ',' or ')'"));
}

TEST(Spec, OfOneParameterTakesItsValueWithoutTheName) {
  const SpecSchema one{"ssp", "", {{.name = "s", .type = SpecParam::Type::integer, .doc = "", .preset = "0", .low = 0}}};
  EXPECT_EQ(one.read(Spec::parse("ssp(2)")).integer("s"), 2);
  EXPECT_EQ(one.read(Spec::parse("ssp( 3 )")).integer("s"), 3);
  EXPECT_EQ(canonical("ps(clock=ssp( 2))"), "ps(clock=ssp(2))");
  EXPECT_EQ(failure_of([&] { one.read(Spec::parse("ssp(-1)")); }).what,
            "spec 'ssp(-1)', column 5: s: -1 is out of range; allowed is integer >= 0");
  EXPECT_EQ(failure_of([&] { Spec::parse("ssp(1, s=2)"); }).what,
            "spec 'ssp(1, s=2)', column 6: expected ')', as a value without a name stands alone");
  const SpecSchema two{"asp", "", {{.name = "v", .doc = "", .preset = ""}, {.name = "w", .doc = "", .preset = ""}}};
  EXPECT_EQ(failure_of([&] { two.read(Spec::parse("asp(1)")); }).what, "spec 'asp(1)', column 5: say which parameter of asp it is: v=1");
  EXPECT_EQ(failure_of([&] { SpecSchema("tap", "").read(Spec::parse("tap(1)")); }).what, "spec 'tap(1)', column 5: tap has no parameters");
}

TEST(Spec, RefusesDeepAndLongText) {
  std::string deep = "x";
  for (int i = 0; i < kSpecMostDepth; ++i) deep = "a(b=" + deep + ")";
  EXPECT_EQ(canonical(deep), deep);
  EXPECT_THAT(failure_of([&] { Spec::parse("a(b=" + deep + ")"); }).what, HasSubstr("nested more than 8 deep"));
  EXPECT_THAT(failure_of([&] { Spec::parse(std::string(100'000, '(')); }).what, HasSubstr("100000 bytes long"));
  std::string many = "a(k0=0";
  for (int i = 1; many.size() < kSpecMostBytes - 20; ++i) many += ",k" + std::to_string(i) + "=0";
  EXPECT_THAT(failure_of([&] { Spec::parse(many + ")"); }).what, HasSubstr("too long when spelt out"));
}

SpecSchema schema() {
  return {"topk",
          "keeps the largest elements",
          {{.name = "ratio", .type = Type::real, .doc = "share kept", .preset = "0.01", .low = 1e-6, .high = 1},
           {.name = "warmup", .type = Type::integer, .doc = "dense steps", .preset = "0", .low = 0},
           {.name = "feedback", .type = Type::boolean, .doc = "keep what was cut", .preset = "true"},
           {.name = "chunk", .type = Type::bytes, .doc = "bytes at once", .preset = "1MiB", .low = 4096, .high = 1 << 30},
           {.name = "every", .type = Type::seconds, .doc = "how often", .preset = "500ms"},
           {.name = "pick", .type = Type::word, .doc = "how to choose", .preset = "exact", .words = {"exact", "sampled"}},
           {.name = "label", .type = Type::text, .doc = "any text", .preset = ""},
           {.name = "outer", .type = Type::spec, .doc = "what carries it", .preset = "ring"}}};
}

TEST(SpecSchema, GivesTypedValuesAndDefaults) {
  const auto v = schema().read(Spec::parse("topk(chunk=64KiB, outer=tree(width=2), label=\"a b\", warmup=7)"));
  EXPECT_EQ(v.real("ratio"), 0.01);
  EXPECT_EQ(v.integer("warmup"), 7);
  EXPECT_TRUE(v.boolean("feedback"));
  EXPECT_EQ(v.bytes("chunk"), 64_KiB);
  EXPECT_EQ(v.seconds("every"), 500ms);
  EXPECT_EQ(v.word("pick"), "exact");
  EXPECT_EQ(v.text("label"), "a b");
  EXPECT_EQ(v.spec("outer").name, "tree");
  EXPECT_EQ(v.spec("outer").find("width")->value, "2");
}

TEST(SpecSchema, RefusesWhatItDoesNotListPointingAtTheColumn) {
  const auto said = [](std::string_view text) {
    const auto error = failure_of([&] { schema().read(Spec::parse(text)); });
    EXPECT_EQ(error.kind, Kind::usage) << error.what;
    return error.what;
  };
  EXPECT_THAT(said("topk(ratoi=1)"), HasSubstr("'topk(ratoi=1)', column 6: unknown parameter of topk 'ratoi'; did you mean 'ratio'?"));
  EXPECT_THAT(said("topk(ratio=2)"), HasSubstr("column 12: ratio: 2 is out of range; allowed is real 1e-06..1"));
  EXPECT_THAT(said("topk(ratio=abc)"), HasSubstr("ratio: 'abc' is not a number"));
  EXPECT_THAT(said("topk(warmup=1e3)"), HasSubstr("warmup: '1e3' is not an integer"));
  EXPECT_THAT(said("topk(warmup=-1)"), HasSubstr("allowed is integer >= 0"));
  EXPECT_THAT(said("topk(feedback=yes)"), HasSubstr("feedback: 'yes' is not a truth value"));
  EXPECT_THAT(said("topk(chunk=1k)"), HasSubstr("1KiB is out of range; allowed is size 4KiB..1GiB"));
  EXPECT_THAT(said("topk(pick=exakt)"), HasSubstr("pick: unknown word 'exakt'; did you mean 'exact'?"));
  EXPECT_THAT(said("topk(outer=\"(\")"), HasSubstr("outer: spec '(', column 1"));
  EXPECT_THAT(said("ring"), HasSubstr("is not topk"));
}

TEST(SpecSchema, ANeededParameterMustBeGiven) {
  const SpecSchema s{"gossip", "talks to neighbours", {{.name = "degree", .type = Type::integer, .doc = "neighbours", .low = 1}}};
  EXPECT_EQ(s.read(Spec::parse("gossip(degree=2)")).integer("degree"), 2);
  EXPECT_THAT(failure_of([&] { s.read(Spec::parse("gossip")); }).what, HasSubstr("gossip needs degree (integer >= 1): neighbours"));
}

TEST(SpecSchema, ItsOwnMistakesAreBugs) {
  const auto wrong = [] { return SpecSchema{"a", "", {{.name = "n", .type = Type::integer, .doc = "", .preset = "x"}}}; };
  EXPECT_EQ(failure_of(wrong).kind, Kind::bug);
  const auto values = schema().read(Spec::parse("topk"));
  EXPECT_EQ(failure_of([&] { values.integer("ratio"); }).kind, Kind::bug);
  EXPECT_EQ(failure_of([&] { values.real("nothing"); }).kind, Kind::bug);
}

TEST(SpecSchema, DescribesItself) {
  const auto help = schema().help();
  EXPECT_THAT(help, HasSubstr("topk: keeps the largest elements\n"));
  EXPECT_THAT(help, HasSubstr("one of exact, sampled, default exact: how to choose"));
}

}  // namespace
}  // namespace cohort
