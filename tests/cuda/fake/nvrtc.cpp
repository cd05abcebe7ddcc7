// NVRTC's entry points over the host's compiler (shim.h). "CUBIN" is a lazyt_shim_image, "PTX" the source.
// What the real one refuses is refused here: unknown options, architectures that it does not know, #include.
//
// What a source has before its first #line is the same in all of them: it is compiled once, as a precompiled
// header.
//
// LAZYT_SHIM_CXX: the compiler (g++). LAZYT_SHIM_CACHE: where compiled sources are kept (lazyt-shim-<user> in
// the folder for temporary files), by a hash of everything that goes into them; may be deleted at any time.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <regex>
#include <string>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "shim.h"

extern char** environ;

namespace {

namespace fs = std::filesystem;

enum Result {
  kSuccess = 0,
  kInvalidInput = 3,
  kInvalidProgram = 4,
  kInvalidOption = 5,
  kCompilation = 6,
  kInternal = 11
};
// sm_75 to sm_121, as NVRTC 13.0.
constexpr int kArchitectures[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};

struct Program {
  std::string source, name, log, image;
  bool compiled = false;
};

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string environment(const char* name, const std::string& otherwise) {
  const char* v = std::getenv(name);
  return v && *v ? v : otherwise;
}

fs::path cache_folder() {
  const fs::path folder = environment(
      "LAZYT_SHIM_CACHE", (fs::temp_directory_path() / ("lazyt-shim-" + std::to_string(getuid()))).string());
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  return folder;
}

// This library, which compiled kernels are linked to.
std::string own_path() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&own_path), &info);
  return fs::absolute(info.dli_fname).string();
}

// The exit status, and what the command said.
int run(const std::vector<std::string>& command, const fs::path& output) {
  std::vector<char*> argv;
  for (const std::string& s : command) argv.push_back(const_cast<char*>(s.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  // Not to be preloaded into the compiler: sanitizers of the process, counters of tests.
  std::vector<char*> env;
  for (char** e = environ; *e; ++e)
    if (std::strncmp(*e, "LD_PRELOAD=", 11) != 0) env.push_back(*e);
  env.push_back(nullptr);
  pid_t pid;
  int status = -1;
  if (posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), env.data()) == 0) waitpid(pid, &status, 0);
  posix_spawn_file_actions_destroy(&actions);
  return status;
}

const std::string& compiler() {
  static const std::string& name = *new std::string(environment("LAZYT_SHIM_CXX", "g++"));
  return name;
}

// Of the library and of the header that it begins with.
const std::vector<std::string>& flags() {
  static const auto& all = *new std::vector<std::string>{
      "-std=c++17", "-O1", "-w", "-fPIC", "-DLAZYT_SHIM",
      // As NVRTC compiles: what lies at an address may be read as another type, signed integers wrap around.
      "-fno-strict-aliasing", "-fwrapv", "-fno-math-errno", "-fno-trapping-math",
      // As the plugin asks of NVRTC: --fmad=false.
      "-ffp-contract=off",
      // One library's symbols are its own.
      "-fvisibility=hidden", "-fno-gnu-unique"};
  return all;
}

std::string hash_of(const std::string& text) {
  static const std::string& fixed = *new std::string([] {
    std::string all = compiler() + '\n' + own_path() + '\n' + read_file(LAZYT_SHIM_HEADER);
    for (const std::string& f : flags()) all += f + '\n';
    return all;
  }());
  const std::string all = fixed + text;
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  char hex[40];
  snprintf(hex, sizeof hex, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
           static_cast<unsigned long long>(hash.low64));
  return hex;
}

