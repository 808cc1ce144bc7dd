#include "cohort/net/crypto/crypto.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <sys/random.h>

#include <memory>

#include "cohort/base/error.h"

namespace cohort::net {
namespace {

void need(bool ok, std::string_view what) {
  if (!ok) throw_failure(Kind::system, "OpenSSL refused {}: is its default provider disabled on this machine?", what);
}

unsigned char* raw(Bytes b) { return reinterpret_cast<unsigned char*>(b.data()); }
const unsigned char* raw(ConstBytes b) { return reinterpret_cast<const unsigned char*>(b.data()); }
OSSL_PARAM octets(const char* name, ConstBytes b) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<std::byte*>(b.data()), b.size());  // OpenSSL only reads it
}

char kSha256[] = "SHA256";

}  // namespace

Key::~Key() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

Digest hmac(ConstBytes key, std::initializer_list<ConstBytes> parts) {
  static EVP_MAC* const algorithm = EVP_MAC_fetch(nullptr, "HMAC", nullptr);  // fetched once: a fetch costs more than the HMAC
  need(algorithm != nullptr, "HMAC");
  const std::unique_ptr<EVP_MAC_CTX, decltype(&EVP_MAC_CTX_free)> context(EVP_MAC_CTX_new(algorithm), EVP_MAC_CTX_free);
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, kSha256, 0), OSSL_PARAM_construct_end()};
  need(context && EVP_MAC_init(context.get(), raw(key), key.size(), params) == 1, "HMAC-SHA256");
  for (const ConstBytes part : parts) need(EVP_MAC_update(context.get(), raw(part), part.size()) == 1, "HMAC-SHA256");
  Digest out;
  std::size_t size = 0;
  need(EVP_MAC_final(context.get(), raw(Bytes(out)), &size, out.size()) == 1 && size == out.size(), "HMAC-SHA256");
  return out;
}

void hkdf(ConstBytes salt, ConstBytes secret, ConstBytes info, Bytes out) {
  static EVP_KDF* const algorithm = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  need(algorithm != nullptr, "HKDF");
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> context(EVP_KDF_CTX_new(algorithm), EVP_KDF_CTX_free);
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, kSha256, 0), octets(OSSL_KDF_PARAM_KEY, secret),
                               octets(OSSL_KDF_PARAM_SALT, salt), octets(OSSL_KDF_PARAM_INFO, info), OSSL_PARAM_construct_end()};
  need(context && EVP_KDF_derive(context.get(), raw(out), out.size(), params) == 1, "HKDF-SHA256");
}

bool same_digest(ConstBytes a, ConstBytes b) { return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

void random_bytes(Bytes out) {
  if (getrandom(out.data(), out.size(), 0) != static_cast<ssize_t>(out.size())) throw_system("getrandom");
}

}  // namespace cohort::net
