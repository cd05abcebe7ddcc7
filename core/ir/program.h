// Program: a finished program as the one block of bytes that crosses the ABI. Immutable, shared.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/ref.h"
#include "base/sha256.h"
#include "base/status.h"
#include "ir/graph.h"

namespace lazyt::ir {

class Program : public base::RefCounted {
 public:
  // Writes the graph as a block. Equal graphs give equal bytes (strings are pooled in order of
  // first use); source lines go into notes and are the only part that hash() leaves out.
  // REQUIRES: verify(graph) is OK.
  static base::Ref<Program> from_graph(const Graph& graph);
  // Checks hostile bytes (verifier.h) and takes a copy. DATA_LOSS with the place that is wrong.
  static base::Result<base::Ref<Program>> from_bytes(std::span<const uint8_t> bytes);

  const lazyt_program_t* block() const { return reinterpret_cast<const lazyt_program_t*>(words_.data()); }
  std::span<const uint8_t> bytes() const;
  Graph to_graph() const;

  // Of everything but the notes. Equal for programs for which same_program is true.
  base::Hash128 hash(uint64_t seed) const;
  // As hash(), but no two programs are known, nor can be made, that share one: programs of one digest are equal.
  base::Digest digest(uint64_t seed) const;
  // Whether both compute the same, byte by byte; source lines may differ.
  bool same_program(const Program& other) const;

  // A .lzp file: the block, then 8 bytes "LZPHASH1" and the XXH3-128 of the block. A reader that
  // stops at total_size needs no more; load checks the hash where it is there. DATA_LOSS, NOT_FOUND.
  static base::Result<base::Ref<Program>> load(const std::string& path);
  // Writes beside the path and renames, so that no reader sees half a file.
  base::Status save(const std::string& path) const;

 private:
  // What hash() and same_program() look at; constants' data is in it by its hashes.
  std::vector<uint8_t> identity() const;

  std::vector<uint64_t> words_;  // 8-byte aligned storage
};

// The graph of a block whose references are in range (verify(span) says so).
Graph read_block(const lazyt_program_t& block);
// The block of a graph, as 8-byte words.
std::vector<uint64_t> write_block(const Graph& graph);

// Text form: see text.h. Structural check of a graph or of raw bytes: see verifier.h.

}  // namespace lazyt::ir
