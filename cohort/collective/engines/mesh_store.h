// A c10d Store over the links our ranks have authenticated already: how torch's process groups exchange addresses without another open
// port. What a rank sets is told to all others; whoever needs a key listens until it has come.
// It lives while a group is opened: close() is called by every rank, says so to the others and hears all they had to say; afterwards
// nothing more is told or heard, and keys that came stay readable.
// Owner: torch, shared (it keeps stores for as long as it likes). Threads: any. Failure: as EngineSite's tell and hear; torch.
#pragma once
#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "cohort/collective/engine.h"

namespace cohort::collective {

class MeshStore final : public c10d::Store {
 public:
  explicit MeshStore(const EngineSite& site) : site_(site), left_(site.size() - 1) {}
  void close();

  c10::intrusive_ptr<Store> clone() override { return c10::intrusive_ptr<Store>::reclaim_copy(this); }
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> get(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    static_cast<void>(timeout), wait(keys);
  }
  int64_t getNumKeys() override;
  bool deleteKey(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;  // the first to ask for it would have to be known: refused

 private:
  void tell_all(uint8_t kind, const std::string& key, const std::vector<uint8_t>& value);
  void hear_one();

  EngineSite site_;  // its tell and hear end with the opening
  std::mutex mutex_;
  std::map<std::string, std::vector<uint8_t>> values_;  // guarded by mutex_
  int left_;                                            // ranks that have not closed; guarded by mutex_
  bool closed_ = false;                                 // guarded by mutex_
};

}  // namespace cohort::collective
