#include "cohort/net/socket/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "cohort/base/error.h"
#include "cohort/net/crypto/crypto.h"

namespace cohort::net {
namespace {

constexpr std::size_t kRecord = SSL3_RT_MAX_PLAIN_LENGTH;   // 16 KiB: what TLS encrypts at a time
constexpr std::size_t kSendBytes = 128_KiB;                 // encrypted before they are sent: fewer and larger sends, still in the cache
constexpr std::size_t kRenewAfter = std::size_t{64} << 30;  // bytes under one key: well below the limit of AES-GCM (2^24.5 records)
constexpr std::string_view kIdentity = "cohort 1";          // PSK identity: there is one key
constexpr unsigned char kCipher[] = {0x13, 0x01};           // TLS_AES_128_GCM_SHA256

void need(bool ok, std::string_view what) {
  if (!ok) throw_failure(Kind::system, "OpenSSL refused {}: TLS 1.3 is not available on this machine", what);
}

// The pre-shared key of a connection, where the callbacks below find it.
struct Psk {
  Key key;
};
void free_psk(void*, void* psk, CRYPTO_EX_DATA*, int, long, void*) { delete static_cast<Psk*>(psk); }
int psk_index() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, free_psk);
  return index;
}

SSL_SESSION* session_of(SSL* ssl) {
  const auto* psk = static_cast<const Psk*>(SSL_get_ex_data(ssl, psk_index()));
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kCipher);
  SSL_SESSION* session = SSL_SESSION_new();
  const ConstBytes key = psk->key.bytes();
  if (session != nullptr && cipher != nullptr &&
      SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()), key.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
    return session;
  SSL_SESSION_free(session);
  return nullptr;
}

int offer_psk(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* length, SSL_SESSION** session) {
  *id = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *length = kIdentity.size();
  *session = session_of(ssl);
  return *session != nullptr ? 1 : 0;
}

int find_psk(SSL* ssl, const unsigned char* id, std::size_t length, SSL_SESSION** session) {
  const std::string_view asked(reinterpret_cast<const char*>(id), length);
  *session = asked == kIdentity ? session_of(ssl) : nullptr;
  return 1;  // none: the handshake fails, there being no certificate either
}

int refuse_certificate(int, X509_STORE_CTX*) { return 0; }

SSL_CTX* make_context() {
  SSL_CTX* context = SSL_CTX_new(TLS_method());
  need(context != nullptr, "a TLS context");
  need(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 && SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1,
       "TLS 1.3");
  need(SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1 && SSL_CTX_set1_groups_list(context, "X25519") == 1,
       "AES-GCM, X25519");
  // A clean end is announced by our own goodbye frame; without one the peer has died, whatever TLS makes of the end of stream.
  SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_read_ahead(context, 0);
  SSL_CTX_set_psk_use_session_callback(context, offer_psk);
  SSL_CTX_set_psk_find_session_callback(context, find_psk);
  return context;
}

}  // namespace

// What OpenSSL writes to: records are gathered in out_ and sent several at once.
struct TlsOutput {
  static int write(BIO* bio, const char* data, std::size_t size, std::size_t* written) {
    static_cast<Tls*>(BIO_get_data(bio))->keep_record({reinterpret_cast<const std::byte*>(data), size});
    *written = size;
    return 1;
  }
  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }
  static BIO* make(Tls* tls) {
    static BIO_METHOD* const method = [] {
      BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "cohort");
      need(m != nullptr && BIO_meth_set_write_ex(m, write) == 1 && BIO_meth_set_ctrl(m, control) == 1, "an output");
      return m;
    }();
    BIO* bio = BIO_new(method);
    need(bio != nullptr, "an output");
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    return bio;
  }
};

Tls::Tls(int fd, Side side, const Secret& secret) : fd_(fd), session_(nullptr, SSL_free) {
  static SSL_CTX* const context = make_context();
  session_.reset(SSL_new(context));
  need(session_ != nullptr, "a TLS session");
  auto psk = std::make_unique<Psk>();
  hkdf(as_bytes("cohort 1"), secret.bytes(), as_bytes("tls pre-shared key"), psk->key.bytes());
  need(SSL_set_ex_data(session_.get(), psk_index(), psk.get()) == 1, "a pre-shared key");
  psk.release();  // NOLINT(bugprone-unused-return-value): the session's now
  BIO* in = BIO_new_socket(fd, BIO_NOCLOSE);
  need(in != nullptr, "an input");
  SSL_set_bio(session_.get(), in, TlsOutput::make(this));
  side == Side::dialer ? SSL_set_connect_state(session_.get()) : SSL_set_accept_state(session_.get());
  // The key authenticates both sides. Who listens without it could offer a certificate instead: a dialer takes none.
  if (side == Side::dialer) SSL_set_verify(session_.get(), SSL_VERIFY_PEER, refuse_certificate);
}

Tls::~Tls() = default;

void Tls::keep_record(ConstBytes record) {
  out_.insert(out_.end(), record.begin(), record.end());
  unsent_.store(true, std::memory_order_release);
}

