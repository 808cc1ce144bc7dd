// What somebody on the path between two processes can do to the beginning of a TLS connection without the job's secret.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <future>

#include "cohort/base/slowdown.h"
#include "cohort/net/auth/acceptor.h"
#include "cohort/net/auth/control_connection.h"
#include "cohort/net/auth/testing.h"
#include "cohort/net/crypto/crypto.h"
#include "cohort/net/socket/tls.h"

namespace cohort::net {
namespace {

struct Ends {
  Ends() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    here = Fd(ends[0]);
    there = Fd(ends[1]);
  }
  Fd here, there;
};

// Everything that is there, without waiting.
std::vector<std::byte> take(const Fd& fd) {
  std::vector<std::byte> bytes(64_KiB);
  const ssize_t n = recv(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return bytes;
}

void give(const Fd& fd, ConstBytes bytes) {
  if (!bytes.empty()) {
    EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
}

using SslContext = std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)>;

// A TLS 1.3 server as anybody can set one up: a certificate that it signed itself, and no pre-shared key.
SslContext server_with_a_certificate() {
  SslContext context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, void (*)(X509*)> certificate(X509_new(), X509_free);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  EXPECT_EQ(SSL_CTX_use_certificate(context.get(), certificate.get()), 1);
  EXPECT_EQ(SSL_CTX_use_PrivateKey(context.get(), key.get()), 1);
  return context;
}

TEST(TlsAttack, AServerWithACertificateInsteadOfTheKeyIsRefusedBeforeAnythingIsSaid) {
  const Ends ends;
  Tls dialer(ends.here.get(), Tls::Side::dialer, Secret::random().use_tls(true));
  const SslContext context = server_with_a_certificate();
  const std::unique_ptr<SSL, void (*)(SSL*)> server(SSL_new(context.get()), SSL_free);
  SSL_set_fd(server.get(), ends.there.get());
  IoResult r{IoState::later};
  for (int turn = 0; turn < 10 && r.state == IoState::later; ++turn) {
    r = dialer.handshake();
    SSL_accept(server.get());
  }
  EXPECT_EQ(r.state, IoState::closed) << "the dialer would tell its claim to whoever has a certificate";
  EXPECT_EQ(r.problem, EBADMSG);
  EXPECT_FALSE(SSL_is_init_finished(server.get()));
}

TEST(TlsAttack, ADialersOwnBytesComeBackToNoEffect) {
  const Ends ends;
  Tls dialer(ends.here.get(), Tls::Side::dialer, Secret::random().use_tls(true));
  IoResult r = dialer.handshake();
  EXPECT_EQ(r.state, IoState::later);
  give(ends.there, take(ends.there));
  r = dialer.handshake();
  EXPECT_EQ(r.state, IoState::closed);
  EXPECT_EQ(r.problem, EBADMSG);
}

// The key of the job's connections, for attackers that have it: what they offer is refused for its own sake.
Key pre_shared_key(const Secret& secret) {
  Key key;
  hkdf(as_bytes("cohort 1"), secret.bytes(), as_bytes("tls pre-shared key"), key.bytes());
  return key;
}

// What a peer of TLS 1.2 calls its key; OpenSSL also offers it to TLS 1.3 with this identity.
Key offered;
unsigned int client_key(SSL*, const char*, char* identity, unsigned int size, unsigned char* key, unsigned int most) {
  std::snprintf(identity, size, "cohort 1");
  const ConstBytes bytes = offered.bytes();
  return bytes.size() <= most ? (std::memcpy(key, bytes.data(), bytes.size()), static_cast<unsigned int>(bytes.size())) : 0;
}
unsigned int server_key(SSL* ssl, const char*, unsigned char* key, unsigned int most) {
  std::array<char, 16> ignored{};
  return client_key(ssl, nullptr, ignored.data(), ignored.size(), key, most);
}

// A peer that has the key and offers what `limit` leaves of OpenSSL's choices.
SslContext peer_with_the_key(const Secret& secret, const std::function<void(SSL_CTX*)>& limit) {
  offered = pre_shared_key(secret);
  SslContext context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  SSL_CTX_set_psk_client_callback(context.get(), client_key);
  SSL_CTX_set_psk_server_callback(context.get(), server_key);
  SSL_CTX_set_security_level(context.get(), 0);
  limit(context.get());
  return context;
}

// Whether a Tls of this side agrees with such a peer.
bool agrees(Tls::Side side, const std::function<void(SSL_CTX*)>& limit) {
  const Ends ends;
  const Secret secret = Secret::random().use_tls(true);
  Tls ours(ends.here.get(), side, secret);
  const SslContext context = peer_with_the_key(secret, limit);
  const std::unique_ptr<SSL, void (*)(SSL*)> peer(SSL_new(context.get()), SSL_free);
  SSL_set_fd(peer.get(), ends.there.get());
  side == Tls::Side::dialer ? SSL_set_accept_state(peer.get()) : SSL_set_connect_state(peer.get());
  IoResult r{IoState::later};
  for (int turn = 0; turn < 10 && r.state == IoState::later; ++turn) {
    SSL_do_handshake(peer.get());
    r = ours.handshake();
    SSL_do_handshake(peer.get());
  }
  EXPECT_NE(r.state, IoState::later);
  EXPECT_EQ(r.state == IoState::moved, SSL_is_init_finished(peer.get()) == 1);
  return r.state == IoState::moved;
}

TEST(TlsAttack, OlderVersionsAndWeakerSuitesAreRefusedEvenOfAPeerThatHasTheKey) {
  const auto only = [](const char* suites, const char* groups = "X25519") {
    return [=](SSL_CTX* c) {
      EXPECT_EQ(SSL_CTX_set_ciphersuites(c, suites), 1);
      EXPECT_EQ(SSL_CTX_set1_groups_list(c, groups), 1);
    };
  };
  const auto version = [](int most) { return [=](SSL_CTX* c) { EXPECT_EQ(SSL_CTX_set_max_proto_version(c, most), 1); }; };
  for (const auto side : {Tls::Side::dialer, Tls::Side::listener}) {
    SCOPED_TRACE(side == Tls::Side::dialer ? "to a dialer" : "to a listener");
    EXPECT_TRUE(agrees(side, only("TLS_AES_128_GCM_SHA256"))) << "the peer has the key: what follows is refused for what it offers";
    for (const int old : {TLS1_VERSION, TLS1_1_VERSION, TLS1_2_VERSION}) EXPECT_FALSE(agrees(side, version(old))) << old;
    for (const char* weak : {"TLS_AES_128_CCM_8_SHA256", "TLS_AES_128_CCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"})
      EXPECT_FALSE(agrees(side, only(weak))) << weak;
    EXPECT_FALSE(agrees(side, only("TLS_AES_128_GCM_SHA256", "P-256"))) << "another group";
  }
}

// Both sides of a handshake with somebody between them who changes one byte of what one of them says first. How many of them
// take it for agreed.
int agreed_after_a_change(Tls::Side changed, std::size_t at, unsigned flip) {
  const Secret secret = Secret::random().use_tls(true);
  const Ends left, right;
  Tls dialer(left.here.get(), Tls::Side::dialer, secret), listener(right.here.get(), Tls::Side::listener, secret);
  IoResult a{IoState::later}, b{IoState::later};
  bool first = true;
  for (int turn = 0; turn < 10 && (a.state == IoState::later || b.state == IoState::later); ++turn) {
    if (a.state == IoState::later) a = dialer.handshake();
    auto from_dialer = take(left.there);
    if (first && changed == Tls::Side::dialer && at < from_dialer.size()) from_dialer[at] ^= static_cast<std::byte>(flip);
    give(right.there, from_dialer);
    if (b.state == IoState::later) b = listener.handshake();
    auto from_listener = take(right.there);
    if (first && changed == Tls::Side::listener && at < from_listener.size()) from_listener[at] ^= static_cast<std::byte>(flip);
    give(left.there, from_listener);
    first = false;
  }
  return (a.state == IoState::moved ? 1 : 0) + (b.state == IoState::moved ? 1 : 0);
}

// Of the first record, with its header.
std::size_t first_message_bytes(Tls::Side side) {
  const Secret secret = Secret::random().use_tls(true);
  const Ends ends;
  Tls dialer(ends.here.get(), Tls::Side::dialer, secret), listener(ends.there.get(), Tls::Side::listener, secret);
  dialer.handshake();
  if (side == Tls::Side::listener) listener.handshake();
  const auto said = take(side == Tls::Side::dialer ? ends.there : ends.here);
  return 5 + (std::to_integer<std::size_t>(said.at(3)) << 8 | std::to_integer<std::size_t>(said.at(4)));
}

TEST(TlsAttack, NoChangedByteOfEitherFirstMessageLeadsToAnAgreement) {
  constexpr std::size_t kRecordHeader = 5;  // its version is nobody's to check (RFC 8446, 5.1)
  EXPECT_EQ(agreed_after_a_change(Tls::Side::dialer, 0, 0), 2) << "without a change they agree";
  for (const auto side : {Tls::Side::dialer, Tls::Side::listener})
    for (std::size_t at = kRecordHeader, end = first_message_bytes(side); at < end; ++at)
      for (const unsigned flip : {1U, 0x80U}) ASSERT_EQ(agreed_after_a_change(side, at, flip), 0) << "byte " << at;
}

// A connection through somebody who writes down what the dialer says, as far as its last byte.
std::vector<std::byte> recorded(const Listener& listener, const Secret& secret) {
  const Listener tap = listen_on({"127.0.0.1", 0}, secret);
  auto dialer = std::async(std::launch::async, [&] {
    ControlConnection::connect(tap.address, secret, test_hello(1), soon()).send(9, as_bytes("a frame of the job"), soon());
  });
  auto served = std::async(std::launch::async, [&] {
    auto end = ControlConnection::accept(accept_one(listener, soon()), secret, test_hello(0), soon());
    EXPECT_EQ(end.recv(soon()).body.size(), 18U);
  });
  const Fd from = accept_one(tap, soon()), to = raw_connection(listener.address);
  std::vector<std::byte> all;
  while (served.wait_for(0s) != std::future_status::ready) {
    const auto said = take(from);
    all.insert(all.end(), said.begin(), said.end());
    give(to, said);
    give(from, take(to));
  }
  dialer.get();
  served.get();
  return all;
}

TEST(TlsAttack, ARecordedConnectionOpensNeitherItsOwnListenerNorAnother) {
  for (const bool tls : {true, false}) {
    const Secret secret = Secret::random().use_tls(tls);
    const Listener own = listen_on({"127.0.0.1", 0}, secret), other = listen_on({"127.0.0.1", 0}, secret);
    const auto bytes = recorded(own, secret);
    ASSERT_GT(bytes.size(), Handshake::kOpening + Handshake::kClaim);
    for (const Listener* listener : {&own, &other}) {
      Acceptor acceptor(*listener, secret, test_hello(0));
      const Fd attacker = raw_connection(listener->address);
      give(attacker, bytes);
      while (acceptor.counts().refused == 0) ASSERT_FALSE(acceptor.next(Deadline::in(10ms))) << (tls ? "TLS" : "plain");
    }
  }
}

}  // namespace
}  // namespace cohort::net
