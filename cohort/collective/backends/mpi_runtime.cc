#include "cohort/collective/backends/mpi_runtime.h"

#include <dlfcn.h>

#include <array>
#include <utility>

#include "cohort/collective/kernels/kernels.h"

namespace cohort::collective {
namespace {

constexpr std::array<Dtype, 4> kReals{Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64};
constexpr std::array<Op, 4> kPlainOps{Op::sum, Op::min, Op::max, Op::product};

// inout = in op inout, by our kernels; in comes from the lower rank.
template <std::size_t Which>
void combine(void* in, void* inout, int* count, MPI_Datatype* /*type*/) {
  constexpr Dtype kDtype = kReals[Which / kPlainOps.size()];
  constexpr Op kOp = kPlainOps[Which % kPlainOps.size()];
  const std::array<const void*, 2> sources{in, inout};
  kernels().reduce({kDtype, kOp, 1.0, 1.0}, sources, {&inout, 1}, static_cast<std::size_t>(*count));
}

constexpr std::size_t kUserOps = kReals.size() * kPlainOps.size();

template <std::size_t... Which>
std::vector<MPI_Op> make_ops(std::index_sequence<Which...> /*all*/) {
  std::vector<MPI_Op> ops(sizeof...(Which));
  (mpi_check(MPI_Op_create(&combine<Which>, 1, &ops[Which]), "MPI_Op_create"), ...);
  return ops;
}

// Open MPI's components look for its symbols in the global scope; a library opened with RTLD_LOCAL hides them.
void show_symbols() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &info) != 0 && info.dli_fname != nullptr)
    dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

}  // namespace

void mpi_check(int code, std::string_view what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw_failure(Kind::system, "{}: {}", what, std::string_view(text.data(), static_cast<std::size_t>(length)));
}

MpiRuntime::MpiRuntime() {
  show_symbols();
  int running = 0, ended = 0, threads = MPI_THREAD_SINGLE;
  mpi_check(MPI_Initialized(&running), "MPI_Initialized");
  mpi_check(MPI_Finalized(&ended), "MPI_Finalized");
  if (ended != 0) throw_failure(Kind::usage, "backend: mpi: this program has ended MPI already; open communicators before MPI_Finalize");
  if (running != 0) {
    mpi_check(MPI_Query_thread(&threads), "MPI_Query_thread");
  } else {
    mpi_check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads), "MPI_Init_thread");
    ours_ = true;
    mpi_check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  if (threads < MPI_THREAD_MULTIPLE)
    throw_failure(Kind::usage, "backend: mpi needs MPI_THREAD_MULTIPLE, which this MPI does not give{}",
                  ours_ ? "" : "; the program started it: let it ask MPI_Init_thread for that");
  user_ops_ = make_ops(std::make_index_sequence<kUserOps>{});
}

MpiRuntime::~MpiRuntime() {
  int ended = 0;
  if (ours_ && !broken_ && MPI_Finalized(&ended) == MPI_SUCCESS && ended == 0) MPI_Finalize();
}

MpiRuntime& MpiRuntime::of(const BackendContext& context) {
  static MpiRuntime runtime;
  int rank = 0, size = 0;
  mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  const int mine = context.members.at(static_cast<std::size_t>(context.rank));
  if (size != context.job_size || rank != mine)
    throw_failure(Kind::usage,
                  "backend: mpi: this is rank {} of {} of the job, but rank {} of {} to MPI; start it with `mpirun -n {} program`", mine,
                  context.job_size, rank, size, context.job_size);
  return runtime;
}

MPI_Comm MpiRuntime::comm_of(const BackendContext& context) {
  MPI_Group world = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  void* most = nullptr;
  int there = 0;
  mpi_check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &there), "MPI_Comm_get_attr");
  const auto tags = there != 0 ? static_cast<std::uint32_t>(*static_cast<int*>(most)) : 32767u;
  mpi_check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  mpi_check(MPI_Group_incl(world, context.size(), context.members.data(), &members), "MPI_Group_incl");
  // Collective over the members only; the tag keeps apart what several threads open at once.
  mpi_check(MPI_Comm_create_group(MPI_COMM_WORLD, members, static_cast<int>(context.channel % tags), &comm), "MPI_Comm_create_group");
  MPI_Group_free(&members);
  MPI_Group_free(&world);
  mpi_check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return comm;
}

MPI_Datatype MpiRuntime::type(Dtype dtype) const {
  // In the order of Dtype's enumerators.
  const std::array<MPI_Datatype, kDtypes> types{MPI_UINT16_T, MPI_UINT16_T, MPI_FLOAT,   MPI_DOUBLE,  MPI_INT8_T,
                                                MPI_UINT8_T,  MPI_INT32_T,  MPI_INT64_T, MPI_UINT8_T, MPI_INT16_T};
  return types[static_cast<std::size_t>(dtype)];
}

MPI_Op MpiRuntime::op(Dtype dtype, Op op) const {
  for (std::size_t d = 0; d < kReals.size(); ++d)
    for (std::size_t o = 0; o < kPlainOps.size(); ++o) {
      const bool narrow = dtype == Dtype::f16 || dtype == Dtype::bf16;
      if (kReals[d] == dtype && kPlainOps[o] == op && (narrow || op == Op::min || op == Op::max))
        return user_ops_[d * kPlainOps.size() + o];
    }
  return op == Op::min ? MPI_MIN : op == Op::max ? MPI_MAX : op == Op::product ? MPI_PROD : MPI_SUM;
}

}  // namespace cohort::collective
