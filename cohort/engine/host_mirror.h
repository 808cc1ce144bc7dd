// Copies in the host's memory of what lies on a GPU, for those who save, load, carry and compare it (Engine::visit()): they read and write
// plain memory. A copy is made when it is first asked for, and is the same memory until forget().
// Owner: Engine. Threads: the one that trains. Failure: as cuda/runtime.h.
#pragma once
#include <map>

#include "cohort/collective/communicator.h"

namespace cohort::engine {

class HostMirror {
 public:
  Piece of(const Piece& there);  // what lies in the host's memory is its own copy
  void upload() const;           // what was written into the copies
  void forget() { copies_.clear(); }

 private:
  struct Copy {
    Piece there;
    collective::Region here;
    Piece piece() const { return {here.data(), there.count, there.dtype, Device::cpu}; }
  };
  std::map<const void*, Copy> copies_;  // by place on the GPU
};

}  // namespace cohort::engine
