// Numbers for a Prometheus scraper: gauges, counters and histograms with labels, written in its text format 0.0.4.
//   Registry registry;
//   auto& loss = registry.gauge("cohort_loss", "Training loss of the last step", {{"rank", "0"}});
//   loss.set(0.41);                       // from any thread
//   registry.text()                       // what /metrics answers, see http.h
// Asking again for the same name and labels gives the same metric. Metrics live as long as their registry.
// Threads: any. Failure: Kind::usage for a name that the format does not allow, or one name used as two types.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::observe {

using Labels = std::vector<std::pair<std::string, std::string>>;

inline constexpr std::string_view kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";

class Gauge {
 public:
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  void add(double value) { value_.fetch_add(value, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class Counter {
 public:
  void add(double value = 1);  // never down: Kind::usage for a negative or non-finite amount
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class Distribution {  // Prometheus says histogram; that name is TensorBoard's here (event.h)
 public:
  explicit Distribution(std::vector<double> bounds);  // upper edges, rising; +Inf is added
  void observe(double value);
  struct State {
    std::vector<double> bounds;
    std::vector<std::uint64_t> cumulative;  // one more than bounds: the last is the count of all
    double sum = 0;
  };
  State state() const;

 private:
  const std::vector<double> bounds_;
  mutable std::mutex mutex_;
  std::vector<std::uint64_t> counts_;  // this and below: guarded by mutex_
  double sum_ = 0;
};

class Registry {
 public:
  Registry();
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  Gauge& gauge(std::string_view name, std::string_view help, const Labels& labels = {});
  Counter& counter(std::string_view name, std::string_view help, const Labels& labels = {});
  Distribution& histogram(std::string_view name, std::string_view help, const std::vector<double>& bounds, const Labels& labels = {});

  std::string text() const;  // families in the order of their names

 private:
  struct Family;
  Family& family(std::string_view name, std::string_view help, std::string_view type);
  void check_free(std::string_view name, std::string_view type) const;

  mutable std::mutex mutex_;
  std::map<std::string, Family, std::less<>> families_;  // guarded by mutex_
};

}  // namespace cohort::observe
