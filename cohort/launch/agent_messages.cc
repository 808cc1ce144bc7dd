#include "cohort/launch/agent_messages.h"

#include <bit>

#include "cohort/base/error.h"
#include "cohort/net/frame/little_endian.h"

namespace cohort::launch {
namespace {

constexpr std::size_t kMostItems = 1 << 16;

class Writer : public net::ByteWriter {
 public:
  void integer(int value) { number(static_cast<std::uint32_t>(value)); }
  void real(double value) { number(std::bit_cast<std::uint64_t>(value)); }
  void text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    letters(value);
  }
};

class Reader : public net::ByteReader {
 public:
  explicit Reader(ConstBytes bytes) : ByteReader(bytes, "a message between launcher and agent") {}
  int integer() { return static_cast<int>(number<std::uint32_t>()); }
  double real() { return std::bit_cast<double>(number<std::uint64_t>()); }
  bool flag() { return integer() != 0; }
  std::string text() { return letters(number<std::uint32_t>()); }
  std::size_t count() {
    const auto n = number<std::uint32_t>();
    if (n > kMostItems) throw_failure(Kind::corrupt, "a message between launcher and agent lists {} items", n);
    return n;
  }
};

void write_setting(Writer& w, const RankSetting& s) {
  for (const int value : {s.rank, s.size, s.master_port, s.threads, s.streams}) w.integer(value);
  w.integer(s.threads_given ? 1 : 0);
  w.integer(s.tls ? 1 : 0);
  w.integer(s.shards ? 1 : 0);
  w.real(s.start_timeout);
  for (const auto& value : {s.job, s.role, s.log_level, s.master_addr, s.interface, s.launch, s.elastic}) w.text(value);
}

RankSetting read_setting(Reader& r) {
  RankSetting s;
  for (int* value : {&s.rank, &s.size, &s.master_port, &s.threads, &s.streams}) *value = r.integer();
  s.threads_given = r.flag();
  s.tls = r.flag();
  s.shards = r.flag();
  s.start_timeout = r.real();
  for (std::string* value : {&s.job, &s.role, &s.log_level, &s.master_addr, &s.interface, &s.launch, &s.elastic}) *value = r.text();
  return s;
}

void write_texts(Writer& w, const std::vector<std::string>& texts) {
  w.integer(static_cast<int>(texts.size()));
  for (const auto& text : texts) w.text(text);
}

std::vector<std::string> read_texts(Reader& r) {
  std::vector<std::string> texts(r.count());
  for (auto& text : texts) text = r.text();
  return texts;
}

}  // namespace

std::vector<std::byte> encode(const AgentInit& m) {
  Writer w;
  w.text(m.job);
  const auto secret = m.secret.bytes();
  w.letters({reinterpret_cast<const char*>(secret.data()), secret.size()});
  w.integer(m.secret.tls() ? 1 : 0);
  w.integer(m.first);
  write_texts(w, m.addresses);
  w.text(m.interface);
  w.real(m.start_timeout);
  w.integer(m.master ? 1 : 0);
  w.integer(m.master_port);
  return w.take();
}

AgentInit decode_init(ConstBytes bytes) {
  Reader r(bytes);
  AgentInit m;
  m.job = r.text();
  const std::string secret = r.letters(net::Secret::kBytes);
  m.secret = net::Secret::from_bytes(std::as_bytes(std::span(secret)));
  m.secret.use_tls(r.flag());
  m.first = r.integer();
  m.addresses = read_texts(r);
  m.interface = r.text();
  m.start_timeout = r.real();
  m.master = r.flag();
  m.master_port = r.integer();
  r.end();
  return m;
}

std::vector<std::byte> encode(const AgentReady& m) {
  Writer w;
  for (const auto& text : {m.host, m.address, m.rendezvous}) w.text(text);
  w.integer(m.master_port);
  w.integer(m.cores);
  return w.take();
}

AgentReady decode_ready(ConstBytes bytes) {
  Reader r(bytes);
  AgentReady m;
  for (std::string* text : {&m.host, &m.address, &m.rendezvous}) *text = r.text();
  m.master_port = r.integer();
  m.cores = r.integer();
  r.end();
  return m;
}

