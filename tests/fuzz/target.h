// What fuzz targets share: a wrong answer ends the process, which libFuzzer reports with the input that gave
// it.
//
// A target is one file with LLVMFuzzerTestOneInput; it must be fast (thousands of inputs a second), must not
// keep anything from one input to the next, and must not touch files but its own.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>

namespace lazyt::fuzz {

[[noreturn]] inline void wrong(const char* file, int line, const char* condition,
                               std::initializer_list<std::string> more) {
  std::fprintf(stderr, "%s:%d: not so: %s\n", file, line, condition);
  for (const std::string& text : more) std::fprintf(stderr, "%s\n", text.c_str());
  std::abort();
}

}  // namespace lazyt::fuzz

// What follows the condition is printed when it does not hold.
#define REQUIRE(condition, ...) \
  static_cast<void>((condition) || (lazyt::fuzz::wrong(__FILE__, __LINE__, #condition, {__VA_ARGS__}), true))

namespace lazyt::fuzz {

// A file in memory with a path, for readers that open paths.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("fuzz", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_)) {
    REQUIRE(fd_ >= 0);
  }
  MemoryFile(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(fd_); }
  void write(const void* data, size_t size) {
    REQUIRE(::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, data, size, 0) == static_cast<ssize_t>(size));
  }
  const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

}  // namespace lazyt::fuzz
