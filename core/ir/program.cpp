#include "ir/program.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "ir/verifier.h"

namespace lazyt::ir {

namespace {

constexpr char kTrailerMagic[] = "LZPHASH1";
constexpr size_t kTrailerSize = 8 + 16;

void write_trailer(std::span<const uint8_t> block, uint8_t out[kTrailerSize]) {
  std::memcpy(out, kTrailerMagic, 8);
  base::hash128(block.data(), block.size()).write_canonical(out + 8);
}

}  // namespace

base::Ref<Program> Program::from_graph(const Graph& graph) {
  auto program = base::make_ref<Program>();
  program->words_ = write_block(graph);
  return program;
}

base::Result<base::Ref<Program>> Program::from_bytes(std::span<const uint8_t> bytes) {
  if (bytes.size() < sizeof(lazyt_program_t) || bytes.size() % 8 != 0)
    return base::data_loss(fmt::format("program: {} bytes are no whole block", bytes.size()));
  auto program = base::make_ref<Program>();
  program->words_.resize(bytes.size() / 8);
  std::memcpy(program->words_.data(), bytes.data(), bytes.size());
  LAZYT_RETURN_IF_ERROR(verify(program->bytes()));
  return program;
}

std::span<const uint8_t> Program::bytes() const {
  return {reinterpret_cast<const uint8_t*>(words_.data()), words_.size() * 8};
}

Graph Program::to_graph() const { return read_block(*block()); }

std::vector<uint8_t> Program::identity() const {
  const lazyt_program_t* p = block();
  std::vector<uint8_t> out;
  auto put = [&](const void* data, size_t size) {
    out.insert(out.end(), static_cast<const uint8_t*>(data), static_cast<const uint8_t*>(data) + size);
  };
  auto put_table = [&](const lazyt_table_t& t) {
    put(&t.count, sizeof(t.count));
    put(&t.stride, sizeof(t.stride));
    put(lazyt_record(p, &t, 0), t.count * t.stride);
  };
  // Where the last string ends that is not a note's.
  uint64_t strings_end = 0;
  auto reach = [&](uint64_t start, uint64_t size) { strings_end = std::max(strings_end, start + size); };

  put(&p->flags, sizeof(p->flags));
  put_table(p->values);
  put(&p->nodes.count, sizeof(p->nodes.count));
  for (uint64_t i = 0; i < p->nodes.count; i++) {
    lazyt_node_t node = *lazyt_node(p, i);
    node.note = kNone;
    put(&node, sizeof(node));
    reach(node.name.start, node.name.size);
    reach(node.overload.start, node.overload.size);
  }
  for (uint64_t i = 0; i < p->args.count; i++)
    if (const lazyt_arg_t* a = lazyt_arg(p, i); a->kind == LAZYT_ARG_STRING) reach(a->payload, a->count);
  for (const lazyt_table_t* t : {&p->args, &p->ints, &p->inputs, &p->outputs, &p->constants}) put_table(*t);
  put(&strings_end, sizeof(strings_end));
  put(lazyt_record(p, &p->strings, 0), strings_end);
  return out;
}

base::Hash128 Program::hash(uint64_t seed) const {
  // Constants are in it by their own hashes.
  std::vector<uint8_t> bytes = identity();
  return base::hash128(bytes.data(), bytes.size(), seed);
}

base::Digest Program::digest(uint64_t seed) const {
  const std::vector<uint8_t> same = identity();
  const uint64_t sizes[] = {seed, same.size(), block()->data.count};
  return base::digest({{reinterpret_cast<const uint8_t*>(sizes), sizeof sizes},
                       same,
                       {static_cast<const uint8_t*>(lazyt_record(block(), &block()->data, 0)), block()->data.count}});
}

bool Program::same_program(const Program& other) const {
  const lazyt_table_t &a = block()->data, &b = other.block()->data;
  return a.count == b.count && identity() == other.identity() &&
         std::memcmp(lazyt_record(block(), &a, 0), lazyt_record(other.block(), &b, 0), a.count) == 0;
}

base::Result<base::Ref<Program>> Program::load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  if (!file || std::filesystem::is_directory(path, error))
    return base::not_found(fmt::format("program: cannot open {}", path));
  std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::span<const uint8_t> block = bytes;
  // The trailer is optional: a block that somebody wrote as it is loads too.
  if (bytes.size() >= sizeof(lazyt_program_t) + kTrailerSize) {
    uint64_t total;
    std::memcpy(&total, bytes.data() + offsetof(lazyt_program_t, total_size), sizeof(total));
    if (total != bytes.size()) {
      block = block.first(bytes.size() - kTrailerSize);
      uint8_t trailer[kTrailerSize];
      write_trailer(block, trailer);
      if (std::memcmp(trailer, bytes.data() + block.size(), kTrailerSize) != 0)
        return base::data_loss(fmt::format("program: {} is damaged: its bytes do not have its hash", path));
    }
  }
  auto program = from_bytes(block);
  if (!program.ok()) return program.status().with_note("load", path);
  return program;
}

base::Status Program::save(const std::string& path) const {
  std::string beside = fmt::format("{}.{}.lzp.tmp", path, ::getpid());
  uint8_t trailer[kTrailerSize];
  write_trailer(bytes(), trailer);
  std::ofstream file(beside, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes().data()), static_cast<std::streamsize>(bytes().size()));
  file.write(reinterpret_cast<const char*>(trailer), kTrailerSize);
  file.close();
  if (file.fail() || std::rename(beside.c_str(), path.c_str()) != 0) {
    int reason = errno;
    std::remove(beside.c_str());
    return base::unavailable(fmt::format("program: cannot write {}: {}", path, std::strerror(reason)));
  }
  return {};
}

}  // namespace lazyt::ir
