// docs/codecs.md says what the codecs say of themselves.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

#include "cohort/base/spec_page.h"
#include "cohort/codec/codec_row.h"
#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

std::string page() {
  std::ifstream file(COHORT_CODECS_PAGE);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(CodecsPage, HasTheBytesAndTheLawOfEveryCodec) {
  const std::string text = page();
  std::vector<std::string> specs{"fp16(sum=fp32)",    "bf16(sum=fp32)",          "int8(rounding=stochastic)",
                                 "qsgd(levels=127)",  "qsgd(elias=true)",        "terngrad(clip=2.5)",
                                 "topk(ratio=0.001)", "randomk(feedback=false)", "dgc(ratio=0.001, warmup=1000)"};
  for (const CodecRow* row : codecs()) specs.emplace_back(row->name);
  for (const std::string& spec : specs) {
    const auto codec = make(spec);
    Layout exact = layout_of({1000000});
    exact.count = 1000000;
    exact.tensors[0].shape = {1000, 1000};
    const std::size_t bytes = codec->bound(exact, exact.all());
    const double delta = codec->contraction(exact);
    const std::string law = codec->unbiased() ? "unbiased" : delta == 0 ? "no bound" : fmt::format("delta {:.8g}", delta);
    const std::string line =
        fmt::format("| `{}` | {} | {}{} | 1/{:.1f} | {} | {} |", codec->spec(), name_of(codec->mix()), codec->variable() ? "up to " : "",
                    bytes, 4e6 / static_cast<double>(bytes), law, codec->feedback() ? "yes" : "no");
    EXPECT_THAT(text, testing::HasSubstr(line + "\n"));
  }
}

TEST(CodecsPage, EndsWithTheParametersOfEveryCodec) {
  SpecPage parameters{"Parameters", "In a spec string, as in `topk(ratio=0.001)`.", {}};
  for (const CodecRow* row : codecs()) parameters.rows.push_back(row->schema());
  EXPECT_THAT(page(), testing::EndsWith(page_markdown("", {&parameters, 1})));
}

}  // namespace
}  // namespace cohort::codec
