// The names a queue remembers, so that in the steady state four bytes replace a name and its signature.
// Two halves. NameCache: what every rank knows, changed only by applying responses, hence the same on all ranks after the same response.
// NameRegistry: rank 0's half, which assigns ids (never twice), evicts the least recently run, and still resolves an evicted id until every
// rank has acknowledged the response that evicted it. Owner: ProgressEngine and Coordinator. Threads: none of its own.
#pragma once
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cohort/queue/message.h"

namespace cohort::queue {

class NameCache {
 public:
  NameId find(const std::string& name, const Signature& signature) const;  // kNoId when unknown or known with another signature
  std::shared_ptr<const NamedSignature> at(NameId id) const;               // nullptr when unknown
  void learn(NameId id, std::shared_ptr<const NamedSignature> named);      // shared with the unit that is about to run
  void forget(NameId id);
  std::size_t size() const { return by_id_.size(); }

 private:
  std::unordered_map<NameId, std::shared_ptr<const NamedSignature>> by_id_;
  std::unordered_map<std::string, NameId> by_name_;
};

class NameRegistry {
 public:
  NameRegistry(int ranks, std::size_t capacity);

  // How response `number` refers to `named`. May assign an id and may evict others, which are added to `forgotten`.
  NameRef name_ref(const NamedSignature& named, std::uint64_t number, std::vector<NameId>& forgotten);
  // Throws Kind::corrupt for an id that is not assigned.
  const NamedSignature& lookup(NameId id, Rank asker) const;
  void acknowledged(Rank rank, std::uint64_t number);

 private:
  struct Slot {
    NameId id;
    std::list<std::string>::iterator age;
  };
  struct Retired {
    std::uint64_t number;
    NameId id;
  };
  void retire(const std::string& name, std::uint64_t number, std::vector<NameId>& forgotten);

  const std::size_t capacity_;
  NameId next_id_ = 1;
  std::unordered_map<NameId, NamedSignature> by_id_;  // current and retired
  std::unordered_map<std::string, Slot> by_name_;
  std::list<std::string> ages_;  // least recently run first
  std::deque<Retired> retired_;
  std::vector<std::uint64_t> acknowledged_;  // by rank
};

}  // namespace cohort::queue
