#include "cohort/net/auth/handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cohort/net/frame/little_endian.h"
#include "cohort/net/socket/tls.h"

namespace cohort::net {
namespace {

constexpr std::uint32_t kOpeningMagic = 0x4f484f43;  // "COHO"
constexpr std::size_t kJobBytes = 64;
constexpr std::size_t kHelloBytes = 80;
constexpr std::size_t kVerdictText = 252;
enum : std::uint16_t { kWelcome = 0, kRefused = 1 };
constexpr std::string_view kUnauthenticated = "does not know this job's secret: another job, or an unauthenticated peer";

// Offsets of the messages in the transcript.
constexpr std::size_t kOpening1 = 0;
constexpr std::size_t kOpening2 = kOpening1 + Handshake::kOpening;
constexpr std::size_t kClaimAt = kOpening2 + Handshake::kOpening;
constexpr std::size_t kReplyAt = kClaimAt + Handshake::kClaim;
constexpr std::size_t kVerdictAt = kReplyAt + Handshake::kReply;
static_assert(kVerdictAt + Handshake::kVerdict == Handshake::kTotal && Handshake::kTotal <= 4_KiB);
static_assert(Handshake::kClaim == kHelloBytes + kDigestBytes && Handshake::kVerdict == 4 + kVerdictText + kDigestBytes);
static_assert(Handshake::kReply == kHelloBytes + Handshake::kVerdict);

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

// One HMAC, not a derived key: every unauthenticated peer that sends an opening costs it.
constexpr std::size_t kProofAt = 16;  // of a nonce
Digest prove(ConstBytes random, const Secret& secret) { return hmac(secret.bytes(), {as_bytes("cohort 1 opening"), random}); }

std::string_view role_name(Role role) { return role == Role::coordinator ? "coordinator" : "worker"; }

}  // namespace

std::string describe(const Hello& h) {
  if (!h.rank) return fmt::format("job '{}', membership epoch {} ({})", h.job, h.epoch.value, role_name(h.role));
  const std::string stream = h.streams == 1 ? "" : fmt::format(", stream {} of {}", h.stream, h.streams);
  return fmt::format("job '{}', membership epoch {}, rank {} ({}{})", h.job, h.epoch.value, h.rank.value, role_name(h.role), stream);
}

bool is_opening_byte(std::byte first) { return first == static_cast<std::byte>(kOpeningMagic & 0xff); }

Nonce random_nonce() {
  Nonce nonce;
  random_bytes(nonce);
  return nonce;
}

Nonce nonce_with_proof(const Secret& secret) {
  Nonce nonce = random_nonce();
  if (secret.empty()) return nonce;
  const Digest proof = prove(ConstBytes(nonce).first(kProofAt), secret);
  std::copy_n(proof.begin(), nonce.size() - kProofAt, &nonce[kProofAt]);
  return nonce;
}

bool has_proof(ConstBytes nonce, const Secret& secret) {
  const Digest proof = prove(nonce.first(kProofAt), secret);
  return same_digest(ConstBytes(proof).first(nonce.size() - kProofAt), nonce.subspan(kProofAt));
}

Handshake::Handshake(Side side, const Secret& secret, Hello mine, Admit admit, const std::optional<Nonce>& nonce)
    : side_(side), secret_(secret), mine_(std::move(mine)), admit_(std::move(admit)), nonce_(nonce) {
  if (secret_.empty()) throw_failure(Kind::usage, "a handshake needs the job's secret, and none was given ({})", describe(mine_));
  if (mine_.job.size() > kJobBytes || !printable(mine_.job))
    throw_failure(Kind::usage, "the job's name must be at most {} bytes of printable ASCII", kJobBytes);
  if (mine_.streams < 1 || mine_.streams > kMostStreams || mine_.stream < 0 || mine_.stream >= mine_.streams)
    throw_failure(Kind::usage, "stream {} of {} is impossible: a link has 1 to {}", mine_.stream, mine_.streams, kMostStreams);
  if (side_ == Side::dialer) write_opening(kOpening1);
  side_ == Side::dialer ? expect(Stage::opening, kOpening2, kClaimAt) : expect(Stage::opening, kOpening1, kOpening2);
}

void Handshake::expect(Stage stage, std::size_t begin, std::size_t end) {
  stage_ = stage;
  in_begin_ = begin;
  in_end_ = end;
  have_ = 0;
}

void Handshake::emit(std::size_t begin, std::size_t end) {
  out_begin_ = begin;
  out_end_ = end;
}

void Handshake::fail(std::string what) {
  if (!failure_) failure_ = Error{Kind::corrupt, std::move(what), kNoRank};
  expect(Stage::failed, 0, 0);
}

Bytes Handshake::space() { return Bytes(transcript_).subspan(in_begin_ + have_, in_end_ - in_begin_ - have_); }
ConstBytes Handshake::to_send() const { return ConstBytes(transcript_).subspan(out_begin_, out_end_ - out_begin_); }
ConstBytes Handshake::peer_nonce() const { return ConstBytes(transcript_).subspan(kOpening1 + 8, sizeof(Nonce)); }
void Handshake::sent(std::size_t bytes) { out_begin_ += std::min(bytes, out_end_ - out_begin_); }

void Handshake::advance(std::size_t arrived) {
  have_ += std::min(arrived, space().size());
  if (stage_ >= Stage::done) return;
  // Other protocols are recognized by their first bytes, not by a deadline.
  if (stage_ == Stage::opening && have_ >= 4 && load_le<std::uint32_t>(&transcript_[in_begin_]) != kOpeningMagic)
    return fail_other_protocol(transcript_[in_begin_]);
  if (!space().empty()) return;
  switch (stage_) {
    case Stage::opening: return on_opening();
    case Stage::claim: return on_claim();
    case Stage::reply: return on_reply();
    case Stage::verdict: return on_verdict();
    case Stage::done:
    case Stage::failed: return;
  }
}

void Handshake::fail_other_protocol(std::byte first) {
  if (!Tls::looks_like(first)) return fail("speaks another protocol: its first bytes are no cohort handshake");
  if (side_ == Side::listener) write_opening(kOpening2);  // tells it that this is cohort without TLS
  fail("speaks TLS and this process does not: give --tls (COHORT_TLS=true) to every process of the job, or to none");
}

void Handshake::write_opening(std::size_t at) {
  if (!nonce_) nonce_ = side_ == Side::dialer ? nonce_with_proof(secret_) : random_nonce();
  store_le<std::uint32_t>(&transcript_[at], kOpeningMagic);
  store_le<std::uint16_t>(&transcript_[at + 4], kProtocolVersion);
  store_le<std::uint16_t>(&transcript_[at + 6], 0);
  std::copy(nonce_->begin(), nonce_->end(), &transcript_[at + 8]);
  emit(at, at + kOpening);
}

bool Handshake::read_opening(std::size_t at) {
  const auto theirs = load_le<std::uint16_t>(&transcript_[at + 4]);
  if (theirs != kProtocolVersion) {
    fail(fmt::format("speaks protocol version {}, this process speaks {}: run the same cohort everywhere", theirs, kProtocolVersion));
    return false;
  }
  if (nonce_ && std::equal(nonce_->begin(), nonce_->end(), &transcript_[at + 8])) {
    fail("sent our own nonce back: a reflection, not a peer");
    return false;
  }
  return true;
}

void Handshake::on_opening() {
  const bool dialer = side_ == Side::dialer;
  const bool ok = read_opening(dialer ? kOpening2 : kOpening1);
  if (!dialer) {
    proof_seen_ = ok && has_proof(peer_nonce(), secret_);
    write_opening(kOpening2);  // also to another version, which can then name both, and to a wrong secret, whose owner can then report it
    return proof_seen_ ? expect(Stage::claim, kClaimAt, kReplyAt) : fail(std::string(kUnauthenticated));
  }
  if (!ok) return;
  dialer_proof_ = derive("dialer proof", kClaimAt);
  listener_proof_ = derive("listener proof", kClaimAt);
  write_hello(kClaimAt);
  write_proof(kReplyAt, dialer_proof_);
  emit(kClaimAt, kReplyAt);
  expect(Stage::reply, kReplyAt, kVerdictAt);
}

// Keys are derived when they are needed: an unauthenticated peer that sends little costs little.
void Handshake::on_claim() {
  dialer_proof_ = derive("dialer proof", kClaimAt);
  if (!proved(kReplyAt, dialer_proof_) || !read_hello(kClaimAt)) return;
  listener_proof_ = derive("listener proof", kClaimAt);
  const std::string refusal = refusal_of_peer();
  write_hello(kReplyAt);
  write_verdict(kReplyAt + kHelloBytes, refusal);
  write_proof(kVerdictAt, listener_proof_);
  emit(kReplyAt, kVerdictAt);
  if (!refusal.empty()) return fail(refusal);
  expect(Stage::verdict, kVerdictAt, kTotal);
}

void Handshake::on_reply() {
  if (!proved(kVerdictAt, listener_proof_) || !read_hello(kReplyAt) || !read_verdict(kReplyAt + kHelloBytes)) return;
  const std::string refusal = refusal_of_peer();
  write_verdict(kVerdictAt, refusal);
  write_proof(kTotal, dialer_proof_);
  emit(kVerdictAt, kTotal);
  if (!refusal.empty()) return fail(refusal);
  expect(Stage::done, 0, 0);
}

void Handshake::on_verdict() {
  if (proved(kTotal, dialer_proof_) && read_verdict(kVerdictAt)) expect(Stage::done, 0, 0);
}

void Handshake::write_hello(std::size_t at) {
  transcript_[at] = static_cast<std::byte>(mine_.role);
  transcript_[at + 1] = static_cast<std::byte>(mine_.job.size());
  transcript_[at + 2] = static_cast<std::byte>(mine_.stream);
  transcript_[at + 3] = static_cast<std::byte>(mine_.streams - 1);
  store_le<std::uint32_t>(&transcript_[at + 4], static_cast<std::uint32_t>(mine_.rank.value));
  store_le<std::uint32_t>(&transcript_[at + 8], mine_.epoch.value);
  store_le<std::uint32_t>(&transcript_[at + 12], 0);
  std::memcpy(&transcript_[at + 16], mine_.job.data(), mine_.job.size());
}

bool Handshake::read_hello(std::size_t at) {
  const auto role = static_cast<std::uint8_t>(transcript_[at]);
  const auto length = static_cast<std::size_t>(transcript_[at + 1]);
  if (role > static_cast<std::uint8_t>(Role::worker) || length > kJobBytes) {
    fail("knows the secret but sent impossible values in its claim");
    return false;
  }
  peer_.role = static_cast<Role>(role);
  peer_.stream = static_cast<int>(transcript_[at + 2]);
  peer_.streams = static_cast<int>(transcript_[at + 3]) + 1;
  peer_.rank = Rank{static_cast<std::int32_t>(load_le<std::uint32_t>(&transcript_[at + 4]))};
  peer_.epoch = Epoch{load_le<std::uint32_t>(&transcript_[at + 8])};
  peer_.job.assign(reinterpret_cast<const char*>(&transcript_[at + 16]), length);
  if (peer_.rank < kNoRank || !printable(peer_.job) || peer_.streams > kMostStreams || peer_.stream >= peer_.streams) {
    fail("knows the secret but sent impossible values in its claim");
    return false;
  }
  return true;
}

void Handshake::write_verdict(std::size_t at, const std::string& refusal) {
  const std::size_t length = std::min(refusal.size(), kVerdictText);
  store_le<std::uint16_t>(&transcript_[at], refusal.empty() ? kWelcome : kRefused);
  store_le<std::uint16_t>(&transcript_[at + 2], static_cast<std::uint16_t>(length));
  std::memcpy(&transcript_[at + 4], refusal.data(), length);
}

bool Handshake::read_verdict(std::size_t at) {
  const std::size_t length = std::min<std::size_t>(load_le<std::uint16_t>(&transcript_[at + 2]), kVerdictText);
  if (load_le<std::uint16_t>(&transcript_[at]) == kWelcome) return true;
  std::string text(reinterpret_cast<const char*>(&transcript_[at + 4]), length);
  fail("refused us: " + (printable(text) ? text : "with an unprintable reason"));
  return false;
}

void Handshake::write_proof(std::size_t end, const Key& key) {
  const Digest proof = hmac(key.bytes(), {ConstBytes(transcript_).first(end - kDigestBytes)});
  std::copy(proof.begin(), proof.end(), &transcript_[end - kDigestBytes]);
}

bool Handshake::proved(std::size_t end, const Key& key) {
  const Digest proof = hmac(key.bytes(), {ConstBytes(transcript_).first(end - kDigestBytes)});
  if (same_digest(proof, ConstBytes(transcript_).subspan(end - kDigestBytes, kDigestBytes))) return true;
  fail(std::string(kUnauthenticated));
  return false;
}

std::string Handshake::refusal_of_peer() const {
  if (peer_.job != mine_.job || peer_.epoch != mine_.epoch) {
    const std::string_view what = peer_.job != mine_.job ? "two jobs" : "a stale membership epoch";
    return fmt::format("{} connected with {}: {}", describe(mine_), describe(peer_), what);
  }
  const std::string reason = admit_ ? admit_(peer_) : std::string();
  return reason.empty() ? reason : fmt::format("{} connected with {}: {}", describe(mine_), describe(peer_), reason);
}

Key Handshake::derive(std::string_view purpose, std::size_t transcript) const {
  const std::string label = fmt::format("cohort {} {}", kProtocolVersion, purpose);
  Key key;
  hkdf(ConstBytes(transcript_).first(transcript), secret_.bytes(), as_bytes(label), key.bytes());
  return key;
}

Key Handshake::outgoing() const { return derive(side_ == Side::dialer ? "dialer frames" : "listener frames", kTotal); }
Key Handshake::incoming() const { return derive(side_ == Side::dialer ? "listener frames" : "dialer frames", kTotal); }

}  // namespace cohort::net
