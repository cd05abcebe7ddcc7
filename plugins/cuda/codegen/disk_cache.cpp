#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cache.h"

namespace lazyt::cuda {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'L', 'Z', 'C', 'U', 'B', 'I', 'N', '1'};

// Then the texts, then the code.
struct Header {
  char magic[8];
  uint64_t text_bytes, code_bytes, checksum;
};

// FNV-1a, 64 bits.
uint64_t hash_of(std::string_view text, uint64_t hash = 0xcbf29ce484222325u) {
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// What a file must hold of a kernel; no text of another kernel contains it.
std::string entry_of(const KernelSource& k) { return '\0' + k.name + '\0' + k.text + '\0'; }

std::string default_folder() {
  // Not for a process with elevated privileges.
  if (const char* x = secure_getenv("XDG_CACHE_HOME"); x && *x == '/') return std::string(x) + "/lazyt/cuda";
  if (const char* home = secure_getenv("HOME"); home && *home == '/')
    return std::string(home) + "/.cache/lazyt/cuda";
  return {};
}

}  // namespace

const DiskCache& DiskCache::standard() {
  static const DiskCache& cache = *[] {
    std::string folder(plugin::option("cuda", "cache_dir"));
    if (folder.empty()) folder = default_folder();
    if (folder == "off" || folder == "0") folder.clear();
    const std::string_view limit = plugin::option("cuda", "cache_mb");
    uint64_t megabytes = 256;
    if (!limit.empty() && std::from_chars(limit.begin(), limit.end(), megabytes).ec != std::errc())
      throw plugin::Error(LAZYT_CODE_INVALID_ARGUMENT,
                          "cuda: LAZYT_CUDA_CACHE_MB is no number: " + std::string(limit));
    return new DiskCache(std::move(folder), megabytes << 20);
  }();
  return cache;
}

std::string DiskCache::path_of(const KernelSource& kernel, const std::string& identity) const {
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx",
                static_cast<unsigned long long>(hash_of(kernel.text, hash_of(identity))));
  return folder_ + "/" + kernel.name.substr(0, 80) + "-" + hex + ".cubin";
}

std::optional<std::string> DiskCache::find(const KernelSource& kernel, const std::string& identity) const {
  if (folder_.empty()) return {};
  const std::string path = path_of(kernel, identity);
  std::ifstream in(path, std::ios::binary);
  if (!in) return {};
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  Header h;
  if (bytes.size() < sizeof h) return {};
  std::memcpy(&h, bytes.data(), sizeof h);
  const uint64_t rest = bytes.size() - sizeof h;
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0 || h.text_bytes > rest ||
      h.code_bytes != rest - h.text_bytes)
    return {};
  const std::string_view body = std::string_view(bytes).substr(sizeof h),
                         texts = body.substr(0, h.text_bytes);
  if (hash_of(body) != h.checksum) return {};
  if (texts.substr(0, identity.size()) != identity ||
      texts.find(entry_of(kernel), identity.size()) == texts.npos)
    return {};
  utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now
  return std::string(body.substr(h.text_bytes));
}

void DiskCache::put(const std::vector<const KernelSource*>& kernels, const std::string& identity,
                    const std::string& code) const {
  if (folder_.empty()) return;
  std::error_code failed;
  fs::create_directories(folder_, failed);
  std::string body = identity;
  for (const KernelSource* k : kernels) body += entry_of(*k);
  Header h{{}, body.size(), code.size(), 0};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  body += code;
  h.checksum = hash_of(body);
  static std::atomic<unsigned> count{0};
  const std::string part =
      folder_ + "/." + std::to_string(getpid()) + "-" + std::to_string(count++) + ".part";
  {
    std::ofstream out(part, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&h), sizeof h);
    out << body;
    out.close();
    if (!out) {
      fs::remove(part, failed);
      return;
    }
  }
  // One file under the names of all its kernels.
  for (const KernelSource* k : kernels) {
    const std::string name = part + ".link";
    fs::create_hard_link(part, name, failed);
    if (failed) fs::copy_file(part, name, failed);
    if (!failed) fs::rename(name, path_of(*k, identity), failed);
  }
  fs::remove(part, failed);
  trim();
}

void DiskCache::trim() const {
  struct File {
    timespec used;
    uint64_t bytes;
    std::string path;
  };
  std::vector<File> files;
  uint64_t total = 0;
  std::error_code failed;
  for (fs::directory_iterator i(folder_, failed), end; !failed && i != end; i.increment(failed)) {
    struct stat s;
    if (lstat(i->path().c_str(), &s) != 0 || !S_ISREG(s.st_mode)) continue;
    const uint64_t share = static_cast<uint64_t>(s.st_size) / std::max<uint64_t>(1, s.st_nlink);
    files.push_back({s.st_mtim, share, i->path().string()});
    total += share;
  }
  if (total <= limit_) return;
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return a.used.tv_sec != b.used.tv_sec ? a.used.tv_sec < b.used.tv_sec : a.used.tv_nsec < b.used.tv_nsec;
  });
  for (const File& f : files) {
    if (total <= limit_ / 4 * 3) break;
    fs::remove(f.path, failed);
    total -= f.bytes;
  }
}

}  // namespace lazyt::cuda
