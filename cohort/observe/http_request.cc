#include "cohort/observe/http_request.h"

#include <algorithm>

#include "cohort/base/text.h"

namespace cohort::observe {
namespace {

bool is_token(std::string_view text) {  // RFC 9110, 5.6.2
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// The next line without its end, taken off `rest`.
std::string_view take_line(std::string_view& rest) {
  const auto end = std::min(rest.find('\n'), rest.size());
  auto line = rest.substr(0, end);
  rest.remove_prefix(std::min(rest.size(), end + 1));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size() || hex(text[i + 1]) < 0 || hex(text[i + 2]) < 0) return std::nullopt;
    const int byte = hex(text[i + 1]) * 16 + hex(text[i + 2]);
    if (byte == 0) return std::nullopt;
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

// "GET /metrics?a=b HTTP/1.1"
int parse_request_line(std::string_view line, HttpRequest& request) {
  const auto first = line.find(' ');
  const auto last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return 400;
  const auto method = line.substr(0, first);
  const auto target = line.substr(first + 1, last - first - 1);
  const auto version = line.substr(last + 1);
  if (!is_token(method) || !version.starts_with("HTTP/")) return 400;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return 505;
  if (method != "GET" && method != "HEAD") return 405;
  const bool graphic = std::all_of(target.begin(), target.end(), [](char c) { return c > 0x20 && c < 0x7F; });
  if (!target.starts_with('/') || !graphic) return 400;
  const auto question = std::min(target.find('?'), target.size());
  auto path = percent_decoded(target.substr(0, question));
  if (!path) return 400;
  request.head_only = method == "HEAD";
  request.path = std::move(*path);
  request.query = question < target.size() ? std::string(target.substr(question + 1)) : std::string();
  return version == "HTTP/1.0" ? 100 : 200;  // 100: fine so far, and no Host is needed
}

}  // namespace

std::optional<std::size_t> head_end(std::string_view bytes) {
  for (auto at = bytes.find('\n'); at != std::string_view::npos; at = bytes.find('\n', at + 1)) {
    if (bytes.substr(at + 1).starts_with('\n')) return at + 2;
    if (bytes.substr(at + 1).starts_with("\r\n")) return at + 3;
  }
  return std::nullopt;
}

bool is_loopback_host(std::string_view host) {
  const auto colon = host.rfind(':');
  if (colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos) {
    const auto port = host.substr(colon + 1);
    if (port.size() > 5 || !std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; })) return false;
    host = host.substr(0, colon);
  }
  if (lower(host) == "localhost" || host == "[::1]") return true;
  if (!host.starts_with("127.")) return false;  // 127.evil.example is a name: four numbers only
  const auto parts = split(host, '.');
  return parts.size() == 4 && std::all_of(parts.begin(), parts.end(), [](std::string_view part) {
           return !part.empty() && part.size() <= 3 && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
         });
}

HttpHead parse_head(std::string_view head) {
  HttpHead out;
  const int line_status = parse_request_line(take_line(head), out.request);
  if (line_status >= 400) return {line_status, {}};
  std::optional<std::string> host;
  for (auto line = take_line(head); !line.empty(); line = take_line(head)) {
    const auto colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return {400, {}};  // also folded lines
    const auto name = lower(line.substr(0, colon));
    const auto value = trim(line.substr(colon + 1));
    if (std::any_of(value.begin(), value.end(), [](char c) { return (c >= 0 && c < 0x20 && c != '\t') || c == 0x7F; })) return {400, {}};
    if (name == "host") {
      if (host) return {400, {}};
      host = value;
    }
    if (name == "transfer-encoding" || (name == "content-length" && value != "0")) return {413, {}};  // a GET here has no body
  }
  if (!host) return line_status == 100 ? HttpHead{200, out.request} : HttpHead{400, {}};
  if (!is_loopback_host(*host)) return {403, {}};
  return out;
}

}  // namespace cohort::observe
