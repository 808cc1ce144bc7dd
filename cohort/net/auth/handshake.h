// The first bytes on every connection: both sides prove that they hold the job's secret, exchange their identities and agree.
//
//   dialer                                     listener
//   opening  magic, version, nonce      ->
//                                       <-     opening   magic, version, nonce
//   claim    job, epoch, rank, role, proof ->
//                                       <-     reply     job, epoch, rank, role, verdict, proof
//   verdict  verdict, proof             ->
//
// proof = HMAC-SHA256(HKDF(secret, openings, side), every byte so far): it can be neither replayed (fresh nonces) nor reflected (a key
// per side). Versions are compared in the clear, so that a mismatch is reported as one. A verdict, and with it any text, goes to an
// authenticated peer only; the connection of another one is just closed. A pure state machine of fixed size (all messages lie in one array
// of 848 bytes): no socket, no clock, and no allocation that depends on the peer before it has authenticated. Owner: HandshakeSession.
// Threads: one at a time. Failure: failure(), never a throw from advance().
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "cohort/base/error.h"
#include "cohort/base/ids.h"
#include "cohort/net/crypto/crypto.h"
#include "cohort/net/crypto/secret.h"

namespace cohort::net {

inline constexpr std::uint16_t kProtocolVersion = 1;

inline constexpr int kMostStreams = 16;

enum class Role : std::uint8_t { coordinator, worker };

// A peer's identity: compared and authenticated in the handshake before anything else is read.
struct Hello {
  std::string job;  // at most 64 bytes of printable ASCII
  Epoch epoch;
  Rank rank;  // kNoRank for the coordinator
  Role role = Role::worker;
  int stream = 0;   // index of this socket among those between the two ranks ..
  int streams = 1;  // .. and their number; at most kMostStreams
};
std::string describe(const Hello& hello);  // "job 'a', membership epoch 3, rank 2 (worker)"

// Asked about an authenticated peer of our job and epoch. Empty: accepted; else the reason, which is sent to the peer.
using Admit = std::function<std::string(const Hello& peer)>;

bool is_opening_byte(std::byte first);  // the first byte of an opening

using Nonce = std::array<std::byte, 32>;
Nonce random_nonce();
// 16 random bytes, and 16 of their HMAC under the secret. No authentication, since an eavesdropper can replay it; but a listener refuses a
// nonce without it, so that an unauthenticated peer costs one HMAC, and the Acceptor knows whom to serve first.
Nonce nonce_with_proof(const Secret& secret);
bool has_proof(ConstBytes nonce, const Secret& secret);

class Handshake {
 public:
  enum class Side : std::uint8_t { dialer, listener };
  static constexpr std::size_t kOpening = 40, kClaim = 112, kReply = 368, kVerdict = 288;
  static constexpr std::size_t kTotal = 2 * kOpening + kClaim + kReply + kVerdict;
  // Kind::usage for an empty secret or a Hello that cannot be encoded. nonce: for tests; else it is made when it is needed, a dialer's with
  // a proof.
  Handshake(Side side, const Secret& secret, Hello mine, Admit admit = {}, const std::optional<Nonce>& nonce = {});

  Bytes space();                      // where the next bytes of the peer belong; empty when none are expected
  void advance(std::size_t arrived);  // that many were put there
  ConstBytes to_send() const;         // send these before looking at done() and failure()
  void sent(std::size_t bytes);
  bool done() const { return stage_ == Stage::done; }
  const std::optional<Error>& failure() const { return failure_; }  // includes a refusal by us
  bool is_listener() const { return side_ == Side::listener; }
  const Secret& secret() const { return secret_; }
  bool received_any() const { return have_ > 0 || stage_ > Stage::opening; }  // at least one byte of the peer
  bool proof_seen() const { return proof_seen_; }                             // a listener: the peer's nonce carried a proof
  ConstBytes peer_nonce() const;                                              // a listener: once proof_seen()

  const Hello& peer() const { return peer_; }  // once done()
  Key outgoing() const;                        // keys for the frames that follow, one per direction
  Key incoming() const;

 private:
  enum class Stage : std::uint8_t { opening, claim, reply, verdict, done, failed };  // what we expect from the peer
  void expect(Stage stage, std::size_t begin, std::size_t end);
  void emit(std::size_t begin, std::size_t end);
  void fail(std::string what);

  void fail_other_protocol(std::byte first);
  void write_opening(std::size_t at);
  bool read_opening(std::size_t at);
  void write_hello(std::size_t at);
  bool read_hello(std::size_t at);
  void write_verdict(std::size_t at, const std::string& refusal);
  bool read_verdict(std::size_t at);
  void write_proof(std::size_t end, const Key& key);
  bool proved(std::size_t end, const Key& key);
  std::string refusal_of_peer() const;  // empty: accepted
  Key derive(std::string_view purpose, std::size_t transcript) const;

  void on_opening();
  void on_claim();
  void on_reply();
  void on_verdict();

  const Side side_;
  const Secret secret_;
  const Hello mine_;
  const Admit admit_;
  std::optional<Nonce> nonce_;
  Stage stage_ = Stage::opening;
  bool proof_seen_ = false;
  Hello peer_;
  std::optional<Error> failure_;
  Key dialer_proof_, listener_proof_;
  std::array<std::byte, kTotal> transcript_{};  // every byte of the conversation, in order
  std::size_t in_begin_ = 0, in_end_ = 0, have_ = 0;
  std::size_t out_begin_ = 0, out_end_ = 0;
};

}  // namespace cohort::net
