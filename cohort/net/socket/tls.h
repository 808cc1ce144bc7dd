// One connection under TLS 1.3, keyed by the job's secret: no certificates, no names, nothing to configure (docs/adr/0011-tls.md).
// The key is pre-shared (derived from the secret), the exchange is ephemeral (psk_dhe_ke, X25519), the cipher TLS_AES_128_GCM_SHA256.
// write() encrypts at once, so the memory is the caller's again; what the socket did not take is buffered here until flush().
// A record ends where a write ends, and nothing is read ahead: between two frames nothing is buffered, and poll(2) on the socket suffices.
// Owner: HandshakeSession, then ControlConnection. Threads: any, one mutex. Failure: an IoResult; problem EBADMSG means that the bytes did
// not come from the peer.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/net/crypto/secret.h"
#include "cohort/net/socket/socket.h"

struct ssl_st;

namespace cohort::net {

class Tls {
 public:
  enum class Side : unsigned char { dialer, listener };
  Tls(int fd, Side side, const Secret& secret);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  IoResult handshake();  // moved: done. later: wait until readable (and writable while unsent()). closed: see why()
  IoResult read(std::span<const iovec> into);
  IoResult write(std::span<const iovec> parts);
  IoResult flush();                                                        // moved: nothing is left
  bool unsent() const { return unsent_.load(std::memory_order_acquire); }  // flush() has something to do
  bool holds() const { return holds_.load(std::memory_order_acquire); }    // read() has bytes that poll(2) does not report
  bool saw_other_protocol() const;                                         // the peer's bytes were no TLS at all
  std::string why() const;                                                 // OpenSSL's reason for the failure

  // The alert that a listener which requires TLS sends to a plain peer: fatal, protocol_version.
  static ConstBytes alert();
  static bool looks_like(std::byte first);  // the first byte of a TLS handshake or alert record

 private:
  friend struct TlsOutput;
  void keep_record(ConstBytes record);
  IoResult flush_locked();
  IoResult outcome(int ok, std::size_t bytes);
  bool encrypt(ConstBytes plain);
  void renew_key(std::size_t bytes);

  const int fd_;
  mutable std::mutex mutex_;  // guards all below
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> session_;
  std::vector<std::byte> out_;  // encrypted, not yet taken by the socket
  std::size_t out_sent_ = 0;
  std::vector<std::byte> plain_;  // a record made of several small parts
  std::size_t since_renewal_ = 0;
  int send_problem_ = 0;  // errno of a connection that broke while a record was sent
  std::string why_;
  bool other_protocol_ = false;
  std::atomic<bool> unsent_{false}, holds_{false};
};

}  // namespace cohort::net
