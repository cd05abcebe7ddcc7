#include "layers/recording.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "base/log.h"

namespace lazyt::layers {
namespace {

constexpr char kMagic[8] = {'L', 'Z', 'T', 'R', 'E', 'C', '1', '\0'};

// The words that a record of a kind has at least.
size_t least_words(Recorded kind) {
  switch (kind) {
    case Recorded::kDevice: return 2;
    case Recorded::kAlloc: return 5;
    case Recorded::kFromHost: return 3;
    case Recorded::kCompile: return 3;
    case Recorded::kExecute: return 3;
    case Recorded::kToHost: return 5;
    case Recorded::kCopy: return 5;
    case Recorded::kReleaseBuffer:
    case Recorded::kReleaseExecutable:
    case Recorded::kCloseDevice: return 1;
  }
  return SIZE_MAX;
}

bool is_whole(const Record& r) {
  if (r.words.size() < least_words(r.kind)) return false;
  if (r.kind != Recorded::kExecute) return true;
  const uint64_t left = r.words.size() - 3;
  return r.words[1] <= left / kInputWords && r.words[2] == left - r.words[1] * kInputWords;
}

}  // namespace

bool is_recording(const std::string& path) {
  char first[sizeof kMagic] = {};
  std::ifstream(path, std::ios::binary).read(first, sizeof first);
  return std::memcmp(first, kMagic, sizeof kMagic) == 0;
}

base::Result<std::vector<Record>> read_recording(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return base::not_found(fmt::format("recording: cannot open {}", path));
  const std::vector<char> all{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (all.size() < sizeof kMagic || std::memcmp(all.data(), kMagic, sizeof kMagic) != 0)
    return base::invalid_argument(fmt::format("recording: {} is not what the layer `record` writes (a program, .lzp, is run by `lazyt run`)", path));
  std::vector<Record> records;
  auto damaged = [&](size_t at) {
    return base::Status(LAZYT_CODE_DATA_LOSS, fmt::format("recording: {} is damaged or cut off at byte {}", path, at));
  };
  for (size_t at = sizeof kMagic; at < all.size();) {
    uint32_t head[2];
    uint64_t size;
    if (all.size() - at < sizeof head + sizeof size) return damaged(at);
    std::memcpy(head, all.data() + at, sizeof head);
    std::memcpy(&size, all.data() + at + sizeof head, sizeof size);
    const size_t begin = at + sizeof head + sizeof size, left = all.size() - begin;
    const uint64_t words = uint64_t{head[1]} * 8;
    if (words > left || size > left - words || (size + 7) / 8 * 8 > left - words) return damaged(at);
    Record& r = records.emplace_back();
    r.kind = static_cast<Recorded>(head[0]);
    r.words.resize(head[1]);
    if (words) std::memcpy(r.words.data(), all.data() + begin, words);
    r.bytes.assign(all.data() + begin + words, all.data() + begin + words + size);
    if (!is_whole(r)) return damaged(at);
    at = begin + words + (size + 7) / 8 * 8;
  }
  return records;
}

base::Result<std::unique_ptr<RecordingWriter>> RecordingWriter::create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (!file) return base::unavailable(fmt::format("LAZYT_RECORD: cannot write {}: {}", path, std::strerror(errno)));
  std::fwrite(kMagic, 1, sizeof kMagic, file);
  return std::unique_ptr<RecordingWriter>(new RecordingWriter(file, path));
}

RecordingWriter::~RecordingWriter() {
  if (std::fclose(file_) != 0 || failed_) base::log(LAZYT_LOG_ERROR, fmt::format("record: {} is not whole: {}", path_, std::strerror(errno)));
}

void RecordingWriter::add(Recorded kind, std::span<const uint64_t> words, std::span<const uint8_t> bytes) {
  const uint32_t head[2] = {static_cast<uint32_t>(kind), static_cast<uint32_t>(words.size())};
  const uint64_t size = bytes.size();
  constexpr uint8_t kZeros[8] = {};
  const size_t pad = (8 - size % 8) % 8;
  const bool whole = std::fwrite(head, sizeof head, 1, file_) == 1 && std::fwrite(&size, sizeof size, 1, file_) == 1 &&
                     std::fwrite(words.data(), 8, words.size(), file_) == words.size() &&
                     std::fwrite(bytes.data(), 1, size, file_) == size && std::fwrite(kZeros, 1, pad, file_) == pad &&
                     std::fflush(file_) == 0;
  failed_ |= !whole;
}

}  // namespace lazyt::layers
