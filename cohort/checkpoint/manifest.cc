#include "cohort/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/checkpoint/sha256.h"
#include "cohort/checkpoint/strict_json.h"

namespace cohort::checkpoint {
namespace {

using nlohmann::json;
constexpr std::string_view kBefore = "{\"sha256\": \"", kAfter = "\",\n";
constexpr std::size_t kMostShapeEntries = 64;        // as the tensors' files have it
constexpr int kMostValueDepth = kMostJsonDepth - 8;  // less what the manifest puts around a value
constexpr std::size_t kFirstLine = kBefore.size() + 64 + kAfter.size();

std::string digest_of(std::string_view text) { return sha256_hex(std::as_bytes(std::span(text.data(), text.size()))); }

// Takes the fields out of an object one by one; what is left at the end was not known.
class Fields {
 public:
  Fields(json object, std::string where) : object_(std::move(object)), where_(std::move(where)) {
    if (!object_.is_object()) refuse("no object");
  }
  json take(const char* name) {
    const auto found = object_.find(name);
    if (found == object_.end()) refuse(fmt::format("'{}' is missing", name));
    json value = std::move(*found);
    object_.erase(found);
    return value;
  }
  bool has(const char* name) const { return object_.contains(name); }
  std::string text(const char* name) {
    json value = take(name);
    if (!value.is_string()) refuse(fmt::format("'{}' is no text", name));
    return value.get<std::string>();
  }
  std::int64_t count(const char* name, std::int64_t low = 0, std::int64_t high = std::numeric_limits<std::int64_t>::max()) {
    const json value = take(name);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(high) || value.get<std::int64_t>() < low)
      refuse(fmt::format("'{}' is no integer from {} to {}", name, low, high));
    return value.get<std::int64_t>();
  }
  void done() const {
    if (!object_.empty()) refuse(fmt::format("unknown field '{}'", printable(object_.begin().key())));
  }
  [[noreturn]] void refuse(const std::string& why) const { throw_failure(Kind::corrupt, "{}: {}", where_, why); }

