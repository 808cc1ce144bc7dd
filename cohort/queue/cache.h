// The names a queue remembers, so that in the steady state four bytes stand for a name and its signature.
// Two halves. Names: what every rank knows, changed only by obeying responses, hence the same on all ranks after the same response.
// NameKeeper: rank 0's half, which gives out ids (never twice), forgets the least recently run, and still understands a forgotten id
// until every rank has obeyed the response that forgot it.
// Owner: lane and Coordinator. Threads: none of its own.
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

class Names {
 public:
  NameId find(const std::string& name, const Signature& signature) const;  // kNoId when unknown or known with another signature
  std::shared_ptr<const Named> at(NameId id) const;                        // nullptr when unknown
  void learn(NameId id, std::shared_ptr<const Named> named);               // shared with the unit that is about to run
  void forget(NameId id);
  std::size_t size() const { return by_id_.size(); }

 private:
  std::unordered_map<NameId, std::shared_ptr<const Named>> by_id_;
  std::unordered_map<std::string, NameId> by_name_;
};

class NameKeeper {
 public:
  NameKeeper(int ranks, std::size_t capacity);

  // How `named` is mentioned in response `number`. May give an id and may forget others, which are added to `forgotten`.
  Mention mention(const Named& named, std::uint64_t number, std::vector<NameId>& forgotten);
  // Throws Kind::corrupt for an id that no rank can have meant.
  const Named& meaning(NameId id, Rank asker) const;
  void obeyed(Rank rank, std::uint64_t number);

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
  std::unordered_map<NameId, Named> by_id_;  // current and retired
  std::unordered_map<std::string, Slot> by_name_;
  std::list<std::string> ages_;  // least recently run first
  std::deque<Retired> retired_;
  std::vector<std::uint64_t> obeyed_;  // by rank
};

}  // namespace cohort::queue
