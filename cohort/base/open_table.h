// A table of variants that begins with those the program was built with, and to which plugins add rows (nn/plugin.h).
// Owner: the module that holds the table. Threads: any; rows stay for good, and a span that was handed out keeps what it had.
// Failure: Kind::usage for a name that is in the table already.
#pragma once
#include <atomic>
#include <list>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/registry.h"

namespace cohort {

template <class Row>
class OpenTable {
 public:
  explicit OpenTable(std::span<const Row* const> built_in) : rows_(&versions_.emplace_back(built_in.begin(), built_in.end())) {}

  std::span<const Row* const> rows() const { return *rows_.load(std::memory_order_acquire); }

  // what: the noun of the table; from: whose row it is.
  void add(const Row& row, std::string_view what, std::string_view from) {
    const std::lock_guard lock(mutex_);
    if (find_row_if_any<Row>(rows(), row.name) != nullptr)
      throw_failure(Kind::usage, "{}: there is a {} '{}' already; give this one another name", from, what, row.name);
    std::vector<const Row*> more = versions_.back();
    more.push_back(&row);
    rows_.store(&versions_.emplace_back(std::move(more)), std::memory_order_release);
  }

 private:
  std::mutex mutex_;
  std::list<std::vector<const Row*>> versions_;  // guarded by mutex_; none goes: spans refer to them
  std::atomic<const std::vector<const Row*>*> rows_;
};

}  // namespace cohort