 private:
  json object_;
  std::string where_;
};

std::vector<ManifestFile> read_files(const json& list, const std::string& where) {
  if (!list.is_array()) throw_failure(Kind::corrupt, "{}: 'files' is no list", where);
  std::vector<ManifestFile> files;
  std::set<std::string> names;
  for (const json& item : list) {
    Fields fields(item, fmt::format("{}, file {}", where, files.size()));
    ManifestFile file{fields.text("name"), static_cast<std::uint64_t>(fields.count("bytes")), fields.text("sha256")};
    if (!is_file_name(file.name)) fields.refuse(fmt::format("'{}' is no name for a file of a checkpoint", printable(file.name)));
    if (!is_sha256_hex(file.sha256)) fields.refuse("'sha256' is no digest");
    if (!names.insert(file.name).second) fields.refuse(fmt::format("'{}' is listed twice", file.name));
    fields.done();
    files.push_back(std::move(file));
  }
  return files;
}

Shape read_shape(Fields& fields, const char* name = "shape") {
  const json list = fields.take(name);
  if (!list.is_array() || list.size() > kMostShapeEntries) fields.refuse(fmt::format("'{}' is no list of dimensions", name));
  Shape shape;
  for (const json& n : list) {
    if (!n.is_number_unsigned() || n.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      fields.refuse(fmt::format("'{}' has a dimension that is no size", name));
    shape.push_back(n.get<std::int64_t>());
  }
  return shape;
}

std::optional<Box> read_box(Fields& fields, const std::string& where) {
  if (!fields.has("box")) return std::nullopt;
  Fields box(fields.take("box"), where + ", box");
  Box read{read_shape(box, "first"), read_shape(box, "sizes")};
  box.done();
  return read;
}

ManifestPiece read_piece(Fields& fields, std::int64_t format, const std::string& where) {
  ManifestPiece p;
  p.file = fields.text("file");
  p.offset = static_cast<std::uint64_t>(fields.count("offset"));
  p.of.tensor = fields.text("tensor");
  const auto type = fields.text("dtype");
  const auto dtype = dtype_of_name(type);
  if (!dtype) fields.refuse(fmt::format("'{}' is no dtype", printable(type)));
  p.dtype = *dtype;
  p.of.shape = read_shape(fields);
  p.of.first = static_cast<std::uint64_t>(fields.count("first"));
  p.count = static_cast<std::uint64_t>(fields.count("count"));
  if (format > 2) p.of.box = read_box(fields, where);
  p.sha256 = fields.text("sha256");
  fields.done();
  return p;
}

// The run of its tensor, or of a box of it.
void check_run(const ManifestPiece& p, const Fields& fields) {
  if (!tensor_bytes(p.dtype, p.of.shape))
    fields.refuse(fmt::format("{} of shape [{}] is no whole number of bytes", dtype_name(p.dtype), fmt::join(p.of.shape, ", ")));
  const std::uint64_t of_tensor = elements_of(p.of.shape);
  if (p.of.box && (!is_inside(*p.of.box, p.of.shape) || dtype_bits(p.dtype) < 8))
    fields.refuse(fmt::format("'{}' of {} [{}] has no box [{}]", printable(p.of.tensor), dtype_name(p.dtype), fmt::join(p.of.shape, ", "),
                              p.of.box->first.size() == p.of.box->sizes.size() ? to_text(*p.of.box) : "of other dimensions"));
  const auto elements = static_cast<std::uint64_t>(cohort::elements_of(p.of.region()));
  if (p.of.first > elements || p.count > elements - p.of.first || (p.count == 0 && of_tensor != 0))
    fields.refuse(
        fmt::format("{} elements from {} on are no run of the {} of '{}'", p.count, p.of.first, elements, printable(p.of.tensor)));
  if (p.of.first * dtype_bits(p.dtype) % 8 != 0 || p.count * dtype_bits(p.dtype) % 8 != 0)
    fields.refuse(fmt::format("{} is no whole number of bytes", printable(p.name())));
}

// The piece for itself, and within its file.
void check_piece(const ManifestPiece& p, const std::map<std::string, std::uint64_t>& bytes_of, const Fields& fields) {
  check_run(p, fields);
  const auto file = bytes_of.find(p.file);
  if (file == bytes_of.end()) fields.refuse(fmt::format("its file '{}' is not among the files", printable(p.file)));
  if (p.offset > file->second || p.bytes() > file->second - p.offset)
    fields.refuse(fmt::format("{}: {} bytes at offset {} are not inside {} of {} bytes", printable(p.name()), p.bytes(), p.offset, p.file,
                              file->second));
  if (!is_sha256_hex(p.sha256)) fields.refuse("'sha256' is no digest");
}

std::vector<ManifestPiece> read_pieces(const json& list, std::int64_t format, const std::vector<ManifestFile>& files,
                                       const std::string& where) {
  if (!list.is_array() || list.empty()) throw_failure(Kind::corrupt, "{}: 'pieces' is no list of pieces", where);
  std::map<std::string, std::uint64_t> bytes_of;
  for (const ManifestFile& file : files) bytes_of.emplace(file.name, file.bytes);
  std::vector<ManifestPiece> pieces;
  for (const json& item : list) {
    const auto which = fmt::format("{}, piece {}", where, pieces.size());
    Fields fields(item, which);
    pieces.push_back(read_piece(fields, format, which));
    check_piece(pieces.back(), bytes_of, fields);
  }
  return pieces;
}

nlohmann::ordered_json piece_json(const ManifestPiece& p) {
  nlohmann::ordered_json line{{"file", p.file},      {"offset", p.offset},  {"tensor", p.of.tensor}, {"dtype", dtype_name(p.dtype)},
                              {"shape", p.of.shape}, {"first", p.of.first}, {"count", p.count}};
  if (p.of.box) line["box"] = {{"first", p.of.box->first}, {"sizes", p.of.box->sizes}};
  line["sha256"] = p.sha256;
  return line;
}

// One line each: a checkpoint of many ranks has thousands.
std::string pieces_text(const std::vector<ManifestPiece>& pieces) {
  std::vector<std::string> lines;
  for (const ManifestPiece& p : pieces) lines.push_back(piece_json(p).dump());
  return fmt::format("[\n  {}\n ]", fmt::join(lines, ",\n  "));
}

int format_of(const Manifest& m) {
  const bool boxes = std::any_of(m.pieces.begin(), m.pieces.end(), [](const ManifestPiece& p) { return p.of.box.has_value(); });
  return boxes ? kManifestFormat : m.pieces.empty() ? 1 : 2;
}

// The body, once the digest has said that it is what was written.
std::string_view checked_body(std::string_view text, std::string_view where) {
  if (text.size() < kFirstLine || !text.starts_with(kBefore) || text.substr(kFirstLine - kAfter.size(), kAfter.size()) != kAfter)
    throw_failure(Kind::corrupt, "{}: the first line is no digest; cut short, or no manifest of ours", where);
  const auto body = text.substr(kFirstLine);
  const auto said = text.substr(kBefore.size(), 64);
  if (const auto is = digest_of(body); is != said)
    throw_failure(Kind::corrupt, "{}: its digest is {}, it should be {}: damaged, or edited by hand", where, is, printable(said));
  return body;
}

json values_of(const Manifest& manifest) {
  json values = json::object();
  for (const auto& [key, text] : manifest.values) try {
      values[key] = parse_strict_json(text, fmt::format("value '{}' of the manifest", printable(key)), kMostValueDepth);
    } catch (const Failure& failure) {  // the caller's text, not a damaged file
      throw_failure(Kind::usage, "{}", failure.what());
    }
  return values;
}

}  // namespace

const ManifestFile* Manifest::find(std::string_view name) const {
  for (const ManifestFile& file : files)
    if (file.name == name) return &file;
  return nullptr;
}

bool is_file_name(std::string_view name) {
  constexpr std::string_view kSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= 200 && name.front() != '.' && name != kManifestName && name.find_first_not_of(kSafe) == name.npos;
}

std::string format_manifest(const Manifest& m) {
  nlohmann::ordered_json body{{"format", format_of(m)},     {"step", m.step},
                              {"epoch", m.epoch},           {"position", m.position},
                              {"world_size", m.world_size}, {"cohort", m.cohort_version},
                              {"torch", m.torch_version},   {"files", nlohmann::ordered_json::array()},
                              {"texts", json(m.texts)},     {"values", values_of(m)}};
  if (m.step < 0 || m.epoch < 0 || m.position < 0 || m.world_size < 1)
    throw_failure(Kind::usage, "manifest: step {}, epoch {}, position {} and world size {} cannot be", m.step, m.epoch, m.position,
                  m.world_size);
  for (const ManifestFile& file : m.files) body["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  try {
    auto text = body.dump(1) + "\n";
    text.erase(0, 2);  // "{\n": the first line opens the object
    if (!m.pieces.empty())
      text = fmt::format("{},\n \"pieces\": {}\n}}\n", std::string_view(text).substr(0, text.size() - 3), pieces_text(m.pieces));
    if (text.size() + kFirstLine > kMostManifestBytes)
      throw_failure(Kind::usage, "manifest of step {}: {} bytes, at most {}; keep what is large as a tensor", m.step, text.size(),
                    kMostManifestBytes);
    return fmt::format("{}{}{}{}", kBefore, digest_of(text), kAfter, text);
  } catch (const json::exception&) {
    throw_failure(Kind::usage, "manifest of step {}: a text is no UTF-8; keep bytes as hex, or as a U8 tensor", m.step);
  }
}

Manifest parse_manifest(std::string_view text, std::string_view where, Whole whole) {
  const std::string body = "{" + std::string(checked_body(text, where));
  Fields fields(parse_strict_json(body, where), std::string(where));
  const auto format = fields.count("format");
  if (format > kManifestFormat)
    throw_failure(Kind::usage, "{}: written in format {} by a newer cohort; this one reads up to {}", where, format, kManifestFormat);
  if (format < 1) fields.refuse(fmt::format("no format {} ever was", format));
  Manifest m;
  m.step = fields.count("step");
  m.epoch = fields.count("epoch");
  m.position = fields.count("position");
  m.world_size = static_cast<int>(fields.count("world_size", 1, std::numeric_limits<int>::max()));
  m.cohort_version = fields.text("cohort");
  m.torch_version = fields.text("torch");
  m.files = read_files(fields.take("files"), std::string(where));
  if (format > 1) m.pieces = read_pieces(fields.take("pieces"), format, m.files, std::string(where));
  if (whole == Whole::yes) assemble(m.pieces, where);
  const json texts = fields.take("texts"), values = fields.take("values");
  if (!texts.is_object() || !values.is_object()) fields.refuse("'texts' and 'values' are objects");
  for (const auto& [key, value] : texts.items()) {
    if (!value.is_string()) fields.refuse(fmt::format("texts: '{}' is no text", printable(key)));
    m.texts.emplace(key, value.get<std::string>());
  }
  for (const auto& [key, value] : values.items()) m.values.emplace(key, value.dump());
  fields.done();
  return m;
}

}  // namespace cohort::checkpoint