IoResult Tls::flush_locked() {
  if (send_problem_ != 0) return {IoState::closed, 0, send_problem_};
  while (out_sent_ < out_.size()) {
    const iovec part{out_.data() + out_sent_, out_.size() - out_sent_};
    const IoResult r = write_some(fd_, {&part, 1});
    if (r.state == IoState::closed) send_problem_ = r.problem != 0 ? r.problem : EPIPE;
    if (r.state != IoState::moved) return r;
    out_sent_ += r.bytes;
  }
  out_.clear();
  out_sent_ = 0;
  unsent_.store(false, std::memory_order_release);
  return {IoState::moved, 0, 0};
}

IoResult Tls::flush() {
  const std::lock_guard lock(mutex_);
  return flush_locked();
}

// The result of a call of OpenSSL.
IoResult Tls::outcome(int ok, std::size_t bytes) {
  const int problem = errno;
  if (ok == 1) return {IoState::moved, bytes, 0};
  switch (SSL_get_error(session_.get(), ok)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return {IoState::later, 0, 0};
    case SSL_ERROR_ZERO_RETURN: return {IoState::closed, 0, 0};
    case SSL_ERROR_SYSCALL: return {IoState::closed, 0, problem};
    default: break;
  }
  other_protocol_ = ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_WRONG_VERSION_NUMBER;
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  why_ = reason != nullptr ? reason : "no reason given";
  return {IoState::closed, 0, EBADMSG};
}

IoResult Tls::handshake() {
  const std::lock_guard lock(mutex_);
  ERR_clear_error();
  errno = 0;
  const IoResult r = outcome(SSL_do_handshake(session_.get()), 0);
  const IoResult sent = flush_locked();  // also the alert that tells the peer why we give up
  return r.state == IoState::closed || sent.state == IoState::moved ? r : sent;
}

IoResult Tls::read(std::span<const iovec> into) {
  const std::lock_guard lock(mutex_);
  std::size_t total = 0;
  for (const iovec& part : into) {
    for (std::size_t have = 0; have < part.iov_len;) {
      std::size_t got = 0;
      ERR_clear_error();
      errno = 0;
      const int ok = SSL_read_ex(session_.get(), static_cast<char*>(part.iov_base) + have, part.iov_len - have, &got);
      const IoResult r = outcome(ok, got);
      holds_.store(SSL_has_pending(session_.get()) == 1, std::memory_order_release);
      if (r.state != IoState::moved) return total > 0 ? IoResult{IoState::moved, total, 0} : r;  // the next call reports the end again
      have += got;
      total += got;
    }
  }
  return {total > 0 ? IoState::moved : IoState::later, total, 0};
}

// The receiver follows by itself (TLS 1.3 KeyUpdate).
void Tls::renew_key(std::size_t bytes) {
  since_renewal_ += bytes;
  if (since_renewal_ < kRenewAfter) return;
  since_renewal_ = 0;
  SSL_key_update(session_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
}

bool Tls::encrypt(ConstBytes plain) {
  std::size_t written = 0;
  ERR_clear_error();
  renew_key(plain.size());
  return SSL_write_ex(session_.get(), plain.data(), plain.size(), &written) == 1 && written == plain.size();
}

IoResult Tls::write(std::span<const iovec> parts) {
  const std::lock_guard lock(mutex_);
  if (const IoResult before = flush_locked(); before.state != IoState::moved) return before;
  std::size_t total = 0;
  std::size_t at = 0;  // in the first part
  while (!parts.empty() && out_.size() < kSendBytes) {
    const ConstBytes rest(static_cast<const std::byte*>(parts.front().iov_base) + at, parts.front().iov_len - at);
    ConstBytes record = rest.first(std::min(kRecord, rest.size()));
    at += record.size();
    if (record.size() < kRecord && parts.size() > 1) {  // small parts share a record
      plain_.assign(record.begin(), record.end());
      while (at == parts.front().iov_len && parts.size() > 1 && plain_.size() < kRecord) {
        parts = parts.subspan(1);
        const auto* next = static_cast<const std::byte*>(parts.front().iov_base);
        at = std::min(kRecord - plain_.size(), parts.front().iov_len);
        plain_.insert(plain_.end(), next, next + at);
      }
      record = plain_;
    }
    if (at == parts.front().iov_len) {
      parts = parts.subspan(1);
      at = 0;
    }
    if (record.empty()) continue;
    if (!encrypt(record)) return {IoState::closed, 0, EBADMSG};
    total += record.size();
  }
  if (const IoResult sent = flush_locked(); sent.state == IoState::closed) return sent;
  return {total > 0 ? IoState::moved : IoState::later, total, 0};
}

bool Tls::saw_other_protocol() const {
  const std::lock_guard lock(mutex_);
  return other_protocol_;
}

std::string Tls::why() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

ConstBytes Tls::alert() {
  static constexpr std::array<unsigned char, 7> kAlert{0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x46};  // fatal, protocol_version
  return std::as_bytes(std::span(kAlert));
}

bool Tls::looks_like(std::byte first) { return first == std::byte{0x16} || first == std::byte{0x15}; }  // handshake, alert

}  // namespace cohort::net
