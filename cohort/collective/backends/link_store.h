// A c10d Store over the links our ranks have authenticated already: how torch's process groups exchange addresses without another open
// port. What a rank sets is sent to all others; a rank that needs a key receives until it has come.
// It is in use while a group is opened: every rank calls close(), which sends an end mark and receives until every peer's end mark has
// come; afterwards nothing more is sent or received, and keys that came stay readable. Owner: torch, shared (it keeps stores for as long as
// it likes). Threads: any. Failure: as BackendContext's send and receive; torch.
#pragma once
#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "cohort/collective/plugin/backend.h"

namespace cohort::collective {

class LinkStore final : public c10d::Store {
 public:
  explicit LinkStore(const BackendContext& context) : context_(context), left_(context.size() - 1) {}
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
  int64_t add(const std::string& key, int64_t value) override;  // it would need one rank that counts: refused

 private:
  void send_all(uint8_t kind, const std::string& key, const std::vector<uint8_t>& value);
  void receive_one();

  BackendContext context_;  // its send and receive end with the opening
  std::mutex mutex_;
  std::map<std::string, std::vector<uint8_t>> values_;  // guarded by mutex_
  int left_;                                            // ranks that have not closed; guarded by mutex_
  bool closed_ = false;                                 // guarded by mutex_
};

}  // namespace cohort::collective
