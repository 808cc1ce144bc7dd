// One connection under TLS 1.3, keyed by the job's secret: no certificates, no names, nothing to configure (docs/adr/0011-tls.md).
// The key is pre-shared (derived from the secret), the exchange is ephemeral (psk_dhe_ke, X25519), the cipher TLS_AES_128_GCM_SHA256.
// What write() takes it encrypts at once, so the memory is the caller's again; what the socket did not take stays here until flush().
// A record ends where a write ends, and nothing is read ahead: between two frames no byte is in here, and poll(2) on the socket tells all.
// Owner: Greeting, then Wire. Threads: any, one mutex. Failure: an IoResult; problem EBADMSG means that the bytes were none of the peer's.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/net/secret.h"
#include "cohort/net/socket.h"

struct ssl_st;

namespace cohort::net {

class Tls {
 public:
  enum class Side : unsigned char { dialer, listener };
  Tls(int fd, Side side, const Secret& secret);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  IoResult shake();  // moved: both sides hold the key. later: wait for bytes (and for room while unsent()). closed: see why()
  IoResult read(std::span<const iovec> into);
  IoResult write(std::span<const iovec> parts);
  IoResult flush();                                                        // moved: nothing is left
  bool unsent() const { return unsent_.load(std::memory_order_acquire); }  // flush() has something to do
  bool holds() const { return holds_.load(std::memory_order_acquire); }    // read() finds bytes that poll(2) does not see
  bool met_other_protocol() const;                                         // what came was no TLS at all
  std::string why() const;                                                 // TLS's own words about its failure

  // What a plain listener or dialer is told by one that demands TLS: a record that says "no such protocol version".
  static ConstBytes refusal();
  static bool looks_like(std::byte first);  // a connection that begins with it begins with a TLS record

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
  int send_problem_ = 0;  // errno of a broken connection, met while a record was sent
  std::string why_;
  bool other_protocol_ = false;
  std::atomic<bool> unsent_{false}, holds_{false};
};

}  // namespace cohort::net
