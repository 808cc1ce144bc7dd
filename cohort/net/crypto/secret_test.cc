#include "cohort/net/crypto/secret.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>

#include "cohort/base/error.h"
#include "cohort/base/fd.h"

namespace cohort::net {
namespace {

class SecretFile : public testing::Test {
 protected:
  SecretFile() {
    std::string name = testing::TempDir() + "/cohort-secret-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~SecretFile() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& content, mode_t mode = 0600) {
    const std::string path = folder_ + "/secret";
    std::ofstream(path, std::ios::binary) << content;
    chmod(path.c_str(), mode);
    return path;
  }
  static Error refusal(const std::string& path) {
    try {
      Secret::from_file(path);
    } catch (const Failure& f) {
      return f.error();
    }
    return {Kind::bug, "it was accepted"};
  }
  std::string folder_;
};

bool equal(const Secret& a, const Secret& b) { return std::ranges::equal(a.bytes(), b.bytes()); }

TEST_F(SecretFile, IsThirtyTwoRawBytesOrSixtyFourHexDigits) {
  std::string raw(32, '\0');
  for (int i = 0; i < 32; ++i) raw[static_cast<std::size_t>(i)] = static_cast<char>(i * 7);
  std::string hex;
  for (const char c : raw) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  const Secret expected = Secret::from_bytes(std::as_bytes(std::span(raw)));
  EXPECT_TRUE(equal(Secret::from_file(write(raw)), expected));
  EXPECT_TRUE(equal(Secret::from_file(write(hex)), expected));
  EXPECT_TRUE(equal(Secret::from_file(write(hex + "\n")), expected));
  EXPECT_FALSE(Secret::from_file(write(hex)).empty());
}

TEST_F(SecretFile, OfAnyOtherContentIsRefusedWithoutShowingIt) {
  for (const std::string& content : {std::string(), std::string(31, 'k'), std::string(33, 'k'), std::string(64, 'k'), std::string(65, 'a'),
                                     std::string(66, 'a'), std::string(4096, 'a')}) {
    const Error error = refusal(write(content));
    EXPECT_EQ(error.kind, Kind::usage) << content.size();
    EXPECT_THAT(error.what, testing::Not(testing::HasSubstr("kkk")));
    EXPECT_THAT(error.what, testing::Not(testing::HasSubstr("aaa")));
  }
}

TEST_F(SecretFile, ThatOthersMayOpenIsRefused) {
  for (const mode_t mode : {0640, 0604, 0620, 0666}) {
    const Error error = refusal(write(std::string(32, 'k'), mode));
    EXPECT_EQ(error.kind, Kind::usage);
    EXPECT_THAT(error.what, testing::HasSubstr("chmod 600"));
  }
  EXPECT_NO_THROW(Secret::from_file(write(std::string(32, 'k'), 0400)));
}

TEST_F(SecretFile, OfSomebodyElseIsRefused) {
  const std::string path = write(std::string(32, 'k'));
  if (chown(path.c_str(), 12345, 12345) != 0) {  // only root can, and not in every container: it stays our own, which is allowed
    EXPECT_EQ(errno, EPERM);
    EXPECT_NO_THROW(Secret::from_file(path));
    return;
  }
  EXPECT_THAT(refusal(path).what, testing::HasSubstr("belongs to user 12345"));
}

TEST_F(SecretFile, MustBeAFile) {
  EXPECT_EQ(refusal(folder_ + "/nothing").kind, Kind::system);
  EXPECT_EQ(refusal(folder_).kind, Kind::usage);
  const std::string fifo = folder_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(refusal(fifo).what, testing::HasSubstr("not a regular file"));  // and it does not wait for a writer
}

TEST(Secret, ComesThroughAMemfdOfTheLauncher) {
  const Secret made = Secret::random();
  const Fd fd{memfd_create("secret", MFD_CLOEXEC)};
  ASSERT_EQ(write(fd.get(), made.bytes().data(), made.bytes().size()), 32);
  EXPECT_TRUE(equal(Secret::from_file(fmt::format("/proc/{}/fd/{}", getpid(), fd.get())), made));
  EXPECT_TRUE(equal(Secret::from_file(fmt::format("/proc/self/fd/{}", fd.get())), made)) << "the offset of the writer must not matter";
}

TEST(Secret, IsRandomAndHasOneLength) {
  EXPECT_FALSE(equal(Secret::random(), Secret::random()));
  EXPECT_TRUE(Secret().empty());
  const std::byte short_key[31]{};
  EXPECT_THROW(Secret::from_bytes(short_key), Failure);
}

TEST(Secret, IsWipedWhenItIsDestroyed) {
  alignas(Secret) unsigned char memory[sizeof(Secret)];
  const std::string raw(32, 'k');
  auto* secret = new (memory) Secret(Secret::from_bytes(std::as_bytes(std::span(raw))));
  ASSERT_NE(memmem(memory, sizeof memory, "kkkkkkkk", 8), nullptr);
  secret->~Secret();
  EXPECT_EQ(memmem(memory, sizeof memory, "kkkk", 4), nullptr);
}

}  // namespace
}  // namespace cohort::net
