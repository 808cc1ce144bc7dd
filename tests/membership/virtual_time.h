// Virtual time: calls happen in the order of their time, and of equal times in the order of after(). Nothing waits.
// Owner: a Simulation. Threads: one.
#pragma once
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace cohort::membership {

class VirtualTime {
 public:
  double now() const { return now_; }
  std::uint64_t events() const { return events_; }
  void after(double delay, std::function<void()> what) { queue_.push({now_ + delay, number_++, std::move(what)}); }
  bool step() {  // false: nothing is left to happen
    if (queue_.empty()) return false;
    auto next = std::move(const_cast<Item&>(queue_.top()));  // popped before it is called: it may ask for more
    queue_.pop();
    now_ = next.at;
    ++events_;
    next.what();
    return true;
  }

 private:
  struct Item {
    double at;
    std::uint64_t number;
    std::function<void()> what;
    bool operator<(const Item& other) const { return at != other.at ? at > other.at : number > other.number; }
  };
  double now_ = 0;
  std::uint64_t number_ = 0, events_ = 0;
  std::priority_queue<Item> queue_;
};

}  // namespace cohort::membership
