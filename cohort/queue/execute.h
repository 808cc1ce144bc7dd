// From agreed operations to collectives of a communicator. Blocking; the driver of the progress engine calls it.
// Failure: the communicator's own. A collective's Kind::usage leaves everything usable; an allocator that throws is Kind::system, which the
// progress engine treats as final (the peers are already waiting for this rank's bytes).
#pragma once
#include <span>

#include "cohort/collective/communicator.h"
#include "cohort/queue/signature.h"
#include "cohort/queue/submission.h"

namespace cohort::queue {

// Groups up to this size are packed into one buffer; above it the copies cost more than the extra synchronisations they save.
inline constexpr std::size_t kPackBytes = 1_MiB;

// One member of a unit: the operation as this rank submitted it, or, when this rank has joined, only its signature.
struct UnitMember {
  Operation* operation = nullptr;  // nullptr: this rank contributes zeros
  const Signature* signature = nullptr;
  std::string_view name{};
};

class Executor {
 public:
  // factors_in_type: see QueueOptions.
  explicit Executor(collective::Communicator& communicator, bool factors_in_type = false)
      : comm_(communicator), factors_in_type_(factors_in_type) {}

  Result run(Operation& operation);                              // a small group of all-reduces is packed
  void run_zeros(const Signature& signature, std::string name);  // this rank's part in an all-reduce after its join()
  void run_unit(std::span<const UnitMember> members);            // all-reduces that are one unit, as one reduction

 private:
  Result all_gather(Operation& operation);
  Result all_to_all(Operation& operation);
  void all_reduce(Operation& operation);
  void run_packed(std::span<const UnitMember> members);  // one buffer
  void run_in_place(std::span<const UnitMember> members);
  void run_part(const Operation& operation, const Part& part);
  Piece buffer(std::size_t count, Dtype dtype);
  template <class Scaled>  // an Operation or a Signature
  collective::Call call_of(const Scaled& what, std::string_view name, Dtype dtype) const;

  collective::Communicator& comm_;
  const bool factors_in_type_;
  collective::Region region_;  // the fusion buffer; grows to what was needed so far
};

}  // namespace cohort::queue
