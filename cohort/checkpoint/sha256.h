// SHA-256 of a stream of bytes, by OpenSSL (which uses the processor's instructions where it has them).
// Owner: values, movable. Threads: one at a time. Failure: Kind::system when OpenSSL refuses.
#pragma once
#include <memory>
#include <string>

#include "cohort/base/bytes.h"

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace cohort::checkpoint {

class Sha256 {
 public:
  Sha256();
  void add(ConstBytes bytes);
  std::string hex();  // 64 digits; once, nothing can be added afterwards

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

std::string sha256_hex(ConstBytes bytes);
bool is_sha256_hex(std::string_view text);  // 64 lower-case digits

}  // namespace cohort::checkpoint
