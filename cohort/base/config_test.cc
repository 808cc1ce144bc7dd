#include "cohort/base/config.h"

#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>

#include "cohort/base/bytes.h"
#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"

namespace cohort {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

enum class Output { prefixed, files };
struct Binding {
  int cores = 0;
  std::string policy = "auto";
};
void fields(Binding& c, FieldList& f) {
  f("cores", c.cores, Range{0, 1024}, "cores for each rank; 0 shares them out");
  f("policy", c.policy, Words{"auto", "none", "core"}, "how ranks are bound");
}
struct Job {
  int n = 1;
  std::int64_t seed = 0;
  double rate = 0.1;
  bool tag = true;
  std::string label = "it|is";
  Seconds timeout{300};
  ByteSize chunk{1_MiB};
  Output output = Output::prefixed;
  Binding bind;
  std::vector<ByteSize> sizes{{4}, {1_MiB}};
  std::vector<std::string> types{"f32"};
  std::vector<int> ranks;
};
void fields(Job& c, FieldList& f) {
  f("n", c.n, Range{1, 4096}, "ranks to start");
  f("seed", c.seed, "where randomness starts");
  f("rate", c.rate, Range{0, 1}, "learning rate");
  f("tag", c.tag, "put the rank before each line");
  f("label", c.label, "any text");
  f("timeout", c.timeout, Range{0.001, 1e6}, "longest silence");
  f("chunk", c.chunk, Range{4096, 1 << 30}, "bytes moved at once");
  f("output", c.output, Words{"prefixed", "files"}, "where output goes");
  f("bind", c.bind, "where ranks run");
  f("sizes", c.sizes, "sizes to measure");
  f("types", c.types, Words{"f32", "f16"}, "element types");
  f("ranks", c.ranks, Range{1, 64}, "rank counts");
}

std::string said(const std::function<void(Config&)>& act) {
  Job job;
  Config config(job);
  const auto error = failure_of([&] { act(config); });
  EXPECT_EQ(error.kind, Kind::usage) << error.what;
  return error.what;
}
std::string said_yaml(std::string_view text) {
  return said([&](Config& c) { c.read_yaml(text, "job.yaml"); });
}

TEST(Config, ReadsEveryTypeFromYaml) {
  Job job;
  Config config(job);
  config.read_yaml(R"(
n: 4
seed: -9000000000
rate: 1e-3
tag: false
label: "no"
timeout: 500ms
chunk: 64KiB
output: files
bind:
  cores: 2
  policy: none
sizes: [1MiB, 100MB, 8]
types:
  - f16
  - f32
ranks: []
)",
                   "job.yaml");
  EXPECT_EQ(job.n, 4);
  EXPECT_EQ(job.seed, -9'000'000'000);
  EXPECT_EQ(job.rate, 1e-3);
  EXPECT_FALSE(job.tag);
  EXPECT_EQ(job.label, "no");
  EXPECT_EQ(job.timeout, 500ms);
  EXPECT_EQ(job.chunk, 64_KiB);
  EXPECT_EQ(job.output, Output::files);
  EXPECT_EQ(job.bind.cores, 2);
  EXPECT_EQ(job.bind.policy, "none");
  EXPECT_THAT(job.sizes, ElementsAre(ByteSize{1_MiB}, ByteSize{100'000'000}, ByteSize{8}));
  EXPECT_THAT(job.types, ElementsAre("f16", "f32"));
  EXPECT_TRUE(job.ranks.empty());
}

TEST(Config, AnEmptyFileChangesNothing) {
  Job job;
  Config config(job);
  config.read_yaml("", "a");
  config.read_yaml("# only a comment\n", "a");
  config.read_yaml("---\n...\n", "a");
  config.read_yaml("bind:\n", "a");
  for (const Field& f : config.all()) EXPECT_EQ(f.source, Source::preset);
}

TEST(Config, NeverGuessesWhatYamlMightHaveMeant) {
  EXPECT_EQ(said_yaml("n: 1e3"), "job.yaml:1:4: n: '1e3' is not an integer; write digits only, like 1000");
  EXPECT_THAT(said_yaml("n: 010"), HasSubstr("could be read as octal"));
  EXPECT_THAT(said_yaml("n: 0x10"), HasSubstr("is not an integer"));
  EXPECT_THAT(said_yaml("n: 4.0"), HasSubstr("is not an integer"));
  EXPECT_THAT(said_yaml("n: \"4\""), HasSubstr("quoted text; take the quotes off"));
  EXPECT_THAT(said_yaml("n:"), HasSubstr("n has no value"));
  EXPECT_THAT(said_yaml("n: ~"), HasSubstr("n has no value"));
  EXPECT_THAT(said_yaml("n: !!int 4"), HasSubstr("tags like"));
  EXPECT_THAT(said_yaml("tag: no"), HasSubstr("'no' is not a truth value"));
  EXPECT_THAT(said_yaml("tag: yes"), HasSubstr("'yes' is not a truth value"));
  EXPECT_THAT(said_yaml("label: No"), HasSubstr("'No' without quotes is not text in YAML; write \"No\""));
  EXPECT_THAT(said_yaml("rate: .inf"), HasSubstr("is not a number"));
  EXPECT_THAT(said_yaml("timeout: 1:30"), HasSubstr("is not a time"));
  EXPECT_THAT(said_yaml("sizes: 1MiB"), HasSubstr("sizes is a list of sizes; write [a, b]"));
  EXPECT_THAT(said_yaml("n: [4]"), HasSubstr("n takes a single value"));
}

TEST(Config, ErrorsNameFileLineAndColumn) {
  EXPECT_THAT(said_yaml("n: 2\nbind:\n  croes: 3\n"), HasSubstr("job.yaml:3:3: unknown setting 'bind.croes'; did you mean 'bind.cores'?"));
  EXPECT_THAT(said_yaml("n: 2\nn: 3\n"), HasSubstr("job.yaml:2:1: n is given twice"));
  EXPECT_THAT(said_yaml("n: 5000"), HasSubstr("job.yaml:1:4: n: 5000 is out of range; allowed is 1..4096"));
  EXPECT_THAT(said_yaml("n: 99999999999"), HasSubstr("job.yaml:1:4"));
  EXPECT_THAT(said_yaml("chunk: 1k"), HasSubstr("allowed is 4KiB..1GiB"));
  EXPECT_THAT(said_yaml("timeout: 0"), HasSubstr("allowed is 0.001s..1000000s"));
  EXPECT_THAT(said_yaml("output: file"), HasSubstr("unknown word 'file'; did you mean 'files'?"));
  EXPECT_THAT(said_yaml("types: [f32, f61]"), HasSubstr("did you mean 'f16'?"));
  EXPECT_THAT(said_yaml("bind: 3"), HasSubstr("bind must be a map"));
  EXPECT_THAT(said_yaml("- a"), HasSubstr("a configuration must be a map"));
  EXPECT_THAT(said_yaml("n: [1"), HasSubstr("not YAML"));
  EXPECT_THAT(said_yaml("n: 1\n---\nn: 2\n"), HasSubstr("job.yaml:2:1: a configuration is one document"));
  EXPECT_THAT(said_yaml("bind.cores: 2"), HasSubstr("keys have no dots here; nest them"));
  EXPECT_THAT(said_yaml("? [a]\n: 2\n"), HasSubstr("a key must be a plain word"));
  EXPECT_THAT(said_yaml("<<: {n: 2}\n"), HasSubstr("unknown setting '<<'"));
  EXPECT_THAT(said_yaml(std::string(2_MiB, ' ')), HasSubstr("too many"));
}

TEST(Config, OverridesTakeAPathAndAValue) {
  Job job;
  Config config(job);
  config.set("n=8");
  config.set("bind.policy=core");
  config.set("sizes=1MiB, 4MiB");
  config.set("label=no");
  config.set("ranks=");
  config.set("types=f16");
  EXPECT_EQ(job.n, 8);
  EXPECT_EQ(job.bind.policy, "core");
  EXPECT_THAT(job.sizes, ElementsAre(ByteSize{1_MiB}, ByteSize{4_MiB}));
  EXPECT_EQ(job.label, "no") << "a shell has no YAML traps";
  EXPECT_THAT(job.types, ElementsAre("f16"));
  EXPECT_THAT(said([](Config& c) { c.set("n"); }), HasSubstr("'n' is no override; write key.path=value"));
  EXPECT_THAT(said([](Config& c) { c.set("n=x"); }), HasSubstr("n=x: n: 'x' is not an integer"));
  EXPECT_THAT(said([](Config& c) { c.set("bnid.cores=1"); }), HasSubstr("did you mean 'bind.cores'?"));
  EXPECT_THAT(said([](Config& c) { c.set("bind=1"); }), HasSubstr("bind is a group; set one of its fields"));
  EXPECT_THAT(said([](Config& c) { c.set("ranks=1,x"); }), HasSubstr("'x' is not an integer"));
}

TEST(Config, TheStrongerSourceWinsWhateverTheOrder) {
  Job job;
  Config config(job);
  const std::map<std::string, const char*> environment = {{"COHORT_N", "3"}, {"COHORT_BIND_CORES", "5"}};
  const auto lookup = [&](const char* name) { return environment.contains(name) ? environment.at(name) : nullptr; };
  config.set("n=9");
  config.read_environment("COHORT_", lookup);
  config.read_yaml("n: 2\nbind: {cores: 2, policy: none}\n", "job.yaml");
  EXPECT_EQ(job.n, 9);
  EXPECT_EQ(job.bind.cores, 5);
  EXPECT_EQ(job.bind.policy, "none");
  EXPECT_THAT(said([](Config& c) { c.set("n=9"), c.read_yaml("n: x", "job.yaml"); }), HasSubstr("not an integer")) << "still checked";
  EXPECT_THAT(said([](Config& c) { c.read_environment("COHORT_", [](const char*) { return "x"; }); }), HasSubstr("COHORT_N: n: 'x'"));
}

TEST(Config, ShowsTheEffectiveFileWithSourcesAndReadsItBack) {
  Job job;
  Config config(job);
  config.read_yaml("bind: {cores: 2}\nlabel: \"a \\\"b\\\" # c\"\n", "job.yaml");
  config.set("n=4");
  const auto text = config.yaml();
  EXPECT_THAT(text, HasSubstr("n: 4  # command line, n=4\n"));
  EXPECT_THAT(text, HasSubstr("bind:\n  cores: 2  # file, job.yaml:1:15\n  policy: \"auto\"  # default\n"));
  EXPECT_THAT(text, HasSubstr("sizes: [4, 1MiB]  # default\n"));
  Job again;
  Config reread(again);
  reread.read_yaml(text, "effective.yaml");
  for (std::size_t i = 0; i < config.all().size(); ++i) EXPECT_EQ(reread.all()[i].text(), config.all()[i].text());
}

TEST(Config, HelpAndReferenceListEveryFieldOnce) {
  Job job;
  const Config config(job);
  const auto help = config.help();
  const auto page = config.markdown();
  for (const Field& f : config.all()) {
    EXPECT_THAT(help, HasSubstr("  " + f.path + " "));
    EXPECT_THAT(page, HasSubstr("- **`" + f.path + "`** ("));
  }
  EXPECT_THAT(help, HasSubstr("integer, 1..4096"));
  EXPECT_THAT(page, HasSubstr("### bind\n\nwhere ranks run\n"));
  EXPECT_THAT(page, HasSubstr("default `it|is`"));
  EXPECT_THAT(page, testing::StartsWith("- **`"));
}

TEST(Config, ExportsAJsonSchema) {
  Job job;
  const auto schema = nlohmann::json::parse(Config(job).json_schema());
  EXPECT_EQ(schema["additionalProperties"], false);
  EXPECT_EQ(schema["properties"]["n"]["type"], "integer");
  EXPECT_EQ(schema["properties"]["n"]["maximum"], 4096);
  EXPECT_EQ(schema["properties"]["n"]["default"], 1);
  EXPECT_EQ(schema["properties"]["bind"]["properties"]["policy"]["enum"], (std::vector<std::string>{"auto", "none", "core"}));
  EXPECT_EQ(schema["properties"]["sizes"]["type"], "array");
  EXPECT_EQ(schema["properties"]["chunk"]["default"], "1MiB");
  EXPECT_FALSE(schema["properties"]["chunk"].contains("minimum")) << "a bound on numbers would not hold for 64KiB";
}

TEST(Config, TheSchemaKeepsDefaultsAfterValuesChanged) {
  Job job;
  Config config(job);
  config.set("n=9");
  EXPECT_EQ(nlohmann::json::parse(config.json_schema())["properties"]["n"]["default"], 1);
  EXPECT_THAT(config.help(), testing::Not(HasSubstr(" 9 ")));
}

struct Clash {
  int a = 0, b = 0;
};
void fields(Clash& c, FieldList& f) {
  f("a_b", c.a, "");
  f("a_b", c.b, "");
}
struct Odd {
  int a = 0;
};
void fields(Odd& c, FieldList& f) { f("A-b", c.a, ""); }

struct Short {
  Output output = Output::files;
};
void fields(Short& c, FieldList& f) { f("output", c.output, Words{"prefixed"}, ""); }

TEST(Config, MistakesInAListAreBugs) {
  Short one_word;
  EXPECT_THAT(failure_of([&] { Config{one_word}; }).what, HasSubstr("field 'output' has 1 words and the value 1"));
  Clash clash;
  EXPECT_EQ(failure_of([&] { Config{clash}; }).what, "field 'a_b' is listed twice");
  Odd odd;
  EXPECT_EQ(failure_of([&] { Config{odd}; }).kind, Kind::bug);
}

TEST(Config, ReadsAFile) {
  const TempDir dir;
  write_file_atomically(dir.file("job.yaml"), "n: 3\n");
  Job job;
  Config config(job);
  config.read_file(dir.file("job.yaml"));
  EXPECT_EQ(job.n, 3);
  EXPECT_EQ(config.all()[0].where, dir.file("job.yaml") + ":1:4");
  EXPECT_EQ(failure_of([&] { config.read_file(dir.file("none")); }).kind, Kind::system);
}

// Settings that had other names: `optimizer` was rule in the group optim, `backend` was comm.
struct Renamed {
  std::string optimizer = "sgd", backend = "native";
  Binding optim;
};
void fields(Renamed& c, FieldList& f) {
  f("optimizer", c.optimizer, "the update rule");
  f("backend", c.backend, "who moves data");
  f("optim", c.optim, "a group that stays");
  f.renamed("optim.rule", "optimizer");
  f.renamed("comm", "backend");
}

TEST(Config, AFormerNameIsRefusedWithTheNewOneInYamlOnTheCommandLineAndInTheEnvironment) {
  const auto refusal = [](const std::function<void(Config&)>& act) {
    Renamed values;
    Config config(values);
    const auto error = failure_of([&] { act(config); });
    EXPECT_EQ(error.kind, Kind::usage);
    return error.what;
  };
  EXPECT_THAT(refusal([](Config& c) { c.read_yaml("optim:\n  cores: 1\n  rule: adam\n", "run.yaml"); }),
              HasSubstr("run.yaml:3:3: optim.rule is called optimizer now"));
  EXPECT_THAT(refusal([](Config& c) { c.read_yaml("comm: gloo\n", "run.yaml"); }), HasSubstr("run.yaml:1:1: comm is called backend now"));
  EXPECT_THAT(refusal([](Config& c) { c.set("optim.rule=adam"); }), HasSubstr("optim.rule is called optimizer now"));
  const auto environment = [&](const char* set) {
    return refusal([&](Config& c) {
      c.read_environment("COHORT_TRAIN_", [&](const char* name) { return std::string_view(name) == set ? "adam" : nullptr; });
    });
  };
  EXPECT_THAT(environment("COHORT_TRAIN_OPTIM_RULE"), HasSubstr("set COHORT_TRAIN_OPTIMIZER instead"));
  EXPECT_THAT(environment("COHORT_TRAIN_COMM"), HasSubstr("set COHORT_TRAIN_BACKEND instead"));
}

}  // namespace
}  // namespace cohort
