#include "cohort/base/ledger.h"

namespace cohort {

std::string_view memory_class_name(MemoryClass which) {
  switch (which) {
    case MemoryClass::parameters: return "parameters";
    case MemoryClass::gradients: return "gradients";
    case MemoryClass::optimizer: return "optimizer";
    case MemoryClass::master: return "master";
    case MemoryClass::activations: return "activations";
    case MemoryClass::buckets: return "buckets";
    case MemoryClass::temporaries: return "temporaries";
    case MemoryClass::data: return "data";
    case MemoryClass::kClasses: break;
  }
  return "unknown";
}

Ledger& Ledger::process() {
  static Ledger* const ledger = new Ledger;  // never destroyed: buffers of static objects may outlive everything else
  return *ledger;
}

void Ledger::Line::change(std::size_t from, std::size_t to) {
  const std::size_t held = now.fetch_add(to - from, std::memory_order_relaxed) + (to - from);  // unsigned: a loss wraps around, and back
  if (to <= from) return;
  std::size_t highest = peak.load(std::memory_order_relaxed);
  while (highest < held && !peak.compare_exchange_weak(highest, held, std::memory_order_relaxed)) {
  }
}

void Ledger::restart_peaks() {
  for (Line& line : lines_) line.peak.store(line.now.load(std::memory_order_relaxed), std::memory_order_relaxed);
  total_.peak.store(total_.now.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void Ledger::Entry::resize(std::size_t bytes) noexcept {
  if (ledger_ == nullptr || bytes == bytes_) return;
  ledger_->lines_[static_cast<std::size_t>(which_)].change(bytes_, bytes);
  ledger_->total_.change(bytes_, bytes);
  bytes_ = bytes;
}

void Ledger::Entry::swap(Entry& other) noexcept {
  std::swap(ledger_, other.ledger_);
  std::swap(which_, other.which_);
  std::swap(bytes_, other.bytes_);
}

}  // namespace cohort
