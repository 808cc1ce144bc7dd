// Units are storages whose memory is loaded and unloaded: the part of Unsharder (unsharder.h) that knows nothing of the autograd graph.
// A unit is resident while its count of uses is above zero. Owner: Unsharder. Threads: one at a time. Failure: Kind::usage; what load()
// throws.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace cohort::nn {

struct Unit {  // parameters that are loaded and unloaded together
  struct Member {
    std::string name;
    at::Tensor parameter;    // a contiguous leaf; where the loader's memory is, unless on_device
    std::size_t offset = 0;  // bytes, in the unit's memory
  };
  std::string name;
  std::vector<Member> members;
  std::size_t bytes = 0;
  bool on_device = false;  // its memory is torch's, on the parameters' device: what the loader loads is copied there and unloaded at once
};

class UnitLoader {
 public:
  virtual ~UnitLoader() = default;
  virtual void* load(std::size_t unit) = 0;                // its bytes with the values in them, good until unload()
  virtual void prefetch(std::size_t unit) { (void)unit; }  // a hint: load(unit) comes soon
  virtual void unload(std::size_t unit) noexcept = 0;      // once for every load, or for a prefetch that no load has followed
};

class Units {
 public:
  // The parameters' old memory is freed: the loader has copied what it needs. No unit is resident.
  Units(UnitLoader& loader, std::vector<Unit> units);

  void acquire(const std::vector<std::size_t>& units);  // all of them or, when the loader fails, none
  void release(const std::vector<std::size_t>& units) noexcept;
  void prefetch(std::size_t unit);
  void forget_prefetched() noexcept;

  std::vector<std::size_t> of(const std::vector<at::Tensor>& parameters) const;  // each unit once; parameters of no unit have none
  std::size_t size() const { return slots_.size(); }
  std::size_t resident() const { return resident_; }
  // Whether reading a sharded parameter throws: from torch 2.13 on the error text of a storage can be set and cleared. With 2.11 it is a
  // segfault.
  static bool reads_can_throw();
  std::size_t most_resident() const { return most_; }

 private:
  struct Slot {
    Unit unit;
    c10::Storage storage;
    at::Tensor copy;             // while it is resident, where on_device
    std::string unloaded_error;  // what reading it throws
    int uses = 0;
    bool prefetched = false;  // and not loaded yet
  };
  void add(Unit unit);
  void* load(std::size_t unit);

  UnitLoader& loader_;
  std::vector<Slot> slots_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> unit_of_;
  std::size_t resident_ = 0, most_ = 0;
};

}  // namespace cohort::nn
