#include "cohort/checkpoint/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "cohort/base/error.h"

namespace cohort::checkpoint {
namespace {

void check(int result, const char* what) {
  if (result != 1) throw_failure(Kind::system, "sha256: OpenSSL refused {}; is its default provider loaded?", what);
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  check(context_ ? EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) : 0, "to start");
}

void Sha256::add(ConstBytes bytes) { check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()), "bytes"); }

std::string Sha256::hex() {
  std::array<unsigned char, 32> digest{};
  check(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr), "to finish");
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

std::string sha256_hex(ConstBytes bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.hex();
}

bool is_sha256_hex(std::string_view text) { return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos; }

}  // namespace cohort::checkpoint
