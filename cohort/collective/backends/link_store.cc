#include "cohort/collective/backends/link_store.h"

#include <algorithm>
#include <cstring>

namespace cohort::collective {
namespace {

constexpr uint8_t kSet = 0, kClosed = 1;

// kind, length of the key, key, value.
std::vector<std::byte> packed(uint8_t kind, const std::string& key, const std::vector<uint8_t>& value) {
  const auto length = static_cast<std::uint32_t>(key.size());
  std::vector<std::byte> bytes(1 + sizeof length + key.size() + value.size());
  bytes[0] = std::byte{kind};
  std::memcpy(&bytes[1], &length, sizeof length);
  std::byte* const at = bytes.data() + 1 + sizeof length;
  std::memcpy(at, key.data(), key.size());
  if (!value.empty()) std::memcpy(at + key.size(), value.data(), value.size());
  return bytes;
}

}  // namespace

void LinkStore::send_all(uint8_t kind, const std::string& key, const std::vector<uint8_t>& value) {
  const auto bytes = packed(kind, key, value);
  for (int r = 0; r < context_.size(); ++r)
    if (r != context_.rank) context_.send(r, bytes);
}

void LinkStore::receive_one() {
  const auto [from, bytes] = context_.receive();
  std::uint32_t length = 0;
  if (bytes.size() < 1 + sizeof length)
    throw_failure(Kind::corrupt, "rank {} sent a message of {} bytes while a backend opened, too short for a key", from, bytes.size());
  std::memcpy(&length, &bytes[1], sizeof length);
  const auto body = std::span(bytes).subspan(1 + sizeof length);
  if (length > body.size())
    throw_failure(Kind::corrupt, "rank {} sent a key of {} bytes in a message of {} while a backend opened", from, length, body.size());
  if (bytes[0] == std::byte{kClosed}) return void(--left_);
  const auto* const text = reinterpret_cast<const char*>(body.data());
  const auto* const value = reinterpret_cast<const uint8_t*>(body.data());
  values_[std::string(text, length)] = std::vector<uint8_t>(value + length, value + body.size());
}

void LinkStore::close() {
  const std::lock_guard lock(mutex_);
  send_all(kClosed, {}, {});
  while (left_ > 0) receive_one();
  closed_ = true;
}

void LinkStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  const std::lock_guard lock(mutex_);
  values_[key] = value;
  if (!closed_) send_all(kSet, key, value);
}

std::vector<uint8_t> LinkStore::get(const std::string& key) {
  wait({key});
  const std::lock_guard lock(mutex_);
  return values_.at(key);
}

bool LinkStore::check(const std::vector<std::string>& keys) {
  const std::lock_guard lock(mutex_);
  return std::all_of(keys.begin(), keys.end(), [&](const auto& key) { return values_.contains(key); });
}

void LinkStore::wait(const std::vector<std::string>& keys) {
  const std::lock_guard lock(mutex_);
  for (const auto& key : keys)
    while (!values_.contains(key)) {
      if (closed_) throw_failure(Kind::bug, "a backend asks for '{}' after it was opened", key);
      receive_one();
    }
}

int64_t LinkStore::getNumKeys() {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(values_.size());
}

bool LinkStore::deleteKey(const std::string& key) {
  const std::lock_guard lock(mutex_);
  return values_.erase(key) > 0;
}

int64_t LinkStore::add(const std::string& key, int64_t value) {
  throw_failure(Kind::bug, "a backend wants to add {} to '{}' in a store that has no counters", value, key);
}

}  // namespace cohort::collective
