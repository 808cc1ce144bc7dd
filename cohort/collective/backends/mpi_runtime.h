// MPI in this process: started when the first communicator asks for it, with the types and operations of the laws.
// A process starts MPI once. A program that called MPI_Init itself also calls MPI_Finalize.
// Owner: the library, for as long as the process lives. Threads: any (MPI_THREAD_MULTIPLE is demanded).
// Failure: Kind::usage when MPI gives less or counts other ranks than the job; Kind::system with MPI's words.
#pragma once
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <atomic>
#include <string_view>
#include <vector>

#include "cohort/collective/plugin/backend.h"

namespace cohort::collective {

void mpi_check(int code, std::string_view what);  // Kind::system unless it is MPI_SUCCESS

class MpiRuntime {
 public:
  // Starts MPI where that has not happened, and compares its world with the job's.
  static MpiRuntime& of(const BackendContext& context);

  MPI_Comm comm_of(const BackendContext& context);  // of these members alone; kept until the end, since freeing one is a collective
  MPI_Datatype type(Dtype dtype) const;             // f16 and bf16 are 16 bits whose operations are ours
  MPI_Op op(Dtype dtype, Op op) const;      // MPI's own, but for 16-bit reals, and min and max of reals, in which NaN must not get lost
  void skip_finalize() { broken_ = true; }  // an operation is still in flight: MPI_Finalize would wait for it

  ~MpiRuntime();
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

 private:
  MpiRuntime();

  bool ours_ = false;  // started by us
  std::vector<MPI_Op> user_ops_;
  std::atomic<bool> broken_{false};
};

}  // namespace cohort::collective
