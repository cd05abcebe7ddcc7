#include "loader/library.h"

#include <dlfcn.h>
#include <elf.h>

#include <condition_variable>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>

#include <fmt/format.h>

#include "base/env.h"
#include "base/log.h"
#include "loader/search.h"

namespace lazyt::loader {
namespace {

// Running plugins by library; null for one that hung while it was started or ended. A plugin that is going away removes itself when its library is closed;
// whoever wants it again waits for that.
struct Registry {
  std::mutex mutex;
  std::condition_variable removed;
  std::map<void*, const Plugin*> plugins;
};
Registry& registry() {
  static auto* r = new Registry;  // plugins may go away after static destructors
  return *r;
}

struct Failure {
  Reason reason;
  std::string detail;
};
using Check = std::optional<Failure>;

// --- the file -------------------------------------------------------------------------------

struct ElfKind {
  uint8_t width = 0, order = 0;
  uint16_t type = 0, machine = 0;
};

std::optional<ElfKind> elf_kind(const std::string& path) {
  unsigned char h[20] = {};
  std::ifstream in(path, std::ios::binary);
  if (!in.read(reinterpret_cast<char*>(h), sizeof h) || std::memcmp(h, ELFMAG, SELFMAG) != 0) return std::nullopt;
  auto u16 = [&](int i) { return uint16_t(h[EI_DATA] == ELFDATA2MSB ? h[i] << 8 | h[i + 1] : h[i + 1] << 8 | h[i]); };
  return ElfKind{h[EI_CLASS], h[EI_DATA], u16(16), u16(18)};
}

std::string machine_name(uint16_t machine) {
  switch (machine) {
    case EM_386: return "i386";
    case EM_X86_64: return "x86-64";
    case EM_ARM: return "arm";
    case EM_AARCH64: return "aarch64";
    case EM_RISCV: return "riscv";
    case EM_PPC64: return "ppc64";
    case EM_S390: return "s390";
    default: return fmt::format("ELF machine {}", machine);
  }
}

Check check_elf(const std::string& path) {
  auto file = elf_kind(path);
  if (!file) return Failure{Reason::kNotALibrary, "the file does not begin with an ELF header"};
  static const std::optional<ElfKind> own = elf_kind("/proc/self/exe");
  if (own && (file->machine != own->machine || file->width != own->width || file->order != own->order))
    return Failure{Reason::kWrongArchitecture,
                   fmt::format("the library is for {}, {}-bit; this process is {}, {}-bit", machine_name(file->machine),
                               file->width == ELFCLASS64 ? 64 : 32, machine_name(own->machine),
                               own->width == ELFCLASS64 ? 64 : 32)};
  if (file->type != ET_DYN) return Failure{Reason::kNotALibrary, "the file is ELF, but not a shared library"};
  return {};
}

// The dynamic linker says what is wrong in words only.
Reason reason_of_dlerror(std::string_view text) {
  auto has = [&](std::string_view part) { return text.find(part) != text.npos; };
  if (has("undefined symbol")) return Reason::kUndefinedSymbol;
  if (has("cannot open shared object file") || (has("version `") && has("not found"))) return Reason::kMissingDependency;
  return Reason::kNotALibrary;
}

// --- the table ------------------------------------------------------------------------------

// Tables must reach to the last slot of minor 0; `slots` are those that may not be NULL (LIB-5).
struct Slot {
  const char* name;
  bool filled;
};

Check check_slots(const char* table, std::initializer_list<Slot> slots) {
  for (const Slot& s : slots)
    if (!s.filled) return Failure{Reason::kMissingSlot, fmt::format("{}.{} is NULL, but is required", table, s.name)};
  return {};
}

template <class T>
Check check_table(const char* name, const T* table, uint64_t size) {
  if (!table) return Failure{Reason::kMissingSlot, fmt::format("the table '{}' is NULL, but is required", name)};
  if (table->struct_size < size)
    return Failure{Reason::kStructTooShort,
                   fmt::format("the table '{}' has {} bytes, at least {} are needed", name, table->struct_size, size)};
  return {};
}

#define LAZYT_END_OF(type, field) (offsetof(type, field) + sizeof(type::field))
#define LAZYT_SLOT(table, field) Slot { #field, (table)->field != nullptr }
#define LAZYT_CHECK(expr) \
  if (Check failure = (expr)) return failure

Check check_version(const lazyt_plugin_t* p) {
  if (p->struct_size < offsetof(lazyt_plugin_t, handshake))
    return Failure{Reason::kStructTooShort, fmt::format("lazyt_plugin_t has {} bytes", p->struct_size)};
  if (p->abi_major != LAZYT_ABI_MAJOR)
    return Failure{Reason::kAbiMajor, fmt::format("built for ABI {}.{}, this host has {}.{}", p->abi_major, p->abi_minor,
                                                  LAZYT_ABI_MAJOR, LAZYT_ABI_MINOR)};
  if (p->abi_draft != LAZYT_ABI_DRAFT)
    return Failure{Reason::kAbiDraft, fmt::format("built for draft {} of ABI {}, this host has draft {}", p->abi_draft,
                                                  p->abi_major, LAZYT_ABI_DRAFT)};
  if (p->min_host_minor > LAZYT_ABI_MINOR)
    return Failure{Reason::kHostTooOld, fmt::format("needs a host of ABI {}.{} or later, this one has {}.{}", p->abi_major,
                                                    p->min_host_minor, LAZYT_ABI_MAJOR, LAZYT_ABI_MINOR)};
  return check_table("plugin", p, LAZYT_END_OF(lazyt_plugin_t, executable));
}

Check check_handshake(const lazyt_plugin_t* p, const Subject& subject) {
  if (!p->handshake) return Failure{Reason::kMissingSlot, "plugin.handshake is NULL, but is required"};
  lazyt_handshake_t mine{};
  lazyt_handshake_fill(&mine);
  // Room behind: a plugin of a later minor fills a longer struct.
  struct {
    union {
      lazyt_handshake_t fields;
      char room[1024];
    };
    uint64_t answer;
  } theirs;
  std::memset(&theirs, 0, sizeof theirs);
  theirs.fields.struct_size = sizeof theirs.room;
  constexpr uint64_t seed = 0x0123456789abcdef;
  base::Status called = call(subject, "plugin.handshake", theirs, [p](auto& out) -> lazyt_status_t* {
    out.answer = p->handshake(seed, &out.fields);
    return nullptr;
  });
  if (!called.ok()) return Failure{subject.lost() ? Reason::kHung : Reason::kHandshake, called.to_string()};
  const uint64_t answer = theirs.answer;
  if (answer == seed) return Failure{Reason::kHandshake, "answered with the seed itself; it must return seed ^ LAZYT_HANDSHAKE_MASK"};
  if (answer != (seed ^ LAZYT_HANDSHAKE_MASK))
    return Failure{Reason::kHandshake, fmt::format("answered {:#x} to {:#x}, expected {:#x}: 64-bit arguments do not cross", answer,
                                                   seed, seed ^ LAZYT_HANDSHAKE_MASK)};
  const lazyt_handshake_t& t = theirs.fields;
  struct Field {
    const char* what;
    uint64_t plugin, host;
    bool grows;  // tables and records may differ between minors
  };
  const Field fields[] = {
      {"byte order", t.byte_order, mine.byte_order, false},
      {"size of a pointer", t.size_pointer, mine.size_pointer, false},
      {"size of an enum", t.size_enum, mine.size_enum, false},
      {"alignment of uint64_t", t.align_u64, mine.align_u64, false},
      {"alignment of double", t.align_double, mine.align_double, false},
      {"size of lazyt_string_t", t.size_string, mine.size_string, false},
      {"size of lazyt_value_t", t.size_value, mine.size_value, true},
      {"size of lazyt_node_t", t.size_node, mine.size_node, true},
      {"size of lazyt_arg_t", t.size_arg, mine.size_arg, true},
      {"size of lazyt_program_t", t.size_program, mine.size_program, true},
      {"size of lazyt_execute_input_t", t.size_execute_input, mine.size_execute_input, true},
      {"size of lazyt_execute_args_t", t.size_execute_args, mine.size_execute_args, true},
      {"size of lazyt_answer_t", t.size_answer, mine.size_answer, true},
      {"size of lazyt_host_t", t.size_host, mine.size_host, true},
      {"size of lazyt_host_services_t", t.size_services, mine.size_services, true},
      {"size of lazyt_host_status_t", t.size_status, mine.size_status, true},
      {"size of lazyt_plugin_t", t.size_plugin, mine.size_plugin, true},
      {"size of lazyt_plugin_buffer_t", t.size_buffer_table, mine.size_buffer_table, true},
      {"size of lazyt_plugin_event_t", t.size_event_table, mine.size_event_table, true},
      {"size of lazyt_plugin_device_t", t.size_device_table, mine.size_device_table, true},
      {"size of lazyt_plugin_executable_t", t.size_executable_table, mine.size_executable_table, true},
  };
  for (const Field& f : fields) {
    const bool fits = f.plugin == f.host || (f.grows && p->abi_minor != LAZYT_ABI_MINOR &&
                                             (p->abi_minor > LAZYT_ABI_MINOR) == (f.plugin > f.host));
    if (!fits)
      return Failure{Reason::kHandshake, fmt::format("{} is {} in the plugin and {} in the host", f.what, f.plugin, f.host)};
  }
  return {};
}

Check check_tables(const lazyt_plugin_t* p) {
  LAZYT_CHECK(check_slots("plugin", {LAZYT_SLOT(p, init), LAZYT_SLOT(p, shutdown), LAZYT_SLOT(p, info)}));
  const auto* d = p->device;
  LAZYT_CHECK(check_table("device", d, LAZYT_END_OF(lazyt_plugin_device_t, trim)));
  LAZYT_CHECK(check_slots("device", {LAZYT_SLOT(d, count), LAZYT_SLOT(d, describe), LAZYT_SLOT(d, open),
                                     LAZYT_SLOT(d, close), LAZYT_SLOT(d, memory_stats)}));
  const auto* b = p->buffer;
  LAZYT_CHECK(check_table("buffer", b, LAZYT_END_OF(lazyt_plugin_buffer_t, release)));
  LAZYT_CHECK(check_slots("buffer", {LAZYT_SLOT(b, alloc), LAZYT_SLOT(b, from_host), LAZYT_SLOT(b, to_host),
                                     LAZYT_SLOT(b, copy), LAZYT_SLOT(b, size), LAZYT_SLOT(b, release)}));
  const auto* e = p->event;
  LAZYT_CHECK(check_table("event", e, LAZYT_END_OF(lazyt_plugin_event_t, release)));
  LAZYT_CHECK(check_slots("event", {LAZYT_SLOT(e, ready), LAZYT_SLOT(e, wait), LAZYT_SLOT(e, on_ready),
                                    LAZYT_SLOT(e, retain), LAZYT_SLOT(e, release)}));
  const auto* c = p->capability;
  LAZYT_CHECK(check_table("capability", c, LAZYT_END_OF(lazyt_plugin_capability_t, query)));
  LAZYT_CHECK(check_slots("capability", {LAZYT_SLOT(c, query)}));
  const auto* x = p->executable;
  LAZYT_CHECK(check_table("executable", x, LAZYT_END_OF(lazyt_plugin_executable_t, release)));
  return check_slots("executable", {LAZYT_SLOT(x, compile), LAZYT_SLOT(x, output_meta), LAZYT_SLOT(x, memory),
                                    LAZYT_SLOT(x, execute), LAZYT_SLOT(x, release)});
}

std::string no_entry_detail(void* library, Reason& reason) {
  for (int major = LAZYT_ABI_MAJOR + 1; major < LAZYT_ABI_MAJOR + 10; major++) {
    const std::string name = fmt::format("lazyt_plugin_entry_v{}", major);
    if (!dlsym(library, name.c_str())) continue;
    reason = Reason::kAbiMajor;
    return fmt::format("exports {}: built for ABI {}, this host has {}.{}", name, major, LAZYT_ABI_MAJOR, LAZYT_ABI_MINOR);
  }
  return fmt::format("does not export {}", LAZYT_PLUGIN_ENTRY_NAME);
}

base::Ref<Plugin> refuse(Candidate& c, Reason reason, std::string detail) {
  c.reason = reason;
  c.detail = std::move(detail);
  return nullptr;
}

PluginInfo read_info(const lazyt_plugin_t* table, const lazyt_plugin_info_t& raw, const std::string& path) {
  PluginInfo info;
  info.name = to_string(raw.name);
  info.version = to_string(raw.version);
  info.description = to_string(raw.description);
  info.vendor = to_string(raw.vendor);
  info.why_none = to_string(raw.why_none);
  info.score = raw.score;
  info.abi_minor = table->abi_minor;
  info.min_host_minor = table->min_host_minor;
  info.path = path;
  return info;
}

// False if it did not come back.
bool shut_down(const Subject& subject, const lazyt_plugin_t* table) {
  return call(subject, "plugin.shutdown", [table]() -> lazyt_status_t* { return table->shutdown(), nullptr; }).ok();
}

// Closes the library unless released.
struct Library {
  void* handle;
  ~Library() {
    if (handle) dlclose(handle);
  }
  void* release() { return std::exchange(handle, nullptr); }
};

}  // namespace

base::Ref<Plugin> open_library(Candidate& c) {
  const std::string promised = c.step == "manifest" ? c.name : "";
  c.step = "file";
  if (!check_file(c.path, c)) return nullptr;
  if (Check failure = check_elf(c.path)) return refuse(c, failure->reason, failure->detail);

  Registry& r = registry();
  std::unique_lock lock(r.mutex);
  c.step = "open";
  std::unique_ptr<layers::Stack> layers;  // outlives the library
  Library library{dlopen(c.path.c_str(), RTLD_NOW | RTLD_LOCAL)};
  if (!library.handle) {
    const char* text = dlerror();
    const std::string detail = text ? text : "dlopen failed and gave no reason";
    return refuse(c, reason_of_dlerror(detail), detail);
  }
  while (true) {
    auto it = r.plugins.find(library.handle);
    if (it == r.plugins.end()) break;
    if (!it->second)
      return refuse(c, Reason::kHung, "a call into it did not come back in this process; it starts again in a new one only");
    if (it->second->try_retain()) {
      base::Ref<Plugin> running(const_cast<Plugin*>(it->second));
      it->second->release();  // Ref took its own
      c.step = "ready";
      c.reason = Reason::kLoaded;
      c.name = running->info.name;
      c.score = running->info.score;
      return running;
    }
    if (it->second->subject->lost()) return refuse(c, Reason::kHung, it->second->subject->lost_status().to_string());
    r.removed.wait_for(lock, std::chrono::milliseconds(20));  // it may also hang on its way out
  }

  // A library with a call still inside stays, and is not tried again.
  const auto subject = base::make_ref<Subject>(c.name);
  auto stay_if_lost = [&] {
    if (!subject->lost()) return;
    r.plugins[library.release()] = nullptr;
    subject->keep(layers.release());
  };
  auto refuse_call = [&](Reason reason, const base::Status& status) {
    stay_if_lost();
    return refuse(c, subject->lost() ? Reason::kHung : reason, status.to_string());
  };
  c.step = "entry";
  void* symbol = dlsym(library.handle, LAZYT_PLUGIN_ENTRY_NAME);
  if (!symbol) {
    Reason reason = Reason::kNoEntry;
    std::string detail = no_entry_detail(library.handle, reason);
    return refuse(c, reason, std::move(detail));
  }
  base::Result<std::unique_ptr<layers::Stack>> between = layers::Stack::make(base::env("LAZYT_LAYERS").value_or(""));
  if (!between.ok()) return refuse(c, Reason::kBadLayers, std::string(between.status().message()));
  layers = std::move(between).value();
  const lazyt_host_t* host = layers ? layers->host_over(host_table()) : host_table();
  const lazyt_plugin_t* table = nullptr;
  base::Status status = call(*subject, "the entry", table, [symbol, host](const lazyt_plugin_t*& out) {
    return reinterpret_cast<lazyt_plugin_entry_v1_t>(symbol)(host, &out);
  });
  if (!status.ok()) return refuse_call(Reason::kEntryFailed, status);
  if (!table) return refuse(c, Reason::kEntryFailed, "the entry function succeeded without a table");
  c.step = "version";
  if (Check failure = check_version(table)) return refuse(c, failure->reason, failure->detail);
  c.step = "handshake";
  if (Check failure = check_handshake(table, *subject))
    return subject->lost() ? refuse_call(Reason::kHung, subject->lost_status()) : refuse(c, failure->reason, failure->detail);
  c.step = "tables";
  if (Check failure = check_tables(table)) return refuse(c, failure->reason, failure->detail);
  if (layers) table = layers->plugin_over(table);

  c.step = "init";
  status = call(*subject, "plugin.init", [table] { return table->init(); });
  if (!status.ok()) return refuse_call(Reason::kInitFailed, status);
  c.step = "info";
  lazyt_plugin_info_t raw{};
  raw.struct_size = sizeof raw;
  status = call(*subject, "plugin.info", raw, [table](lazyt_plugin_info_t& out) { return table->info(&out); });
  if (status.ok() && raw.name.size == 0) status = base::internal("plugin.info gave no name");
  if (!status.ok()) {
    (void)shut_down(*subject, table);
    return refuse_call(Reason::kInitFailed, status);
  }
  PluginInfo info = read_info(table, raw, c.path);
  if (!promised.empty() && promised != info.name) {
    (void)shut_down(*subject, table);
    stay_if_lost();
    return refuse(c, Reason::kBadManifest,
                  fmt::format("the manifest says '{}', the library says '{}'", promised, info.name));
  }
  c.step = "ready";
  c.reason = Reason::kLoaded;
  c.name = info.name;
  c.score = info.score;
  c.detail = info.description + (info.version.empty() ? "" : " (" + info.version + ")");
  void* handle = library.release();
  base::Ref<Plugin> plugin(new Plugin(handle, table, std::move(info), std::move(layers)));
  r.plugins[handle] = plugin.get();
  return plugin;
}

uint32_t count_devices(const Plugin& plugin, Candidate& c) {
  uint32_t count = 0;
  base::Status status = call(*plugin.subject, "device.count", count,
                             [t = plugin.table->device](uint32_t& out) { return t->count(&out); });
  if (status.ok() && count > 0) return count;
  c.step = "device";
  c.reason = Reason::kNoDevice;
  c.detail = !status.ok()                     ? status.to_string()
             : !plugin.info.why_none.empty() ? plugin.info.why_none
                                              : "the plugin found no device and gives no reason";
  return 0;
}

void close_library(const Plugin& plugin, void* library) {
  const bool ended = !library || shut_down(*plugin.subject, plugin.table);
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  if (library && ended) {
    r.plugins.erase(library);
    dlclose(library);
  } else if (library) {
    r.plugins[library] = nullptr;  // hung: cannot be unloaded, nor started again in this process
  }
  r.removed.notify_all();
}

}  // namespace lazyt::loader
