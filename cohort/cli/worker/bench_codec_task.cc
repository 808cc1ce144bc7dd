// cohort-worker bench-codec: what `cohort bench codec` runs. Times every codec on gradients of a model's shapes, on one core.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/cli/worker/tasks.h"
#include "cohort/codec/codec_row.h"
#include "cohort/codec/cost.h"
#include "cohort/nn/zoo.h"
#include "cohort/plan/units.h"

namespace cohort::cli::worker {
namespace {

constexpr const char* kExamples =
    "\nexamples:\n"
    "  cohort bench codec --model resnet18 -n 8\n"
    "  cohort bench codec --model gpt-50m -n 4 --codec 'powersgd(rank=4)' --codec 'topk(ratio=0.001)' --link 1Gbit\n"
    "  cohort bench codec --json\n\n"
    "crossover: on links below it the codec takes less time than bf16, for the ranks that -n says; never: it sends no less.\n"
    "error: |x - C(x)| / |x| of normal noise, in which no direction is better than another: powersgd's worst case.\n"
    "docs/codecs.md has the cost model.\n";

struct Arguments {
  std::string model = "resnet18", bucket = "25MiB", link;
  int ranks = 8, repeats = 3;
  std::vector<std::string> codecs;
  bool json = false;
};

std::vector<TensorPlace> tensors_of(const std::string& model) {
  std::vector<TensorPlace> tensors;
  for (const auto& [name, p] : nn::make_model(model, 1).named_parameters())
    tensors.push_back({name, 0, static_cast<std::size_t>(p.numel()), p.sizes().vec()});
  return tensors;
}

std::string link_text(double bytes_a_second) {
  if (bytes_a_second == 0) return "never";
  if (std::isinf(bytes_a_second)) return "always";
  const double bits = 8 * bytes_a_second;
  return bits < 1e9 ? fmt::format("{:.3g} Mb/s", bits / 1e6) : fmt::format("{:.3g} Gb/s", bits / 1e9);
}

double speed(const codec::Cost& cost, double seconds) { return seconds > 0 ? 4 * cost.elements / seconds / 1e9 : 0; }

void print_row(const std::string& label, const codec::Cost& cost, const codec::Cost& bf16, double link) {
  const bool none = cost.codec == "none";
  const std::string rates =
      none ? std::string(19, ' ') : fmt::format("{:>9.3g} {:>9.3g}", speed(cost, cost.encode), speed(cost, cost.decode));
  const std::string at = none || cost.codec == bf16.codec ? "" : link_text(codec::crossover(cost, bf16));
  fmt::print("{:<34} {:>7.1f} {} {:>9.3g} {:>10.3g} {:>12}{}\n", label, 4 * cost.elements / cost.payload, rates, cost.error,
             1e3 * cost.compute, at, link > 0 ? fmt::format(" {:>10.4g}", 1e3 * cost.seconds(link)) : "");
}

void print_json(const codec::Cost& cost, const codec::Cost& bf16, const Arguments& w, double link) {
  const double at = codec::crossover(cost, bf16);
  nlohmann::ordered_json line{{"codec", cost.codec},
                              {"model", w.model},
                              {"ranks", w.ranks},
                              {"elements", cost.elements},
                              {"ratio", 4 * cost.elements / cost.payload},
                              {"bytes", cost.bytes},
                              {"encode_GBps", speed(cost, cost.encode)},
                              {"decode_GBps", speed(cost, cost.decode)},
                              {"error", cost.error},
                              {"compute_s", cost.compute}};
  line["crossover_bytes_per_s"] = std::isinf(at) ? nlohmann::ordered_json("always") : nlohmann::ordered_json(at);
  if (link > 0) line["seconds"] = cost.seconds(link);
  fmt::print("{}\n", line.dump());
}

int bench_codec_main(int argc, char** argv) {
  Arguments w;
  CLI::App app{"codecs on gradients of a model: ratio, speed, error, and the link below which they pay", "cohort bench codec"};
  app.footer(kExamples);
  app.add_option("--model", w.model, "whose tensors, as in the setting model")->capture_default_str();
  app.add_option("-n,--ranks,--np", w.ranks, "ranks that exchange")->check(CLI::Range(2, 100000))->capture_default_str();
  app.add_option("--codec", w.codecs, "only these, by their spec, as often as needed; bf16 is always measured")->expected(1)->take_all();
  app.add_option("--bucket", w.bucket, "bytes that are sent as one")->capture_default_str();
  app.add_option("--link", w.link, "speed of a rank's link, 1Gbit: adds the time of an exchange, computing and sending");
  app.add_option("--repeats", w.repeats, "the least time of so many counts")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_flag("--json", w.json, "one JSON object a line");
  if (!parse_command_line(app, argc, argv)) return 0;
  const double link = w.link.empty() ? 0 : plan::parse_link(w.link);
  if (w.codecs.empty())
    for (const codec::CodecRow* row : codec::codecs()) w.codecs.emplace_back(row->name);
  std::vector<std::unique_ptr<codec::Codec>> codecs;  // what is misspelled is said before anything is timed
  for (const std::string& spec : w.codecs) codecs.push_back(codec::make(spec));
  const auto buckets = codec::bucket_layouts(tensors_of(w.model), parse_bytes(w.bucket));
  const codec::Cost bf16 = codec::measure_cost(*codec::make("bf16"), buckets, w.ranks, w.repeats);
  if (!w.json) {
    fmt::print("{}, {:.1f} M parameters, {} ranks, one core\n", w.model, bf16.elements / 1e6, w.ranks);
    fmt::print("{:<34} {:>7} {:>9} {:>9} {:>9} {:>10} {:>12}{}\n", "codec", "ratio", "encode", "decode", "error", "compute", "crossover",
               link > 0 ? fmt::format(" {:>10}", "on " + w.link) : "");
    fmt::print("{:<34} {:>7} {:>9} {:>9} {:>9} {:>10} {:>12}{}\n", "", "", "GB/s", "GB/s", "", "ms", "with bf16",
               link > 0 ? fmt::format(" {:>10}", "ms") : "");
  }
  const auto print = [&](const std::string& label, const codec::Cost& cost) {
    w.json ? print_json(cost, bf16, w, link) : print_row(label, cost, bf16, link);
    std::fflush(stdout);
  };
  print("none", codec::cost_of_none(buckets, w.ranks));
  print("bf16", bf16);
  for (std::size_t i = 0; i < codecs.size(); ++i)
    if (codecs[i]->spec() != bf16.codec) print(w.codecs[i], codec::measure_cost(*codecs[i], buckets, w.ranks, w.repeats));
  return 0;
}

}  // namespace

Task bench_codec_task() { return {"bench-codec", "what `cohort bench codec` runs", bench_codec_main}; }

}  // namespace cohort::cli::worker
