#include "cohort/net/tcp/msg_zerocopy.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "cohort/net/auth/control_connection.h"
#include "cohort/net/tcp/receive_stream.h"
#include "cohort/net/tcp/send_stream.h"
#include "cohort/net/transport/conformance.h"

namespace cohort::net {
namespace {

std::shared_ptr<Sending> sending() { return std::make_shared<Sending>(Rank{1}, Tag{}, ConstBytes()); }

TEST(MsgZeroCopy, CompletesASendWhenTheKernelHasReleasedAllItsPieces) {
  MsgZeroCopy z;
  const auto a = sending(), b = sending();
  z.sent(a);
  z.sent(a);
  z.completed(0, 0, false);
  EXPECT_FALSE(z.whole(a)) << "piece 1 is still in flight";
  z.sent(b);
  z.sent(b);
  z.completed(2, 3, false);  // out of order: the kernel may
  EXPECT_TRUE(z.whole(b));
  EXPECT_FALSE(a->done());
  z.completed(1, 1, false);
  EXPECT_TRUE(z.whole(sending())) << "a send without pieces in flight is done";
  EXPECT_TRUE(z.in_flight());
  z.reap(-1);
  EXPECT_TRUE(a->done());
  EXPECT_FALSE(z.in_flight());
}

TEST(MsgZeroCopy, ASendTakesNoCopyWhileTheKernelReadsItsMemory) {
  MsgZeroCopy z;
  std::vector<std::byte> memory(4);
  const auto a = std::make_shared<Sending>(Rank{1}, Tag{}, memory);
  z.sent(a);
  EXPECT_FALSE(a->take_copy());
  z.completed(0, 0, false);
  EXPECT_TRUE(a->take_copy());
  EXPECT_NE(a->bytes.data(), memory.data());
}

TEST(MsgZeroCopy, IsOffUntilEnabledAndAfterTheKernelCopied) {
  const Fd fd{::socket(AF_INET, SOCK_STREAM, 0)};
  MsgZeroCopy z;
  EXPECT_FALSE(z.pays_for(1_MiB));
  z.enable(fd.get());
  ASSERT_TRUE(z.on()) << "Linux has had it since 4.14";
  EXPECT_TRUE(z.pays_for(1_MiB));
  EXPECT_FALSE(z.pays_for(1_KiB));
  z.sent(sending());
  z.completed(0, 0, true);
  EXPECT_FALSE(z.pays_for(1_MiB));
}

// Loopback is where the kernel always copies after all: messages arrive whole, every send completes, and the link stops asking for it.
TEST(MsgZeroCopy, CarriesMessagesOverARealSocketAndIsOffWhereTheKernelCopies) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  auto dialer = std::async(std::launch::async, [&] {
    return ControlConnection::connect(listener.address, secret, {"z", Epoch{}, Rank{1}, Role::worker}, soon());
  });
  const ControlConnection one =
      ControlConnection::accept(accept_one(listener, soon()), secret, {"z", Epoch{}, Rank{0}, Role::worker}, soon());
  const ControlConnection zero = dialer.get();
  SendStream out(zero.fd(), Rank{1}, true);
  Mailbox mailbox(Rank{1}, 2);
  ReceiveStream in(mailbox, Rank{0});
  for (unsigned round = 0; round < 3; ++round) {
    const auto data = pattern(3_MiB + 7, round);
    SendStream::Push begun;
    const auto sent = out.begin(data, {0, round}, begun);
    EXPECT_TRUE(sent != nullptr || round > 0) << "the first cannot be done before the kernel said so";
    std::optional<Message> message;
    for (const Deadline limit = soon(); (!message || (sent && !sent->done())) && !limit.passed();) {
      out.push();
      const ReceiveStream::Pull pulled = in.pull(one.fd());
      ASSERT_EQ(pulled.end, ReceiveStream::End::none) << pulled.text;
      if (!message) message = mailbox.take({0, round, round});
    }
    ASSERT_TRUE(message);
    EXPECT_TRUE(message->bytes == data);
    EXPECT_TRUE(!sent || sent->done());
  }
  EXPECT_FALSE(out.in_flight());
}

}  // namespace
}  // namespace cohort::net
