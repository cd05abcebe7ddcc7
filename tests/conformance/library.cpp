// The library, its one symbol, the handshake and the plugin's table.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "loader/handles.h"
#include "suite.h"

namespace lazyt::conformance {
namespace {

using Library = DevicelessCase;

struct Symbol {
  std::string name;
  bool defined;
};

// Global dynamic symbols of a 64-bit ELF file, without versions' own names.
std::vector<Symbol> dynamic_symbols(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<Symbol> out;
  if (bytes.size() < sizeof(Elf64_Ehdr)) return out;
  auto* header = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
  if (header->e_shoff == 0 || header->e_shoff + header->e_shnum * sizeof(Elf64_Shdr) > bytes.size())
    return out;
  auto* sections = reinterpret_cast<const Elf64_Shdr*>(bytes.data() + header->e_shoff);
  for (int i = 0; i < header->e_shnum; i++) {
    if (sections[i].sh_type != SHT_DYNSYM) continue;
    const char* names = bytes.data() + sections[sections[i].sh_link].sh_offset;
    auto* symbols = reinterpret_cast<const Elf64_Sym*>(bytes.data() + sections[i].sh_offset);
    for (size_t k = 1; k < sections[i].sh_size / sizeof(Elf64_Sym); k++) {
      const int bind = ELF64_ST_BIND(symbols[k].st_info), seen = ELF64_ST_VISIBILITY(symbols[k].st_other);
      if (bind == STB_LOCAL || seen == STV_HIDDEN || symbols[k].st_shndx == SHN_ABS) continue;
      out.push_back({names + symbols[k].st_name, symbols[k].st_shndx != SHN_UNDEF});
    }
  }
  return out;
}

int count_threads() {
  int n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) n++;
  return n;
}

LAZYT_CASE(Library, ExportsItsEntryAlone, "LIB-1") {
  std::string exported;
  for (const Symbol& s : dynamic_symbols(options().plugin))
    if (s.defined) exported += (exported.empty() ? "" : ", ") + s.name;
  keeps("LIB-1", exported == LAZYT_PLUGIN_ENTRY_NAME, "read the library's dynamic symbols",
        LAZYT_PLUGIN_ENTRY_NAME, exported);
}

LAZYT_CASE(Library, NeedsNoSymbolOfTheHost, "LIB-2") {
  std::string needed;
  for (const Symbol& s : dynamic_symbols(options().plugin))
    if (!s.defined && s.name.find("lazyt") != std::string::npos) needed += " " + s.name;
  keeps("LIB-2", needed.empty(), "read the library's undefined symbols", "none of the host's", needed);
}

LAZYT_CASE(Library, LoadingIsQuiet, "LIB-3") {
  // In a process of its own: this one has loaded it already.
  int output[2], answer[2];
  ASSERT_EQ(pipe(output), 0);
  ASSERT_EQ(pipe(answer), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    dup2(output[1], 1);
    dup2(output[1], 2);
    const std::string program = "/proc/self/exe", path = options().plugin, fd = std::to_string(answer[1]);
    execl(program.c_str(), program.c_str(), "--load-only", path.c_str(), fd.c_str(), nullptr);
    _exit(1);
  }
  close(output[1]);
  close(answer[1]);
  std::string printed;
  char buffer[256];
  for (ssize_t n; (n = read(output[0], buffer, sizeof buffer)) > 0;)
    printed.append(buffer, static_cast<size_t>(n));
  int threads = -1;
  if (read(answer[0], &threads, sizeof threads) != sizeof threads) threads = -1;
  close(output[0]);
  close(answer[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  const std::string did = "opened the library and called its entry in a new process";
  keeps("LIB-3", WIFEXITED(status) && WEXITSTATUS(status) == 0, did, "success",
        fmt::format("status {:#x}", status));
  keeps("LIB-3", printed.empty(), did, "nothing printed", printed);
  keeps("LIB-3", threads == 1, did, "one thread, as before", fmt::format("{} threads", threads));
}

LAZYT_CASE(Library, HandshakeAnswers, "LIB-4") {
  lazyt_handshake_t mine{};
  lazyt_handshake_fill(&mine);
  for (uint64_t seed : {UINT64_C(0), UINT64_C(1), UINT64_C(0x8000000000000000), UINT64_MAX, options().seed}) {
    union {
      lazyt_handshake_t fields;
      char room[1024];
    } theirs;
    std::memset(&theirs, 0, sizeof theirs);
    theirs.fields.struct_size = sizeof theirs;
    const uint64_t answer = plugin().handshake(seed, &theirs.fields);
    keeps("LIB-4", answer == (seed ^ LAZYT_HANDSHAKE_MASK), fmt::format("handshake({:#x})", seed),
          fmt::format("{:#x}", seed ^ LAZYT_HANDSHAKE_MASK), fmt::format("{:#x}", answer));
    const size_t first = offsetof(lazyt_handshake_t, byte_order),
                 end = offsetof(lazyt_handshake_t, size_string);
    keeps("LIB-4", std::memcmp(theirs.room + first, reinterpret_cast<char*>(&mine) + first, end - first) == 0,
          "compared what both compilers make of basic types", "the same", "a difference");
  }
}

LAZYT_CASE(Library, RequiredSlotsAreFilled, "LIB-5") {
  const lazyt_plugin_t& p = plugin();
  auto slot = [&](const char* slot_name, bool filled) {
    keeps("LIB-5", filled, fmt::format("looked at {}", slot_name), "a function", "NULL");
  };
#define SLOT(table, field) slot(#table "." #field, p.table->field != nullptr)
  slot("handshake", p.handshake), slot("init", p.init), slot("shutdown", p.shutdown), slot("info", p.info);
  SLOT(device, count), SLOT(device, describe), SLOT(device, open), SLOT(device, close),
      SLOT(device, memory_stats);
  SLOT(buffer, alloc), SLOT(buffer, from_host), SLOT(buffer, to_host), SLOT(buffer, copy), SLOT(buffer, size),
      SLOT(buffer, release);
  SLOT(event, ready), SLOT(event, wait), SLOT(event, on_ready), SLOT(event, retain), SLOT(event, release);
  SLOT(capability, query);
  SLOT(executable, compile), SLOT(executable, output_meta), SLOT(executable, memory),
      SLOT(executable, execute), SLOT(executable, release);
#undef SLOT
}

LAZYT_CASE(Library, TablesSayTheirSize, "C-1", "C-2") {
  const lazyt_plugin_t& p = plugin();
  auto size = [&](const char* table, uint64_t got, uint64_t least) {
    keeps("C-1", got >= least && got < 65536, fmt::format("read struct_size of {}", table),
          fmt::format("{} or more", least), fmt::format("{}", got));
  };
  size("lazyt_plugin_t", p.struct_size, offsetof(lazyt_plugin_t, executable) + sizeof(void*));
  size("device", p.device->struct_size, offsetof(lazyt_plugin_device_t, trim));
  size("buffer", p.buffer->struct_size, sizeof(lazyt_plugin_buffer_t));
  size("event", p.event->struct_size, sizeof(lazyt_plugin_event_t));
  size("capability", p.capability->struct_size, sizeof(lazyt_plugin_capability_t));
  size("executable", p.executable->struct_size, sizeof(lazyt_plugin_executable_t));
  keeps("C-2", p.abi_major == LAZYT_ABI_MAJOR && p.min_host_minor <= p.abi_minor, "read the versions",
        fmt::format("major {}, and needs no later minor than it was built with", LAZYT_ABI_MAJOR),
        fmt::format("{}.{}, needs {}", p.abi_major, p.abi_minor, p.min_host_minor));
}

LAZYT_CASE(Library, UnknownExtensionsAreNull, "LIB-7") {
  if (!plugin().get_extension) return unsupported("has no extensions");
  for (std::string_view id : {"", "lazyt.no_such_thing/1", "com.example.unknown/7"})
    keeps("LIB-7", plugin().get_extension(loader::to_abi(id)) == nullptr,
          fmt::format("get_extension(\"{}\")", id), "NULL", "a table");
}

LAZYT_CASE(Library, InfoNamesIt, "LIB-8", "C-1") {
  struct {
    lazyt_plugin_info_t info;
    uint8_t behind[32];
  } room;
  std::memset(&room, kStale, sizeof room);
  room.info = {};
  room.info.struct_size = sizeof room.info;
  MUST(ok("LIB-8", "info", plugin().info(&room.info)));
  const std::string got = loader::to_string(room.info.name);
  keeps("LIB-8", !got.empty() && got.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == got.npos,
        "info", "a name in [a-z0-9_]", got);
  std::string stem = std::filesystem::path(options().plugin).stem();
  const std::string manifest = std::filesystem::path(options().plugin).replace_extension(".json");
  if (std::filesystem::exists(manifest) && stem.rfind("lazyt_", 0) == 0)
    keeps("LIB-8", stem.substr(6) == got, "compared with the name of the library and its manifest",
          stem.substr(6), got);
  for (uint8_t b : room.behind)
    if (!keeps("C-1", b == kStale, "info with the struct_size of this host", "no byte behind it is written",
               "one is"))
      break;
}

}  // namespace

// A new process started by LoadingIsQuiet comes here, before anything of the suite runs.
int load_only(const char* library, int answer) {
  const int before = count_threads();
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return 1;
  auto entry = reinterpret_cast<lazyt_plugin_entry_v1_t>(dlsym(handle, LAZYT_PLUGIN_ENTRY_NAME));
  const lazyt_plugin_t* table = nullptr;
  if (!entry || entry(host(), &table) != nullptr) return 1;
  const int threads = count_threads() - before + 1;
  return write(answer, &threads, sizeof threads) == sizeof threads ? 0 : 1;
}

}  // namespace lazyt::conformance
