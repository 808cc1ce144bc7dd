// A ServiceThread is a thread with a PeerChannel that answers other ranks while its own rank computes: a shard of a parameter server, the
// passive side of AD-PSGD, metrics.
//
//   ServiceThread service("parameter server", comm.channel(), [&](PeerChannel& channel) {
//     while (true) answer(channel.wait_any(requests, Deadline{}));   // until stop()
//   });
//
// The body waits in the channel only: stop() ends those waits, and the body by them. When the body ends, of itself too, its channel closes,
// which ends the peers' calls to it (peer_channel.h): agree with them first, say by a last message, where all must be answered.
// Owner: the rank's main thread. Threads: check() and stop() are the owner's. Failure: what the body throws is kept, and thrown to the
// owner once, by check() or stop(); the destructor stops too, and logs what was never asked for.
#pragma once
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cohort/collective/peer_channel.h"

namespace cohort::collective {

class ServiceThread {
 public:
  using Body = std::function<void(PeerChannel& channel)>;
  ServiceThread(std::string name, std::unique_ptr<PeerChannel> channel, Body body);  // name: of the thread in traces
  ~ServiceThread();
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;

  bool running() const { return running_.load(); }  // false: the body has ended
  void check();                                     // throws what ended the body; a load while it runs
  void stop();                                      // ends the body's waits, joins, then as check(); again: nothing

 private:
  void run(const Body& body) noexcept;
  void end() noexcept;
  void throw_kept();

  const std::string name_;
  std::mutex mutex_;
  std::unique_ptr<PeerChannel> channel_;  // guarded by mutex_ for stop(); used and destroyed by the thread
  std::exception_ptr kept_;               // guarded by mutex_
  std::atomic<bool> running_{true};
  std::thread thread_;
};

}  // namespace cohort::collective
