#include "cohort/ps/session.h"

#include <exception>
#include <future>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/collective/service_thread.h"
#include "cohort/ps/server.h"

namespace cohort::ps {
namespace {

constexpr std::uint32_t kNever = 0xffffffff;  // a tag that nobody sends

}  // namespace

// A server until all workers have said bye, where there are any for it; its channel stays open for this rank's own calls until the end.
class Session::Thread {
 public:
  Thread(std::unique_ptr<collective::PeerChannel> channel, std::vector<Rank> workers)
      : channel_(*channel),
        service_("parameter server", std::move(channel), [this, workers = std::move(workers)](collective::PeerChannel& c) {
          serve(c, workers);
          std::byte nothing{};
          c.recv(c.rank(), kNever, {&nothing, 1, Dtype::u8, Device::cpu}).wait(Deadline{});
        }) {}
  collective::PeerChannel& channel() { return channel_; }
  void await_byes(Seconds patience) { served_.get_future().wait_for(patience); }

 private:
  void serve(collective::PeerChannel& channel, const std::vector<Rank>& workers) try {
    if (!workers.empty()) Server(channel, workers).run();
    served_.set_value();
  } catch (...) {
    served_.set_value();
    throw;
  }

  std::promise<void> served_;
  collective::PeerChannel& channel_;  // lives until service_ is stopped
  collective::ServiceThread service_;
};

Session::Session(collective::Communicator& comm, SessionOptions options)
    : patience_(options.patience), exceptions_(std::uncaught_exceptions()) {
  const int n = comm.size(), me = comm.rank().value;
  servers_ = options.servers == 0 && !options.dedicated ? n : options.servers;
  if (servers_ < 1 || servers_ > n || (options.dedicated && servers_ == n))
    throw_failure(Kind::usage, "{} parameter servers{} on {} ranks: {}", servers_, options.dedicated ? " that only serve" : "", n,
                  options.dedicated ? "at least one rank has to work and one to serve" : "they are threads of ranks, one of each at most");
  workers_ = options.dedicated ? n - servers_ : n;
  const int first_server = options.dedicated ? workers_ : 0;
  std::vector<Rank> workers, servers;
  for (int r = 0; r < workers_; ++r) workers.push_back(Rank{r});
  for (int r = 0; r < servers_; ++r) servers.push_back(Rank{first_server + r});
  const bool serves = me >= first_server && me < first_server + servers_;
  thread_ = std::make_unique<Thread>(comm.channel(), serves ? workers : std::vector<Rank>{});
  if (me < workers_) client_ = std::make_unique<Client>(thread_->channel(), servers, me, workers_, patience_);
}

Session::~Session() {
  const bool failed = std::uncaught_exceptions() != exceptions_;
  client_.reset();  // says bye, unless it failed
  if (!failed) thread_->await_byes(patience_);
}

Client& Session::client() {
  if (!client_) throw_failure(Kind::usage, "this rank only serves: it has no client of parameter servers");
  return *client_;
}

}  // namespace cohort::ps
