// What the memory of this process is for: bytes by class, now and at their highest. Whoever makes a large buffer holds an Entry beside it;
// `cohort bench memory`, `plan` and the report read it. Nothing is allocated here: an Entry only counts the buffer that it is kept beside.
// Owner: the process (Ledger::process()), or a test its own. Threads: any; an Entry itself has one owner at a time. Failure: none.
// To add a class: one enumerator before kClasses, one word in memory_class_name().
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace cohort {

enum class MemoryClass : std::uint8_t {
  parameters,   // what forward reads, for longer than one block
  gradients,    // what stays between backward and the update
  optimizer,    // momenta and the like
  master,       // fp32 copies of 16-bit parameters
  activations,  // what forward keeps for backward
  buckets,      // regions in flight: pools of gradients being reduced, parameters gathered for the block that runs
  temporaries,  // scratch of an operation, gone when it ends
  data,         // data sets and batches held ready
  kClasses,     // how many there are
};
inline constexpr std::size_t kMemoryClasses = static_cast<std::size_t>(MemoryClass::kClasses);
std::string_view memory_class_name(MemoryClass which);  // "parameters"

class Ledger {
 public:
  struct Held {
    std::size_t now = 0, peak = 0;
  };

  static Ledger& process();  // the one that all modules use

  Held of(MemoryClass which) const { return line(which).read(); }
  Held total() const { return total_.read(); }  // its peak is that of the sum: classes rarely peak together
  void restart_peaks();                         // from here on: peaks start at what is held now

  // One buffer that is counted, for as long as the Entry lives. Moves with the buffer; an empty one counts nothing.
  class Entry {
   public:
    Entry() = default;
    Entry(MemoryClass which, std::size_t bytes, Ledger& ledger = Ledger::process()) : ledger_(&ledger), which_(which) { resize(bytes); }
    Entry(Entry&& other) noexcept { swap(other); }
    Entry& operator=(Entry&& other) noexcept {
      Entry{std::move(other)}.swap(*this);
      return *this;
    }
    ~Entry() { resize(0); }

    std::size_t bytes() const { return bytes_; }
    void resize(std::size_t bytes) noexcept;  // the buffer grew or shrank. An empty Entry has no class: it stays empty

   private:
    void swap(Entry& other) noexcept;

    Ledger* ledger_ = nullptr;
    MemoryClass which_ = MemoryClass::temporaries;
    std::size_t bytes_ = 0;
  };

 private:
  struct Line {
    std::atomic<std::size_t> now{0}, peak{0};
    Held read() const { return {now.load(std::memory_order_relaxed), peak.load(std::memory_order_relaxed)}; }
    void change(std::size_t from, std::size_t to);
  };
  const Line& line(MemoryClass which) const { return lines_[static_cast<std::size_t>(which)]; }

  std::array<Line, kMemoryClasses> lines_{};
  Line total_{};
};

}  // namespace cohort
