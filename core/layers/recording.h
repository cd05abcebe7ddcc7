// Recording: the calls of a run in one file, which replays against any plugin without PyTorch (`lazyt replay`).
//
// Little-endian: the eight bytes "LZTREC1\0", then records of a kind, a count of words, a count of bytes, the words and
// the bytes (padded to 8). Objects go by numbers from 1. Bytes of buffers are there only if asked for (record:data).
#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace lazyt::layers {

enum class Recorded : uint32_t {
  kDevice = 1,          // device, index
  kAlloc,               // buffer, device, size, alignment, memory space
  kFromHost,            // buffer, device, size; the bytes
  kCompile,             // executable, device, flags; the program block
  kExecute,             // executable, inputs, outputs, then kInputWords for each input, one for each output
  kToHost,              // buffer, offset, size, hash low, hash high
  kCopy,                // source, its offset, destination, its offset, size
  kReleaseBuffer,       // buffer
  kReleaseExecutable,   // executable
  kCloseDevice,         // device
};
// Of an input of kExecute: buffer (0 = host scalar), flags, stable id, content version, the scalar's bytes.
inline constexpr size_t kInputWords = 6;

struct Record {
  Recorded kind{};
  std::vector<uint64_t> words;
  std::vector<uint8_t> bytes;
};

bool is_recording(const std::string& path);  // by its first bytes

// The whole file. INVALID_ARGUMENT or DATA_LOSS says what is wrong with it.
base::Result<std::vector<Record>> read_recording(const std::string& path);

class RecordingWriter {
 public:
  // UNAVAILABLE if the file cannot be written.
  static base::Result<std::unique_ptr<RecordingWriter>> create(const std::string& path);
  ~RecordingWriter();
  void add(Recorded kind, std::span<const uint64_t> words, std::span<const uint8_t> bytes = {});
  void add(Recorded kind, std::initializer_list<uint64_t> words, std::span<const uint8_t> bytes = {}) {
    add(kind, std::span(words.begin(), words.size()), bytes);
  }

 private:
  RecordingWriter(std::FILE* file, std::string path) : file_(file), path_(std::move(path)) {}
  std::FILE* const file_;
  const std::string path_;
  bool failed_ = false;
};

}  // namespace lazyt::layers
