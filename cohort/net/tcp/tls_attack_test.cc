// What somebody on the path between two processes can do to the beginning of a TLS connection without the job's secret.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <future>

#include "cohort/base/slowdown.h"
#include "cohort/net/auth/acceptor.h"
#include "cohort/net/auth/control_connection.h"
#include "cohort/net/auth/testing.h"
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
