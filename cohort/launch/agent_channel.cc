#include "cohort/launch/agent_channel.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/net/frame/little_endian.h"

namespace cohort::launch {
namespace {

constexpr std::size_t kHeaderBytes = 6;  // length, type
constexpr std::size_t kReadBytes = 64 << 10;
constexpr int kReadsInARow = 16;

const std::byte* byte_at(const std::string& bytes, std::size_t at) { return reinterpret_cast<const std::byte*>(bytes.data()) + at; }

}  // namespace

Channel::Channel(Side side, Fd in, Fd out) : in_(std::move(in)), out_(std::move(out)), banner_seen_(side == Side::agent) {
  for (const Fd* fd : {&in_, &out_}) fcntl(fd->get(), F_SETFL, fcntl(fd->get(), F_GETFL) | O_NONBLOCK);
  if (side == Side::agent) out_bytes_ = kAgentBanner;
}

void Channel::send(AgentFrame type, ConstBytes body) {
  if (!out_) return;
  std::array<std::byte, kHeaderBytes> header{};
  net::store_le(&header[0], static_cast<std::uint32_t>(body.size()));
  net::store_le(&header[4], static_cast<std::uint16_t>(type));
  out_bytes_.append(reinterpret_cast<const char*>(header.data()), header.size());
  out_bytes_.append(reinterpret_cast<const char*>(body.data()), body.size());
}

std::optional<AgentMessage> Channel::next() {
  if (!banner_seen_) find_banner();
  if (!banner_seen_ || in_bytes_.size() - taken_ < kHeaderBytes) return std::nullopt;
  const auto length = net::load_le<std::uint32_t>(byte_at(in_bytes_, taken_));
  const auto type = net::load_le<std::uint16_t>(byte_at(in_bytes_, taken_ + 4));
  if (length > kMaxMessage || type < static_cast<std::uint16_t>(AgentFrame::init) || type > static_cast<std::uint16_t>(AgentFrame::leaving))
    throw_failure(Kind::corrupt, "a frame of type {} and {} bytes: the stream between launcher and agent is damaged", type, length);
  if (in_bytes_.size() - taken_ - kHeaderBytes < length) return std::nullopt;
  const std::byte* body = byte_at(in_bytes_, taken_ + kHeaderBytes);
  AgentMessage message{static_cast<AgentFrame>(type), {body, body + length}};
  taken_ += kHeaderBytes + length;
  return message;
}

void Channel::find_banner() {
  const auto at = in_bytes_.find(kAgentBanner);
  if (at == in_bytes_.npos) {
    if (in_bytes_.size() > kMaxLoginOutput) throw_failure(Kind::corrupt, "no agent answers there: {}", login_output());
    return;
  }
  banner_seen_ = true;
  taken_ = at + kAgentBanner.size();
}

std::string Channel::login_output() const { return banner_seen_ ? "" : printable(trim(in_bytes_)); }

bool Channel::take_received() { return std::exchange(received_, false); }

void Channel::move() {
  write_all();
  if (open_) read_all();
}

void Channel::read_all() {
  in_bytes_.erase(0, std::exchange(taken_, 0));
  std::array<char, kReadBytes> buffer;
  for (int i = 0; i < kReadsInARow; ++i) {
    const ssize_t n = read(in_.get(), buffer.data(), buffer.size());
    if (n > 0) {
      in_bytes_.append(buffer.data(), static_cast<std::size_t>(n));
      received_ = true;
      continue;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    open_ = false;
    return;
  }
}

void Channel::write_all() {
  while (out_ && unsent() > 0) {
    const ssize_t n = write(out_.get(), out_bytes_.data() + sent_, unsent());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) {  // nobody reads it any more; what was sent to us before that is still read
      out_.reset();
      sent_ = out_bytes_.size();
      break;
    }
    sent_ += static_cast<std::size_t>(n);
  }
  if (sent_ > kFullChannel || sent_ == out_bytes_.size()) out_bytes_.erase(0, std::exchange(sent_, 0));
}

void Channel::close() {
  in_.reset();
  out_.reset();
  open_ = false;
  out_bytes_.clear();
  sent_ = 0;
}

}  // namespace cohort::launch
