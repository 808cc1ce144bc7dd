// Pictures in folders, one folder for each class: dir/cat/1.jpg, dir/dog/a.png. Classes are the folders' names in alphabetical order.
// Hidden folders (.ipynb_checkpoints) and those without a picture are no classes; the log names them.
// Only names, sizes and times are read when the set is opened; a picture is decoded and resized each time it is asked for. One that was
// written or removed since then is refused: other ranks may have read what it was before.
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/data/dataset.h"
#include "cohort/data/image.h"
#include "cohort/data/input.h"

namespace cohort::data {
namespace {

using Type = SpecParam::Type;
constexpr std::size_t kMostFileBytes = 256_MiB;
constexpr std::size_t kMostNamed = 20;  // folders that are no classes

const SpecSchema& schema() {
  static const SpecSchema one{
      "folder",
      "JPEG and PNG pictures, a subfolder for each class, decoded when asked for",
      {{.name = "dir", .type = Type::text, .doc = "folder of the classes' folders"},
       {.name = "size", .type = Type::text, .doc = "height x width every image is resized to"},
       {.name = "channels", .type = Type::integer, .doc = "3: colour, 1: grey", .preset = "3", .low = 1, .high = 3}}};
  return one;
}

struct Entry {
  std::string path;
  std::int64_t label;
  FileState state;  // when the set was opened
};

class Folder final : public Dataset {
 public:
  Folder(Form form, std::vector<Entry> entries)
      : Dataset(std::move(form), static_cast<std::int64_t>(entries.size())), entries_(std::move(entries)) {}

  Sample sample(std::int64_t index, Scratch& scratch) const override {
    const Entry& entry = entries_[static_cast<std::size_t>(index)];
    const std::string file = read_unchanged(entry.path, entry.state, [&] { return read_file(entry.path, kMostFileBytes); });
    const Image image = decode_image(file, form().shape[0], entry.path);
    scratch = resize_planar(image, form().shape[1], form().shape[2]);
    return {.input = scratch.data(), .label = entry.label};
  }
  std::string where(std::int64_t index) const override { return entries_[static_cast<std::size_t>(index)].path; }

 protected:
  Fingerprint content() const override;