std::vector<std::byte> encode(const AgentStart& m) {
  Writer w;
  write_setting(w, m.setting);
  w.integer(static_cast<int>(m.hosts.size()));
  for (const auto& host : m.hosts) {
    w.text(host.name);
    w.integer(host.first);
    w.integer(host.ranks);
  }
  w.integer(m.host);
  for (const auto& text : {m.path, m.folder, m.bind}) w.text(text);
  write_texts(w, m.argv);
  w.integer(static_cast<int>(m.environment.size()));
  for (const auto& [name, value] : m.environment) {
    w.text(name);
    w.text(value);
  }
  w.integer(m.input ? 1 : 0);
  w.integer(m.sigquit_reports ? 1 : 0);
  w.integer(m.preemptible ? 1 : 0);
  w.integer(m.saves ? 1 : 0);
  return w.take();
}

AgentStart decode_start(ConstBytes bytes) {
  Reader r(bytes);
  AgentStart m;
  m.setting = read_setting(r);
  m.hosts.resize(r.count());
  for (auto& host : m.hosts) {
    host.name = r.text();
    host.first = r.integer();
    host.ranks = r.integer();
  }
  m.host = r.integer();
  if (m.host < 0 || static_cast<std::size_t>(m.host) >= m.hosts.size())
    throw_failure(Kind::corrupt, "host {} of {} cannot be", m.host, m.hosts.size());
  for (std::string* text : {&m.path, &m.folder, &m.bind}) *text = r.text();
  m.argv = read_texts(r);
  m.environment.resize(r.count());
  for (auto& [name, value] : m.environment) {
    name = r.text();
    value = r.text();
  }
  m.input = r.flag();
  m.sigquit_reports = r.flag();
  m.preemptible = r.flag();
  m.saves = r.flag();
  r.end();
  return m;
}

std::vector<std::byte> encode(const AgentOutput& m) {
  Writer w;
  w.integer(m.rank);
  w.integer(m.stream);
  w.letters(m.bytes);
  return w.take();
}

AgentOutput decode_output(ConstBytes bytes) {
  Reader r(bytes);
  AgentOutput m;
  m.rank = r.integer();
  m.stream = r.integer();
  if (m.stream != 1 && m.stream != 2) throw_failure(Kind::corrupt, "output of rank {} on stream {}", m.rank, m.stream);
  m.bytes = r.letters(r.left());
  return m;
}

std::vector<std::byte> encode(const AgentEnded& m) { return encode(std::vector<int>{m.rank, m.status, m.for_memory ? 1 : 0}); }
AgentEnded decode_ended(ConstBytes bytes) {
  const auto numbers = decode_numbers(bytes, 3, 3);
  return {numbers[0], numbers[1], numbers[2] != 0};
}

std::vector<std::byte> encode(const AgentError& m) {
  Writer w;
  w.integer(m.code);
  w.letters(m.what);
  return w.take();
}

AgentError decode_error(ConstBytes bytes) {
  Reader r(bytes);
  AgentError m;
  m.code = r.integer();
  m.what = r.letters(r.left());
  return m;
}

std::vector<std::byte> encode(const AgentStartWorker& m) { return encode(std::vector<int>{m.number, m.slot}); }

AgentStartWorker decode_start_worker(ConstBytes bytes) {
  const auto numbers = decode_numbers(bytes, 2, 2);
  if (numbers[0] < 0 || numbers[1] < 0) throw_failure(Kind::corrupt, "worker {} in slot {} cannot be", numbers[0], numbers[1]);
  return {numbers[0], numbers[1]};
}

std::vector<std::byte> encode(const AgentWorkerFailed& m) {
  Writer w;
  w.integer(m.number);
  w.letters(m.why);
  return w.take();
}

AgentWorkerFailed decode_worker_failed(ConstBytes bytes) {
  Reader r(bytes);
  AgentWorkerFailed m;
  m.number = r.integer();
  m.why = r.letters(r.left());
  return m;
}

std::vector<std::byte> encode(const std::vector<int>& numbers) {
  Writer w;
  for (const int number : numbers) w.integer(number);
  return w.take();
}

std::vector<int> decode_numbers(ConstBytes bytes, std::size_t least, std::size_t most) {
  Reader r(bytes);
  std::vector<int> numbers;
  while (r.left() > 0 && numbers.size() < most) numbers.push_back(r.integer());
  r.end();
  if (numbers.size() < least)
    throw_failure(Kind::corrupt, "a message between launcher and agent has {} numbers, not {}", numbers.size(), least);
  return numbers;
}

}  // namespace cohort::launch
