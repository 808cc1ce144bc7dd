#include "cohort/collective/channel/record.h"

#include <cstring>

namespace cohort::collective {

std::vector<std::byte> encode(const Record& record, ConstBytes inline_bytes) {
  std::vector<std::byte> out(sizeof record + inline_bytes.size());
  std::memcpy(out.data(), &record, sizeof record);
  if (!inline_bytes.empty()) std::memcpy(out.data() + sizeof record, inline_bytes.data(), inline_bytes.size());
  return out;
}

std::optional<Record> decode(ConstBytes bytes) {
  Record record;
  if (bytes.size() < sizeof record) return std::nullopt;
  std::uint32_t kind = 0;
  std::memcpy(&kind, bytes.data(), sizeof kind);  // first: an enum must not hold what it does not name
  if (kind >= kRecordKinds) return std::nullopt;
  std::memcpy(&record, bytes.data(), sizeof record);
  const std::uint64_t inline_bytes = record.kind == Record::Kind::announce_inline ? record.length : 0;
  if (bytes.size() - sizeof record != inline_bytes) return std::nullopt;
  return record;
}

}  // namespace cohort::collective