 private:
  std::vector<Entry> entries_;
};

// Names and sizes of all files, class by class, so that a difference names its folder; content of a few files.
Fingerprint Folder::content() const {
  constexpr std::size_t kMostRead = 64;
  const std::size_t stride = std::max<std::size_t>(1, entries_.size() / kMostRead);
  std::map<std::int64_t, std::pair<std::int64_t, std::uint64_t>> classes;  // pictures, hash
  std::uint64_t content = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const auto hash = [](const std::string& text, std::uint64_t seed) {
      return content_hash({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, seed);
    };
    auto& [pictures, names] = classes[entry.label];
    ++pictures;
    names = hash(fmt::format("{} {}", std::filesystem::path(entry.path).filename().string(), entry.state.bytes), names);
    if (i % stride == 0)
      content = hash(read_unchanged(entry.path, entry.state, [&] { return read_file(entry.path, kMostFileBytes); }), content);
  }
  Fingerprint parts;
  for (const auto& [label, one] : classes)
    parts.push_back(
        {label < 0 ? std::string("pictures") : fmt::format("pictures of class '{}'", form().names[static_cast<std::size_t>(label)]),
         fmt::format("{} with hash {} of names and sizes", one.first, hash_text(one.second))});
  parts.push_back({fmt::format("content of {} pictures from {} on", (entries_.size() + stride - 1) / stride, entries_.front().path),
                   hash_text(content)});
  return parts;
}

bool is_picture(const std::filesystem::path& path) {
  constexpr std::array<std::string_view, 3> kEndings{".jpg", ".jpeg", ".png"};
  std::string ending = path.extension().string();
  for (char& c : ending) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end();
}

// Names of what is in a folder, sorted: the same on every machine.
std::vector<std::filesystem::path> listed(const std::filesystem::path& dir) {
  std::error_code error;
  std::vector<std::filesystem::path> all;
  for (std::filesystem::directory_iterator i(dir, error), end; !error && i != end; i.increment(error)) all.push_back(i->path());
  if (error)
    throw_failure(Kind::usage, "cannot list the folder {}: {}; set dir= to the folder of the classes' folders", dir.string(),
                  error.message());
  std::sort(all.begin(), all.end());
  return all;
}

void warn_of_skipped(const std::string& dir, std::vector<std::string> skipped) {
  if (skipped.empty() || !logs_for_job()) return;
  const std::size_t more = skipped.size() > kMostNamed ? skipped.size() - kMostNamed : 0;
  skipped.resize(skipped.size() - more);
  if (more > 0) skipped.push_back(fmt::format("{} more", more));
  log_warning("{}: left out as no classes: {}", dir, join(skipped, ", "));
}

// Files of all classes; classes and names of the form.
std::vector<Entry> find_pictures(const std::string& dir, Form& form) {
  std::vector<Entry> entries;
  std::vector<std::string> skipped;
  for (const auto& folder : listed(dir)) {
    if (!std::filesystem::is_directory(folder)) continue;
    const std::string name = folder.filename().string();
    if (name.starts_with('.')) {
      skipped.push_back(fmt::format("'{}' (hidden)", name));
      continue;
    }
    const std::size_t before = entries.size();
    for (const auto& file : listed(folder))
      if (is_picture(file)) entries.push_back({file.string(), form.classes, state_of(file.string())});
    if (entries.size() == before) {
      skipped.push_back(fmt::format("'{}' (no picture in it)", name));
      continue;
    }
    form.names.push_back(name);
    ++form.classes;
  }
  if (entries.empty()) {
    throw_failure(Kind::usage, "{}: {} subfolders and not one .jpg, .jpeg or .png in them; expected dir/class/picture.jpg", dir,
                  skipped.size());
  }
  warn_of_skipped(dir, std::move(skipped));
  return entries;
}

Form form_of(const SpecValues& v) {
  const std::int64_t channels = v.integer("channels");
  if (channels == 2) throw_failure(Kind::usage, "folder: pictures have channels=1 (grey) or channels=3 (colour), not 2");
  Form form{.shape = parse_shape(v.text("size"), 2)};
  form.shape.insert(form.shape.begin(), channels);
  return form;
}

std::shared_ptr<const Dataset> open(const SpecValues& v) {
  Form form = form_of(v);
  std::vector<Entry> entries = find_pictures(v.text("dir"), form);
  return std::make_shared<Folder>(std::move(form), std::move(entries));
}

// Pictures that are no class's.
std::vector<Entry> loose_pictures(const std::string& dir) {
  constexpr std::int64_t kNoLabel = -100;  // what a loss leaves out
  std::vector<Entry> entries;
  for (const auto& path : listed(dir)) {
    if (std::filesystem::is_directory(path) && !path.filename().string().starts_with('.'))
      for (const auto& inner : listed(path))
        if (is_picture(inner)) return {};
    if (!std::filesystem::is_directory(path) && is_picture(path)) entries.push_back({path.string(), kNoLabel, state_of(path.string())});
  }
  return entries;
}

std::shared_ptr<const Dataset> open_like(const SpecValues& v, const Form& training) {
  Form form = form_of(v);
  std::vector<Entry> entries = loose_pictures(v.text("dir"));
  form.unlabelled = !entries.empty();
  if (!form.unlabelled) entries = find_pictures(v.text("dir"), form);
  std::vector<std::int64_t> trained;  // by label here
  for (const std::string& name : form.names) {
    const auto at = std::find(training.names.begin(), training.names.end(), name);
    if (at != training.names.end()) trained.push_back(at - training.names.begin());
  }
  if (!form.unlabelled && trained.size() != form.names.size())  // a class that was not there: whoever compares the sets says so
    return std::make_shared<Folder>(std::move(form), std::move(entries));
  for (Entry& entry : entries)
    if (!form.unlabelled) entry.label = trained[static_cast<std::size_t>(entry.label)];
  form.names = training.names;
  form.classes = training.classes;
  return std::make_shared<Folder>(std::move(form), std::move(entries));
}

}  // namespace

extern const DatasetKind row_folder{
    .name = "folder", .about = "pictures, a subfolder for each class", .schema = schema, .open = open, .open_like = open_like};

}  // namespace cohort::data
