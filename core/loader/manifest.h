// Manifest: what is known of a plugin without running any of its code (abi/manifest.schema.json).
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "loader/loader.h"

namespace lazyt::loader {

struct Manifest {
  std::string name, library;  // library: absolute
  std::string version, description;
  uint32_t abi_major = 0, abi_minor = 0, abi_draft = 0;
  int32_t score = 0;
  Verdict verdict;
};

// INVALID_ARGUMENT naming the field that is wrong; NOT_FOUND if the file is JSON of another kind, so
// that a folder may hold other files too.
base::Result<Manifest> read_manifest(const std::string& path);

}  // namespace lazyt::loader
