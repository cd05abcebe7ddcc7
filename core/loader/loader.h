// Loader: finds plugins, loads the one the user chose, and can say why each other one was not.
//
// Search order (first hit per name wins; every candidate is in the report):
//   1. the path given to load()            4. beside liblazyt.so: ./plugins and ../plugins and "."
//   2. LAZYT_BACKEND, if it is a path      5. $XDG_DATA_HOME/lazyt/plugins (or ~/.local/share/...)
//   3. LAZYT_PLUGIN_PATH, ':' between      6. /usr/local/lib/lazyt/plugins, /usr/lib/lazyt/plugins
//                                          7. folders of add_folder: Python's entry points
// Never the current directory (empty and relative entries are refused by name); 2, 3 and 5 are
// ignored when privileges are elevated; world-writable libraries are refused. policy.h says what else is.
// A folder is read for `*.json` manifests (no dlopen) and for `lazyt_<name>.so` without one.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "loader/handles.h"

namespace lazyt::loader {

// Why a candidate was refused. The text form (reason_name) is stable: scripts and tests match it.
enum class Reason {
  kLoaded,            // "loaded"
  kFound,             // "found": seen, not tried
  kFileMissing,       // "file-missing"
  kBadManifest,       // "bad-manifest"
  kUntrustedPath,     // "untrusted-path"
  kNotALibrary,       // "not-a-library"
  kWrongArchitecture, // "wrong-architecture"
  kMissingDependency, // "missing-dependency"
  kUndefinedSymbol,   // "undefined-symbol"
  kNoEntry,           // "no-entry"
  kEntryFailed,       // "entry-failed"
  kAbiMajor,          // "abi-major"
  kAbiDraft,          // "abi-draft"
  kHostTooOld,        // "host-too-old"
  kStructTooShort,    // "struct-too-short"
  kMissingSlot,       // "missing-slot"
  kHandshake,         // "handshake"
  kInitFailed,        // "init-failed"
  kNoDevice,          // "no-device"
  kDuplicateName,     // "duplicate-name"
  kCrashed,           // "crashed": a helper process died of it (`lazyt doctor`)
  kHung,              // "hung": a helper process ran out of time
  kBadLayers,         // "bad-layers": LAZYT_LAYERS cannot be kept
  kStackOverflow,     // "stack-overflow": as crashed, and known to be for want of stack
  kDisabled,          // "disabled": LAZYT_PLUGIN_DISABLE or _SELECT
  kNotAllowed,        // "not-allowed": LAZYT_PLUGIN_ALLOW
  kNotConformant,     // "not-conformant": LAZYT_REQUIRE_CONFORMANCE
  kQuarantined,       // "quarantined": it crashed or hung under `lazyt doctor`
};
const char* reason_name(Reason reason);
// What a person can do about it, one sentence.
const char* reason_hint(Reason reason);

// What `lazyt conformance --verdict` wrote into a manifest.
struct Verdict {
  std::string profile;  // "core" or "full"; empty = none
  std::string suite;    // the version of lazyt that judged
  std::string library;  // SHA-256 of what was judged
};

struct Candidate {
  std::string name;      // backend name; from manifest or file name until known
  std::string path;      // library (or manifest, when that is what is wrong)
  std::string found_by;  // "LAZYT_BACKEND", "LAZYT_PLUGIN_PATH", "beside the library", ...
  std::string step;      // the step that failed or the last one done: "manifest", "open", "entry", "handshake", ...
  Reason reason = Reason::kFound;
  std::string detail;
  int32_t score = 0;
  Verdict verdict = {};
};

struct Report {
  std::string requested;  // LAZYT_BACKEND or the argument; empty = automatic
  std::vector<Candidate> candidates;
  std::string to_text() const;  // a few lines per candidate, with hints
  std::string to_json() const;
};

// Loads a backend. `requested`: a name, a path (contains '/'), or a comma list in order of
// preference; empty = LAZYT_BACKEND; both empty = the highest score among plugins with a device.
// A named backend that cannot be loaded is an error that holds the whole report's text; there is
// no silent fallback. Loading the same library twice gives the same Plugin. variable: the environment variable that
// `requested` was read from, if any. [any thread]
base::Result<base::Ref<Plugin>> load(const std::string& requested = {}, Report* report = nullptr,
                                     const char* variable = nullptr);

// How many devices the plugin has. [any thread]
base::Result<uint32_t> device_count(const Plugin& plugin);

// Everything that can be found, without loading a library that has a manifest.
Report list();

// A folder to search after all others, for the rest of the process. path: absolute. [any thread]
void add_folder(std::string path, std::string found_by);

// For `lazyt doctor`, which calls it in a helper process: tries one candidate of list() as far as it
// goes; its step, reason and detail then say how far that was. The plugin, if it has a device.
base::Ref<Plugin> probe(Candidate& candidate);
// The candidate of a path (library or manifest), not tried.
Candidate candidate(const std::string& path);

}  // namespace lazyt::loader
