// Program: a finished program as the one block of bytes that crosses the ABI. Immutable, shared.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ref.h"
#include "base/status.h"
#include "ir/graph.h"

namespace lazyt::ir {

class Program : public base::RefCounted {
 public:
  // Writes the graph as a block. Equal graphs give equal bytes (strings are pooled in order of
  // first use); source lines go into notes and are the only part that hash_bytes() leaves out.
  static base::Ref<Program> from_graph(const Graph& graph);
  // Checks hostile bytes (verifier.h) and takes a copy. DATA_LOSS with the place that is wrong.
  static base::Result<base::Ref<Program>> from_bytes(std::span<const uint8_t> bytes);

  const lazyt_program_t* block() const { return reinterpret_cast<const lazyt_program_t*>(words_.data()); }
  std::span<const uint8_t> bytes() const;
  Graph to_graph() const;

  static base::Result<base::Ref<Program>> load(const std::string& path);  // a .lzp file
  base::Status save(const std::string& path) const;

 private:
  std::vector<uint64_t> words_;  // 8-byte aligned storage
};

// Text form: see text.h. Structural check of a graph or of raw bytes: see verifier.h.

}  // namespace lazyt::ir
