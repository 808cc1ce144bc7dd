// Units are storages whose memory comes and goes: the part of Residency (residency.h) that knows no graph.
// A unit is in while its count of uses is above zero. Owner: Residency. Threads: one at a time. Failure: Kind::usage; what bring() throws.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace cohort::nn {

struct Unit {  // parameters that come and go together
  struct Member {
    std::string name;
    at::Tensor parameter;    // a contiguous leaf; on the CPU, unless the unit is apart
    std::size_t offset = 0;  // bytes, in the unit's memory
  };
  std::string name;
  std::vector<Member> members;
  std::size_t bytes = 0;
  bool apart = false;  // its memory is torch's, on the parameters' device: what the host brings is copied there and let go of at once
};

class Host {
 public:
  virtual ~Host() = default;
  virtual void* bring(std::size_t unit) = 0;               // its bytes with the values in them, good until let_go()
  virtual void prefetch(std::size_t unit) { (void)unit; }  // a hint: bring(unit) comes soon
  virtual void let_go(std::size_t unit) noexcept = 0;      // once for every bring, or for a prefetch that no bring has followed
};

class Units {
 public:
  // The parameters' old memory is let go of: the host has copied what it needs. No unit is in.
  Units(Host& host, std::vector<Unit> units);

  void acquire(const std::vector<std::size_t>& units);  // all of them or, when the host fails, none
  void release(const std::vector<std::size_t>& units) noexcept;
  void prefetch(std::size_t unit);
  void forget_prefetched() noexcept;

  std::vector<std::size_t> of(const std::vector<at::Tensor>& parameters) const;  // each unit once; parameters of no unit have none
  std::size_t size() const { return slots_.size(); }
  std::size_t resident() const { return in_; }
  // Whether reading a parameter that is away throws: torch 2.13 lets a storage say so and forget it again. With 2.11 it is a segfault.
  static bool tells_readers();
  std::size_t most_resident() const { return most_; }

 private:
  struct Slot {
    Unit unit;
    c10::Storage storage;
    at::Tensor copy;   // while it is in, where it is apart
    std::string away;  // what reading it says
    int uses = 0;
    bool prefetched = false;  // and not brought yet
  };
  void add(Unit unit);
  void* bring(std::size_t unit);

  Host& host_;
  std::vector<Slot> slots_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> unit_of_;
  std::size_t in_ = 0, most_ = 0;
};

}  // namespace cohort::nn
