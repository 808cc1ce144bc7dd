// A c10d process group as a Backend: what gloo and nccl have in common. Data that is only moved travels as bytes, so every type can.
// What torch's groups lack is emulated here: reduce_scatter is an all_reduce of a copy (gloo has none of its own, and uneven blocks are
// unknown to both), an uneven all_gather is one broadcast for each part.
// Owner: one Communicator. Threads and failure: as Backend. To add one more group of torch: derive, see gloo.cc.
#pragma once
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "cohort/collective/plugin/backend.h"

namespace cohort::collective {

at::Tensor tensor_of(Piece piece);                    // borrows the piece's memory
at::Tensor bytes_tensor(Piece piece);                 // the same as bytes
std::string first_line(const std::exception& error);  // torch's messages carry a stack; people want the first line

// As a backend's errors: Kind::system with torch's words. Failures of ours that came through torch stay what they were.
template <class Body>
auto in_torch(std::string_view what, Body body) {
  try {
    return body();
  } catch (const Failure&) {
    throw;
  } catch (const std::exception& error) {
    throw_failure(Kind::system, "{}: {}", what, first_line(error));
  }
}

class TorchBackend : public Backend {
 public:
  TorchBackend(int rank, int size) : rank_(rank), size_(size) {}

  void all_reduce(Piece data, Op op, const WaitOptions& wait_options) override;
  void reduce_scatter(Piece in, Piece out, Op op, const Layout& layout, const WaitOptions& wait_options) override;
  void all_gather(Piece in, Piece out, const Layout& layout, const WaitOptions& wait_options) override;
  void broadcast(Piece data, int root, const WaitOptions& wait_options) override;
  void reduce(Piece in, Piece out, Op op, int root, const WaitOptions& wait_options) override;
  void all_to_all(Piece in, Piece out, const Layout& sends, const Layout& recvs, const WaitOptions& wait_options) override;

 protected:
  using Work = c10::intrusive_ptr<c10d::Work>;
  virtual c10d::Backend& group() = 0;
  virtual std::shared_ptr<void> on(void* stream) { return static_cast<void>(stream), nullptr; }  // held while a collective enqueues on it
  // Until it is done (on a GPU: until it is enqueued on the current stream). Throws the group's error as Kind::system.
  virtual void wait(const Work& work, const WaitOptions& wait_options) = 0;

 private:
  template <class Start>
  void run(std::string_view what, const WaitOptions& wait_options, Start start);

  const int rank_, size_;
};

}  // namespace cohort::collective
