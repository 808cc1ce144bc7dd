// A RowStore is the shard of a table of rows: embeddings, the weights of a sparse model. A row is there once it was pushed; before, it
// reads as zeros. What workers push are gradients of some rows; an update touches these rows alone (rules are lazy: the state of a row that
// nobody pushed stays as it is), and is
//   g_r = mean sum_w scale_w g_wr          x_r <- rule(x_r, g_r)
// over the workers in order. A row that stands twice in a message counts twice.
// Owner: Table. Threads: one. Failure: Kind::usage where it is made; Kind::system when its rows would take more than `most_bytes`.
#pragma once
#include <unordered_map>

#include "cohort/ps/store.h"

namespace cohort::ps {

struct RowSpec {
  std::string name;
  std::size_t width = 1;
  std::string rule;
  std::size_t most_bytes = std::size_t{16} << 30;
};

class RowStore final : public Store {
 public:
  RowStore(RowSpec spec, int workers);
  void stage(int worker, std::span<const std::uint64_t> ids, std::span<const float> values);  // values: width of each
  void apply(std::span<const Contribution> together, double mean, std::int64_t number) override;
  void drop(int worker) override { staged_[static_cast<std::size_t>(worker)] = {}; }
  void add_worker() override { staged_.emplace_back(); }
  void read(std::span<const std::uint64_t> ids, std::span<float> into) const;

  const RowSpec& spec() const { return spec_; }
  std::size_t rows() const { return index_.size(); }
  std::vector<std::uint64_t> ids() const;  // in order

 private:
  struct Staged {
    std::vector<std::uint64_t> ids;
    std::vector<float> values;
  };
  std::size_t row_of(std::uint64_t id);
  void gather(std::span<const Contribution> together);
  void update(double mean, const optim::StepInfo& info);

  const RowSpec spec_;
  const std::unique_ptr<optim::Optimizer> rule_;
  std::unordered_map<std::uint64_t, std::size_t> index_;
  std::vector<float> values_;
  std::vector<std::vector<float>> states_;
  std::vector<Staged> staged_;  // by worker
  // --- of one update
  std::unordered_map<std::size_t, std::size_t> place_;  // of a row that it touches, among those
  std::vector<std::size_t> touched_;
  std::vector<float> gradients_;
};

}  // namespace cohort::ps
