// Open MPI as a baseline: a stand-alone program that times one collective at several sizes, verifies every result and prints one JSON line
// per size.
//   mpirun -n 2 openmpi_bench --collective all_reduce --bytes 4,1048576 --dtype f32 --op sum --seconds 0.3 [--repeats 10]
// Buffers are ordinary page-aligned memory, touched before timing; all_reduce is MPI_IN_PLACE. Exit status: 0, 1 when a result is wrong, 2
// usage.
#define OMPI_SKIP_MPICXX 1  // the C++ bindings MPI dropped long ago do not compile quietly
#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "cohort/bench/measure.h"

namespace {

using namespace cohort::bench::measure;

struct Request {
  std::string collective = "all_reduce", dtype = "f32", op = "sum";
  std::vector<std::size_t> bytes{4};
  Budget budget;
};

[[noreturn]] void give_up(const std::string& why, int status) {
  std::fprintf(stderr, "openmpi_bench: %s\n", why.c_str());
  MPI_Abort(MPI_COMM_WORLD, status);
  std::abort();
}

std::vector<std::size_t> numbers(const std::string& text) {
  std::vector<std::size_t> out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t used = 0;
    out.push_back(std::stoull(text.substr(at), &used));
    at += used + 1;
  }
  return out;
}

Request parse(int argc, char** argv) {
  Request r;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 >= argc) give_up(flag + " needs a value", 2);
    const std::string value = argv[i + 1];
    if (flag == "--collective")
      r.collective = value;
    else if (flag == "--dtype")
      r.dtype = value;
    else if (flag == "--op")
      r.op = value;
    else if (flag == "--bytes")
      r.bytes = numbers(value);
    else if (flag == "--seconds")
      r.budget.seconds = std::stod(value);
    else if (flag == "--repeats")
      r.budget.repeats = std::stoi(value);
    else
      give_up("unknown option " + flag, 2);
  }
  return r;
}

MPI_Op mpi_op(const Request& r) {
  const bool logical = r.dtype == "bool";
  if (r.op == "sum") return logical ? MPI_LOR : MPI_SUM;
  if (r.op == "product") return logical ? MPI_LAND : MPI_PROD;
  if (r.op == "min") return logical ? MPI_LAND : MPI_MIN;
  if (r.op == "max") return logical ? MPI_LOR : MPI_MAX;
  give_up("Open MPI has no '" + r.op + "'", 2);
}

struct Buffers {
  void* in;
  void* out;
  MPI_Datatype type;
  MPI_Op op;
};

void operate(const Shape& s, const Buffers& b) {
  const auto whole = static_cast<int>(s.whole);
  const auto block = static_cast<int>(s.block());
  const auto world = MPI_COMM_WORLD;
  if (s.collective == "all_reduce")
    MPI_Allreduce(MPI_IN_PLACE, b.in, whole, b.type, b.op, world);
  else if (s.collective == "reduce_scatter")
    MPI_Reduce_scatter_block(b.in, b.out, block, b.type, b.op, world);
  else if (s.collective == "all_gather")
    MPI_Allgather(b.in, block, b.type, b.out, block, b.type, world);
  else if (s.collective == "broadcast")
    MPI_Bcast(b.in, whole, b.type, 0, world);
  else if (s.collective == "reduce")
    MPI_Reduce(b.in, b.out, whole, b.type, b.op, 0, world);
  else if (s.collective == "gather")
    MPI_Gather(b.in, block, b.type, b.out, block, b.type, 0, world);
  else if (s.collective == "scatter")
    MPI_Scatter(b.in, block, b.type, b.out, block, b.type, 0, world);
  else if (s.collective == "all_to_all")
    MPI_Alltoall(b.in, block, b.type, b.out, block, b.type, world);
  else if (s.collective == "barrier")
    MPI_Barrier(world);
  else if (s.collective == "send" && s.rank < 2 && s.ranks > 1) {  // there and back
    if (s.rank == 0) MPI_Send(b.in, whole, b.type, 1, 0, world);
    MPI_Recv(b.in, whole, b.type, 1 - s.rank, 0, world, MPI_STATUS_IGNORE);
    if (s.rank == 1) MPI_Send(b.in, whole, b.type, 0, 0, world);
  }
}

