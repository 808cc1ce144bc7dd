#include "cohort/queue/name_cache.h"

#include <algorithm>

namespace cohort::queue {

NameId NameCache::find(const std::string& name, const Signature& signature) const {
  const auto at = by_name_.find(name);
  if (at == by_name_.end() || by_id_.at(at->second)->signature != signature) return kNoId;
  return at->second;
}

std::shared_ptr<const NamedSignature> NameCache::at(NameId id) const {
  const auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : at->second;
}

void NameCache::learn(NameId id, std::shared_ptr<const NamedSignature> named) {
  by_name_.insert_or_assign(named->name, id);
  by_id_.insert_or_assign(id, std::move(named));
}

void NameCache::forget(NameId id) {
  const auto at = by_id_.find(id);
  if (at == by_id_.end()) return;
  const auto name = by_name_.find(at->second->name);
  if (name != by_name_.end() && name->second == id) by_name_.erase(name);  // else the name has a newer id
  by_id_.erase(at);
}

NameRegistry::NameRegistry(int ranks, std::size_t capacity) : capacity_(capacity), acknowledged_(static_cast<std::size_t>(ranks), 0) {}

NameRef NameRegistry::name_ref(const NamedSignature& named, std::uint64_t number, std::vector<NameId>& forgotten) {
  if (const auto at = by_name_.find(named.name); at != by_name_.end()) {
    if (by_id_.at(at->second.id).signature == named.signature) {
      ages_.splice(ages_.end(), ages_, at->second.age);
      return {.id = at->second.id};
    }
    retire(std::string(named.name), number, forgotten);
  }
  if (capacity_ == 0) return {kNoId, named.name, named.signature};
  if (by_name_.size() == capacity_) retire(std::string(ages_.front()), number, forgotten);
  const NameId id = next_id_++;
  by_id_.emplace(id, named);
  by_name_.emplace(named.name, Slot{id, ages_.insert(ages_.end(), named.name)});
  return {id, named.name, named.signature};
}

const NamedSignature& NameRegistry::lookup(NameId id, Rank asker) const {
  const auto at = by_id_.find(id);
  if (at == by_id_.end())
    throw_failure(Kind::corrupt, "rank {} submitted the operation with id {}, which was never assigned", asker.value, id);
  return at->second;
}

void NameRegistry::acknowledged(Rank rank, std::uint64_t number) {
  acknowledged_[static_cast<std::size_t>(rank.value)] = number;
  if (retired_.empty()) return;
  const std::uint64_t everyone = *std::min_element(acknowledged_.begin(), acknowledged_.end());
  while (!retired_.empty() && retired_.front().number <= everyone) {
    by_id_.erase(retired_.front().id);
    retired_.pop_front();
  }
}

void NameRegistry::retire(const std::string& name, std::uint64_t number, std::vector<NameId>& forgotten) {
  const auto at = by_name_.find(name);
  retired_.push_back({number, at->second.id});
  forgotten.push_back(at->second.id);
  ages_.erase(at->second.age);
  by_name_.erase(at);
}

}  // namespace cohort::queue