// A folder of one compilation's own, gone at its end: whose processes share the cache may be numbered alike.
class Workplace {
 public:
  explicit Workplace(const fs::path& cache) : path_((cache / "XXXXXX").string()) {
    if (!mkdtemp(path_.data())) throw fs::filesystem_error("no folder to compile in", path_, {errno, std::generic_category()});
  }
  ~Workplace() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Workplace(const Workplace&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Where nobody sees a part of it.
void keep(const std::string& made, const fs::path& as) {
  std::error_code ignored;
  fs::rename(made, as, ignored);
}

// The path of a header with the shim and `text`, and beside it, if the compiler can, its precompiled form.
std::string header_of(const std::string& text, const fs::path& folder) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const std::string path = (folder / (hash_of(text) + ".h")).string();
  if (fs::exists(path)) return path;
  const Workplace here(folder);
  const std::string header = here.file("all.h"), compiled = here.file("all.h.gch");
  std::ofstream(header) << read_file(LAZYT_SHIM_HEADER) << "\n#line 1 \"prelude\"\n" << text;
  std::vector<std::string> command{compiler(), "-x", "c++-header"};
  command.insert(command.end(), flags().begin(), flags().end());
  command.insert(command.end(), {"-o", compiled, header});
  // An error in the text comes again, with its log, where it is included.
  if (run(command, here.file("log")) == 0) keep(compiled, path + ".gch");
  keep(header, path);  // last: who sees it sees the other, too
  return path;
}

Result compile(Program& p) {
  const fs::path folder = cache_folder(), kept = folder / (hash_of(p.source) + ".so");
  std::string library = read_file(kept);
  if (library.empty()) {
    const size_t cut = p.source.find("\n#line ");
    const std::string common = cut == std::string::npos ? "" : p.source.substr(0, cut + 1);
    const Workplace here(folder);
    const std::string source = here.file("source.cu"), made = here.file("made.so"), log = here.file("log");
    std::ofstream(source) << "#line 1 \"" << p.name << "\"\n" << p.source.substr(common.size());
    std::vector<std::string> command{compiler(), "-x", "c++", "-shared", "-Wl,-z,defs"};
    command.insert(command.end(), flags().begin(), flags().end());
    command.insert(command.end(), {"-include", header_of(common, folder), "-o", made, source, "-x", "none", own_path()});
    const int status = run(command, log);
    p.log = read_file(log);
    if (status == 0) library = read_file(made);
    if (library.empty()) {
      if (p.log.empty()) p.log = compiler() + " did not run";
      return kCompilation;
    }
    keep(made, kept);
  }
  lazyt_shim_image header{LAZYT_SHIM_MAGIC, library.size()};
  p.image.assign(reinterpret_cast<const char*>(&header), sizeof header);
  p.image += library;
  p.compiled = true;
  return kSuccess;
}

// What the real one would not take either.
bool known_option(const std::string& option, std::string& log) {
  static const std::regex known(
      "(--gpu-architecture=|-arch=)(sm|compute)_[0-9]+[af]?|(--std=|-std=)c\\+\\+(03|11|14|17|20)|(--fmad|-"
      "fmad)=(true|false)|"
      "(--ftz|-ftz|--prec-div|-prec-div|--prec-sqrt|-prec-sqrt)=(true|false)|--device-as-default-execution-"
      "space|-default-device|"
      "(--define-macro=|-D).*|(--maxrregcount|-maxrregcount)=[0-9]+|--minimal|--no-display-error-number|-no-"
      "err-no|--disable-warnings|-w|"
      "--generate-line-info|-lineinfo|--dopt=(on|off)|--ptxas-options=.*|--split-compile=[0-9]+|--use_fast_"
      "math|--extra-device-vectorization");
  if (std::regex_match(option, known)) {
    std::smatch m;
    static const std::regex architecture("(?:--gpu-architecture=|-arch=)(?:sm|compute)_([0-9]+)[af]?");
    if (!std::regex_match(option, m, architecture)) return true;
    const int wanted = std::stoi(m[1]);
    if (std::find(std::begin(kArchitectures), std::end(kArchitectures), wanted) != std::end(kArchitectures))
      return true;
  }
  log += "nvrtc: error: invalid value or option: " + option + "\n";
  return false;
}

Program* program_of(void* handle) { return static_cast<Program*>(handle); }

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

const char* nvrtcGetErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "NVRTC_SUCCESS";
    case kInvalidInput:
      return "NVRTC_ERROR_INVALID_INPUT";
    case kInvalidProgram:
      return "NVRTC_ERROR_INVALID_PROGRAM";
    case kInvalidOption:
      return "NVRTC_ERROR_INVALID_OPTION";
    case kCompilation:
      return "NVRTC_ERROR_COMPILATION";
    default:
      return "NVRTC_ERROR_INTERNAL_ERROR";
  }
}

int nvrtcVersion(int* major, int* minor) {
  const std::string v = environment("LAZYT_SHIM_NVRTC_VERSION", "13.0");
  *major = std::atoi(v.c_str());
  *minor = std::atoi(v.substr(v.find('.') + 1).c_str());
  return kSuccess;
}

int nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(std::size(kArchitectures));
  return kSuccess;
}

int nvrtcGetSupportedArchs(int* out) {
  std::copy(std::begin(kArchitectures), std::end(kArchitectures), out);
  return kSuccess;
}

int nvrtcCreateProgram(void** out, const char* source, const char* name, int headers, const char* const*,
                       const char* const*) {
  if (!out || !source || headers != 0) return kInvalidInput;
  *out = new Program{source, name && *name ? name : "default_program", {}, {}};
  return kSuccess;
}

int nvrtcDestroyProgram(void** program) {
  if (!program || !*program) return kInvalidProgram;
  delete program_of(*program);
  *program = nullptr;
  return kSuccess;
}

int nvrtcCompileProgram(void* program, int count, const char* const* options) {
  if (!program) return kInvalidProgram;
  Program& p = *program_of(program);
  p.log.clear();
  for (int i = 0; i < count; ++i)
    if (!known_option(options[i], p.log)) return kInvalidOption;
  static const std::regex include("(^|\n)[ \t]*#[ \t]*include");
  if (std::regex_search(p.source, include)) {
    p.log = "a source without include path includes a file\n";
    return kCompilation;
  }
  try {
    return compile(p);
  } catch (const std::exception& e) {
    p.log = e.what();
    return kInternal;
  }
}

int nvrtcGetCUBINSize(void* program, size_t* size) {
  if (!program || !program_of(program)->compiled) return kInvalidProgram;
  *size = program_of(program)->image.size();
  return kSuccess;
}

int nvrtcGetCUBIN(void* program, char* out) {
  if (!program || !program_of(program)->compiled) return kInvalidProgram;
  std::memcpy(out, program_of(program)->image.data(), program_of(program)->image.size());
  return kSuccess;
}

int nvrtcGetPTXSize(void* program, size_t* size) {
  if (!program || !program_of(program)->compiled) return kInvalidProgram;
  *size = program_of(program)->source.size() + 1;
  return kSuccess;
}

int nvrtcGetPTX(void* program, char* out) {
  if (!program || !program_of(program)->compiled) return kInvalidProgram;
  std::memcpy(out, program_of(program)->source.c_str(), program_of(program)->source.size() + 1);
  return kSuccess;
}

int nvrtcGetProgramLogSize(void* program, size_t* size) {
  if (!program) return kInvalidProgram;
  *size = program_of(program)->log.size() + 1;
  return kSuccess;
}

int nvrtcGetProgramLog(void* program, char* out) {
  if (!program) return kInvalidProgram;
  std::memcpy(out, program_of(program)->log.c_str(), program_of(program)->log.size() + 1);
  return kSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
