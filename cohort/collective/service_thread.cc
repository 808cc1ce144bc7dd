#include "cohort/collective/service_thread.h"

#include <utility>

#include "cohort/base/log.h"
#include "cohort/base/trace.h"

namespace cohort::collective {

ServiceThread::ServiceThread(std::string name, std::unique_ptr<PeerChannel> channel, Body body)
    : name_(std::move(name)), channel_(std::move(channel)), thread_([this, body = std::move(body)] { run(body); }) {}

ServiceThread::~ServiceThread() {
  end();
  try {
    throw_kept();
  } catch (const std::exception& failure) {
    log_warning("{} ended with an error that nobody asked for: {}", name_, failure.what());
  } catch (...) {
    log_warning("{} ended with an exception that nobody asked for", name_);
  }
}

void ServiceThread::run(const Body& body) noexcept {
  Trace::name_thread(name_);
  std::exception_ptr failed;
  try {
    body(*channel_);
  } catch (const Interrupted&) {  // stop()
  } catch (...) {
    failed = std::current_exception();
  }
  std::unique_ptr<PeerChannel> closing;
  {
    const std::lock_guard lock(mutex_);
    kept_ = std::move(failed);  // this thread lets go of it for good
    closing = std::move(channel_);
  }
  running_.store(false);
}

void ServiceThread::end() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (channel_) channel_->interrupt();
  }
  if (thread_.joinable()) thread_.join();
}

void ServiceThread::throw_kept() {
  std::exception_ptr kept;
  {
    const std::lock_guard lock(mutex_);
    kept = std::exchange(kept_, nullptr);
  }
  if (kept) std::rethrow_exception(kept);
}

void ServiceThread::check() {
  if (!running()) throw_kept();
}

void ServiceThread::stop() {
  end();
  throw_kept();
}

}  // namespace cohort::collective
