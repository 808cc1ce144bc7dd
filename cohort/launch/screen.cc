#include "cohort/launch/screen.h"

#include <fmt/format.h>

#include "cohort/base/terminal_text.h"

namespace cohort::launch {
namespace {

constexpr std::size_t kLongestHeld = 64 << 10;
constexpr std::array<int, 6> kColors{36, 33, 32, 35, 34, 31};  // cyan, yellow, green, magenta, blue, red

// The end of the first piece: after \n, \r\n, or a \r that something else follows. npos: not finished.
std::size_t end_of_piece(std::string_view text) {
  const auto at = text.find_first_of("\r\n");
  if (at == text.npos) return text.npos;
  if (text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n') return at + 2;
  return at + 1;
}

// A \r at the very end may be the first half of \r\n, so it is no end yet.
std::size_t end_of_finished(std::string_view text) {
  if (text.ends_with('\r')) text.remove_suffix(1);
  const auto at = text.find_last_of("\r\n");
  return at == text.npos ? 0 : at + 1;
}

}  // namespace

std::string Screen::prefix_of(Source source) const {
  if (!style_.prefix) return {};
  const auto [rank, stream] = source;
  const auto found = names_.find(rank);
  const std::string name = found != names_.end() ? found->second : std::to_string(rank);
  if (!style_.color[static_cast<std::size_t>(stream - 1)]) return fmt::format("[{}] ", name);
  return fmt::format("\033[{}m[{}]\033[0m ", kColors[static_cast<std::size_t>(rank) % kColors.size()], name);
}

void Screen::write(int rank, int stream, std::string_view bytes, Clock::time_point now) {
  const Source source{rank, stream};
  Held& held = held_[source];
  if (held.text.empty()) held.since = now;
  held.text += bytes;
  const std::size_t finished = held.text.size() > kLongestHeld ? held.text.size() : end_of_finished(held.text);
  if (finished == 0) return;
  emit(source, std::string_view(held.text).substr(0, finished));
  held.text.erase(0, finished);
  held.since = now;
}

void Screen::emit(Source source, std::string_view text) {
  Output& sink = sinks_[sink_of(source.second)];
  while (!text.empty()) {
    const auto end = std::min(end_of_piece(text), text.size());
    emit_piece(sink, source, text.substr(0, end));
    text.remove_prefix(end);
  }
}

void Screen::emit_piece(Output& sink, Source source, std::string_view piece) {
  if (sink.owner.first >= 0 && sink.owner != source) {
    sink.out += '\n';
    sink.owner = {-1, 0};
  }
  const bool fresh = sink.owner.first < 0 || sink.returned;
  const bool bare_end = piece == "\r" || (piece == "\n" && sink.owner == source);
  if (fresh && !bare_end) sink.out.append(erased(source.second)).append(prefix_of(source));
  sink.out += piece;
  sink.returned = piece.ends_with('\r');
  sink.owner = piece.ends_with('\n') ? Source{-1, 0} : source;
}

void Screen::finish(int rank, int stream) {
  const auto at = held_.find({rank, stream});
  if (at == held_.end()) return;
  emit(at->first, at->second.text);
  held_.erase(at);
}

void Screen::say(std::string_view text) {
  Output& sink = sinks_[sink_of(2)];
  if (sink.owner.first >= 0) sink.out += '\n';
  sink.owner = {-1, 0};
  sink.returned = false;
  sink.out.append(erased(2)).append(terminal_text(text));  // it may quote a worker, an agent, a file
  if (!text.ends_with('\n')) sink.out += '\n';
}

void Screen::show_idle(Clock::time_point now) {
  for (auto& [source, held] : held_) {
    if (held.text.empty() || now - held.since < kHold) continue;
    emit(source, held.text);
    held.text.clear();
  }
}

Deadline Screen::next_idle() const {
  Deadline next;
  for (const auto& [source, held] : held_)
    if (!held.text.empty()) next = next.sooner(Deadline{held.since + kHold});
  return next;
}

void Screen::finish_all() {
  while (!held_.empty()) {
    const Source source = held_.begin()->first;
    finish(source.first, source.second);
  }
  if (!style_.prefix) return;  // then the bytes are the ranks' own, to the last one
  for (Output& sink : sinks_) {
    if (sink.owner.first >= 0) sink.out += '\n';
    sink.owner = {-1, 0};
  }
}

}  // namespace cohort::launch
