// Manifests of checkpoints. Whatever the bytes: refused, or every field lies in its range and the manifest reads back to the same. The
// input is tried as it stands, and as a body under a digest that agrees, since no fuzzer finds one.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cohort/base/error.h"
#include "cohort/checkpoint/manifest.h"
#include "cohort/checkpoint/sha256.h"

namespace {

using namespace cohort;
using namespace cohort::checkpoint;

void try_one(std::string_view text) {
  Manifest manifest;
  try {
    manifest = parse_manifest(text, "input");
  } catch (const Failure& failure) {
    if (failure.kind() != Kind::corrupt && failure.kind() != Kind::usage) std::abort();  // usage: a newer format
    return;
  }
  if (manifest.step < 0 || manifest.epoch < 0 || manifest.position < 0 || manifest.world_size < 1) std::abort();
  for (const ManifestFile& file : manifest.files)
    if (!is_file_name(file.name) || !is_sha256_hex(file.sha256)) std::abort();
  for (const ManifestPiece& piece : manifest.pieces) {
    const ManifestFile* file = manifest.find(piece.file);
    if (file == nullptr || piece.offset + piece.bytes() > file->bytes || !is_inside(piece.of.region(), piece.of.shape) ||
        piece.end() > static_cast<std::uint64_t>(cohort::elements_of(piece.of.region())))
      std::abort();
  }
  for (const StoredTensor& tensor : assemble(manifest.pieces, "input")) {
    std::uint64_t at = 0, elements = 0;
    for (const ManifestPiece& piece : tensor.pieces) {
      if (piece.of.first != at && (piece.of.first != 0 || !piece.of.box)) std::abort();  // every element of a box once
      at = piece.end();
      elements += piece.count;
    }
    if (elements != tensor.elements()) std::abort();
  }
  std::string again;
  try {
    again = format_manifest(manifest);
  } catch (const Failure& failure) {
    if (failure.kind() != Kind::usage) std::abort();  // values nested deeper than a writer may
    return;
  }
  if (parse_manifest(again, "again") != manifest) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try_one(input);
  try_one("{\"sha256\": \"" + sha256_hex(std::as_bytes(std::span(data, size))) + "\",\n" + std::string(input));
  return 0;
}