void slowest(double* values, std::size_t n) {
  MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(n), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};
std::unique_ptr<void, Free> pages(std::size_t bytes) {
  const std::size_t page = 4096;
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;
  std::unique_ptr<void, Free> p{std::aligned_alloc(page, rounded)};
  if (!p) give_up("out of memory", 1);
  std::memset(p.get(), 0, rounded);
  return p;
}

template <class T>
void measure_one(const Request& r, std::size_t bytes, MPI_Datatype type, Shape s) {
  s.whole = whole_elements(s.collective, bytes, sizeof(T), s.ranks);
  if (s.whole > static_cast<std::size_t>(std::numeric_limits<int>::max())) give_up("MPI counts end at 2^31-1 elements", 2);
  const auto in = pages(s.in_count() * sizeof(T));
  const auto out = s.in_place() ? nullptr : pages(s.out_count() * sizeof(T));
  const Buffers b{in.get(), out ? out.get() : in.get(), type, s.reduces() ? mpi_op(r) : MPI_OP_NULL};
  fill_input(s, static_cast<T*>(b.in));
  operate(s, b);
  Verdict mine = check_output(s, static_cast<const T*>(b.out));
  unsigned long long wrong = mine.wrong;
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &mine.checksum, 1, MPI_UINT32_T, MPI_SUM, MPI_COMM_WORLD);
  if (wrong != 0) give_up(r.collective + ": " + std::to_string(wrong) + " wrong elements", 1);
  std::memset(b.in, 0, s.in_count() * sizeof(T));
  Summary t = time_operation(
      r.budget, [&] { operate(s, b); }, [] { MPI_Barrier(MPI_COMM_WORLD); }, slowest);
  const double trips = s.collective == "send" ? 2 : 1;
  if (s.rank == 0)
    std::printf(
        "{\"collective\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"dtype\":\"%s\",\"op\":\"%s\",\"median_us\":%.4f,\"low_us\":%.4f,\"high_us\":%."
        "4f,"
        "\"repeats\":%d,\"batch\":%d,\"checksum\":%u}\n",
        r.collective.c_str(), s.ranks, s.whole * sizeof(T), r.dtype.c_str(), r.op.c_str(), t.median_us / trips, t.low_us / trips,
        t.high_us / trips, t.repeats, t.batch, mine.checksum);
  std::fflush(stdout);
}

void measure_typed(const Request& r, std::size_t bytes, const Shape& s) {
  if (r.dtype == "f32") return measure_one<float>(r, bytes, MPI_FLOAT, s);
  if (r.dtype == "f64") return measure_one<double>(r, bytes, MPI_DOUBLE, s);
  if (r.dtype == "i8") return measure_one<std::int8_t>(r, bytes, MPI_INT8_T, s);
  if (r.dtype == "u8") return measure_one<std::uint8_t>(r, bytes, MPI_UINT8_T, s);
  if (r.dtype == "i32") return measure_one<std::int32_t>(r, bytes, MPI_INT32_T, s);
  if (r.dtype == "i64") return measure_one<std::int64_t>(r, bytes, MPI_INT64_T, s);
  if (r.dtype == "bool") return measure_one<bool>(r, bytes, MPI_C_BOOL, s);
  give_up("Open MPI has no type " + r.dtype, 2);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const Request r = parse(argc, argv);
  Shape s{r.collective, r.op};
  s.logical = r.dtype == "bool";
  MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &s.ranks);
  for (const std::size_t bytes : r.bytes) measure_typed(r, bytes, s);
  MPI_Finalize();
  return 0;
}
