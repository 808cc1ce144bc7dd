#include "cohort/net/auth/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <span>

#include "cohort/net/frame/little_endian.h"

namespace cohort::net {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Side = Handshake::Side;

const Secret kSecret = Secret::random();
const Hello kDialer{"train", Epoch{3}, Rank{2}, Role::worker};
const Hello kListener{"train", Epoch{3}, Rank{0}, Role::worker};

std::vector<std::byte> drain(Handshake& from, std::size_t most = ~0UL) {
  const ConstBytes out = from.to_send();
  const std::vector<std::byte> bytes(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(std::min(most, out.size())));
  from.sent(bytes.size());
  return bytes;
}

void give(Handshake& to, ConstBytes bytes) {
  while (!bytes.empty() && !to.space().empty()) {
    const Bytes space = to.space();
    const std::size_t n = std::min(space.size(), bytes.size());
    std::memcpy(space.data(), bytes.data(), n);
    to.advance(n);
    bytes = bytes.subspan(n);
  }
}

// Carries bytes both ways, at most `piece` at a time, until neither side has any.
void exchange(Handshake& a, Handshake& b, std::size_t piece = ~0UL) {
  while (!a.to_send().empty() || !b.to_send().empty()) {
    give(b, drain(a, piece));
    give(a, drain(b, piece));
  }
}

std::string why(const Handshake& h) { return h.failure() ? h.failure()->what : "no failure"; }

TEST(Handshake, ExchangesTheIdentitiesOfBothSides) {
  for (const std::size_t piece : {1UL, 13UL, ~0UL}) {
    Handshake dialer(Side::dialer, kSecret, kDialer), listener(Side::listener, kSecret, kListener);
    exchange(dialer, listener, piece);
    ASSERT_TRUE(dialer.done()) << why(dialer);
    ASSERT_TRUE(listener.done()) << why(listener);
    EXPECT_EQ(describe(dialer.peer()), "job 'train', membership epoch 3, rank 0 (worker)");
    EXPECT_EQ(describe(listener.peer()), "job 'train', membership epoch 3, rank 2 (worker)");
  }
}

TEST(Handshake, GivesEachDirectionItsOwnFreshKey) {
  std::vector<Digest> keys;
  for (int round = 0; round < 2; ++round) {
    Handshake dialer(Side::dialer, kSecret, kDialer), listener(Side::listener, kSecret, kListener);
    exchange(dialer, listener);
    EXPECT_TRUE(same_digest(dialer.outgoing().bytes(), listener.incoming().bytes()));
    EXPECT_TRUE(same_digest(dialer.incoming().bytes(), listener.outgoing().bytes()));
    for (const Key& key : {dialer.outgoing(), dialer.incoming()}) std::ranges::copy(key.bytes(), keys.emplace_back().begin());
  }
  for (std::size_t i = 0; i < keys.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(keys[i], keys[j]);
}

TEST(Handshake, CarriesTheRoleOfTheCoordinator) {
  Handshake dialer(Side::dialer, kSecret, kDialer), listener(Side::listener, kSecret, {"train", Epoch{3}, kNoRank, Role::coordinator});
  exchange(dialer, listener);
  ASSERT_TRUE(dialer.done());
  EXPECT_EQ(dialer.peer().role, Role::coordinator);
  EXPECT_EQ(dialer.peer().rank, kNoRank);
}

TEST(Handshake, RefusesAnotherSecretWithoutAReply) {
  Handshake dialer(Side::dialer, Secret::random(), kDialer), listener(Side::listener, kSecret, kListener);
  exchange(dialer, listener);
  EXPECT_THAT(why(listener), HasSubstr("does not know this job's secret"));
  EXPECT_TRUE(listener.to_send().empty());
  EXPECT_FALSE(dialer.done());
  EXPECT_FALSE(dialer.failure()) << "it received a reason: " << why(dialer);
}

TEST(Handshake, RefusesAListenerThatDoesNotKnowTheSecret) {
  Handshake dialer(Side::dialer, kSecret, kDialer);
  Handshake impostor(Side::listener, Secret::random(), kListener);
  give(impostor, drain(dialer));
  give(dialer, drain(impostor));
  drain(dialer);
  std::vector<std::byte> forged(Handshake::kReply);  // accepts, but without a valid proof
  give(dialer, forged);
  EXPECT_THAT(why(dialer), HasSubstr("does not know this job's secret"));
}

TEST(Handshake, NamesBothVersionsOnBothSides) {
  Handshake dialer(Side::dialer, kSecret, kDialer), listener(Side::listener, kSecret, kListener);
  auto opening = drain(dialer);
  store_le<std::uint16_t>(&opening[4], 9);
  give(listener, opening);
  EXPECT_THAT(why(listener), AllOf(HasSubstr("version 9"), HasSubstr("speaks 1")));
  auto answer = drain(listener);
  ASSERT_EQ(answer.size(), Handshake::kOpening) << "the other version must learn ours";
  store_le<std::uint16_t>(&answer[4], 4);
  give(dialer, answer);
  EXPECT_THAT(why(dialer), AllOf(HasSubstr("version 4"), HasSubstr("speaks 1")));
}

TEST(Handshake, RecognizesOtherProtocolsByTheirFirstBytes) {
  Handshake listener(Side::listener, kSecret, kListener);
  give(listener, as_bytes("GET "));
  EXPECT_THAT(why(listener), HasSubstr("no cohort handshake"));
  EXPECT_TRUE(listener.to_send().empty());
  EXPECT_TRUE(listener.space().empty());
}

TEST(Handshake, NamesBothSidesOfAMismatchToBoth) {
  const struct {
    Hello dialer;
    const char* mark;
  } rows[] = {{{"other", Epoch{3}, Rank{2}, Role::worker}, "two jobs"},
              {{"train", Epoch{2}, Rank{2}, Role::worker}, "a stale membership epoch"}};
  for (const auto& row : rows) {
    Handshake dialer(Side::dialer, kSecret, row.dialer), listener(Side::listener, kSecret, kListener);
    exchange(dialer, listener);
    for (const auto* side : {&dialer, &listener})
      EXPECT_THAT(why(*side), AllOf(HasSubstr(describe(row.dialer)), HasSubstr(describe(kListener)), HasSubstr(row.mark)));
  }
}

TEST(Handshake, LetsEitherSideRefuseAnAuthenticatedPeer) {
  const Admit never = [](const Hello& peer) { return "no place for rank " + std::to_string(peer.rank.value); };
  {
    Handshake dialer(Side::dialer, kSecret, kDialer), listener(Side::listener, kSecret, kListener, never);
    exchange(dialer, listener);
    for (const auto* side : {&dialer, &listener}) EXPECT_THAT(why(*side), HasSubstr("no place for rank 2"));
  }
  Handshake dialer(Side::dialer, kSecret, kDialer, never), listener(Side::listener, kSecret, kListener);
  exchange(dialer, listener);
  for (const auto* side : {&dialer, &listener}) EXPECT_THAT(why(*side), HasSubstr("no place for rank 0"));
  EXPECT_FALSE(listener.done());
}

// The attacker has recorded a whole handshake and replays the dialer's side.
TEST(Handshake, RefusesAReplayedHandshake) {
  Handshake dialer(Side::dialer, kSecret, kDialer), listener(Side::listener, kSecret, kListener);
  std::vector<std::byte> recorded;
  while (!dialer.done() || !dialer.to_send().empty()) {
    const auto sent = drain(dialer);
    recorded.insert(recorded.end(), sent.begin(), sent.end());
    give(listener, sent);
    give(dialer, drain(listener));
  }
  ASSERT_TRUE(listener.done());
  Handshake fresh(Side::listener, kSecret, kListener);
  give(fresh, recorded);
  EXPECT_THAT(why(fresh), HasSubstr("does not know this job's secret"));
}

// The attacker answers a dialer with the dialer's own bytes.
TEST(Handshake, RefusesItsOwnReflection) {
  Handshake dialer(Side::dialer, kSecret, kDialer);
  give(dialer, drain(dialer));
  EXPECT_THAT(why(dialer), HasSubstr("reflection"));
}

// A man in the middle connects to a listener of the same job and forwards the dialer's proof, in the hope that it is valid for the other
// side's nonce.
TEST(Handshake, RefusesAProofOfTheOtherSide) {
  const Nonce nonce = random_nonce();
  Handshake victim(Side::listener, kSecret, kListener, {}, nonce);
  Handshake oracle(Side::listener, kSecret, kListener, {}, random_nonce());
  Handshake dialer(Side::dialer, kSecret, kDialer);
  const auto opening = drain(dialer);
  give(victim, opening);
  give(oracle, opening);
  give(dialer, drain(oracle));  // the dialer proves itself for the oracle's nonce ..
  drain(victim);
  give(victim, drain(dialer));  // .. which is not valid for the victim's
  EXPECT_THAT(why(victim), HasSubstr("does not know this job's secret"));
}

TEST(Handshake, RefusesAnyChangedByte) {
  Handshake sample(Side::dialer, kSecret, kDialer);
  for (std::size_t at = 0; at < Handshake::kTotal; ++at) {
    Handshake dialer(Side::dialer, kSecret, kDialer), listener(Side::listener, kSecret, kListener);
    std::size_t seen = 0;
    const auto tamper = [&](std::vector<std::byte> bytes) {
      if (seen <= at && at < seen + bytes.size()) bytes[at - seen] ^= std::byte{0x40};
      seen += bytes.size();
      return bytes;
    };
    for (int turn = 0; turn < 4; ++turn) {
      give(listener, tamper(drain(dialer)));
      give(dialer, tamper(drain(listener)));
    }
    EXPECT_FALSE(dialer.done() && listener.done()) << "byte " << at;
  }
}

TEST(Handshake, NeverShowsTheSecret) {
  const std::string visible(32, 'S');
  const Secret secret = Secret::from_bytes(as_bytes(visible));
  Handshake dialer(Side::dialer, secret, kDialer), listener(Side::listener, Secret::random(), kListener);
  std::vector<std::byte> all;
  for (int turn = 0; turn < 3; ++turn) {
    for (auto [from, to] : {std::pair{&dialer, &listener}, std::pair{&listener, &dialer}}) {
      const auto sent = drain(*from);
      all.insert(all.end(), sent.begin(), sent.end());
      give(*to, sent);
    }
  }
  EXPECT_EQ(memmem(all.data(), all.size(), "SSSS", 4), nullptr);
  EXPECT_THAT(why(listener), testing::Not(HasSubstr("SSSS")));
}

TEST(Handshake, NeedsASecretAndAShortPrintableName) {
  EXPECT_THROW(Handshake(Side::dialer, Secret(), kDialer), Failure);
  EXPECT_NO_THROW(Handshake(Side::dialer, kSecret, {std::string(64, 'j'), Epoch{}, Rank{0}, Role::worker}));
  EXPECT_THROW(Handshake(Side::dialer, kSecret, {std::string(65, 'j'), Epoch{}, Rank{0}, Role::worker}), Failure);
  EXPECT_THROW(Handshake(Side::dialer, kSecret, {"two\nlines", Epoch{}, Rank{0}, Role::worker}), Failure);
}

TEST(Handshake, SeesTheProofInTheOpeningOfAHolderOfTheSecret) {
  const auto proof_seen = [](const Handshake& dialer) {
    Handshake listener(Side::listener, kSecret, kListener);
    give(listener, dialer.to_send());
    return listener.proof_seen();
  };
  EXPECT_TRUE(proof_seen(Handshake(Side::dialer, kSecret, kDialer)));
  EXPECT_FALSE(proof_seen(Handshake(Side::dialer, Secret::random(), kDialer)));
  EXPECT_FALSE(proof_seen(Handshake(Side::dialer, kSecret, kDialer, {}, random_nonce()))) << "a random nonce carries no proof";
  EXPECT_NE(nonce_with_proof(kSecret), nonce_with_proof(kSecret));
  for (std::size_t at = 0; at < sizeof(Nonce); ++at) {
    Nonce changed = nonce_with_proof(kSecret);
    changed[at] ^= std::byte{1};
    EXPECT_FALSE(has_proof(changed, kSecret)) << at;
  }
}

// As docs/wire.md has it, computed by another program (nonce_with_proof of tests/hostile/handshake.py).
TEST(Handshake, CarriesTheProofAsTheDocumentSays) {
  constexpr std::array<unsigned char, 16> kProof{0x51, 0xed, 0x8b, 0xb0, 0x2f, 0x41, 0x6e, 0xec,
                                                 0x34, 0xf3, 0x31, 0x1f, 0x2c, 0x77, 0xdc, 0xee};
  std::array<unsigned char, Secret::kBytes> key{};
  std::iota(key.begin(), key.end(), 1);
  std::array<unsigned char, sizeof(Nonce)> nonce{};
  std::iota(nonce.begin(), nonce.begin() + 16, 0);
  std::copy(kProof.begin(), kProof.end(), nonce.begin() + 16);
  EXPECT_TRUE(has_proof(std::as_bytes(std::span(nonce)), Secret::from_bytes(std::as_bytes(std::span(key)))));
}

TEST(Handshake, HasAFixedAndSmallSize) { EXPECT_LE(sizeof(Handshake), 2_KiB); }

}  // namespace
}  // namespace cohort::net
