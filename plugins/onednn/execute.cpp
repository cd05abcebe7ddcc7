// Running an executable: on the calling thread and its OpenMP team, step after step.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <string_view>

#include "buffer.h"
#include "compile.h"
#include "kernels/streams.h"

namespace lazyt::onednn {
namespace {

using plugin::Error;
using plugin::Event;
using plugin::from_c;

Buffer& buffer_of(lazyt_buffer_t* handle, uint64_t needed, const char* what, size_t index) {
  if (!handle) throw Error(LAZYT_CODE_INVALID_ARGUMENT, std::string(what) + " " + std::to_string(index) + " has no buffer");
  Buffer& buffer = from_c(handle);
  if (buffer.size < needed) {
    throw Error(LAZYT_CODE_INVALID_ARGUMENT, std::string(what) + " " + std::to_string(index) + " needs " +
                                                 std::to_string(needed) + " bytes, its buffer has " +
                                                 std::to_string(buffer.size));
  }
  return buffer;
}

// Of weights that are packed one after the other, so many lie there twice at most.
constexpr uint64_t kManyBytes = uint64_t{8} << 20;

std::atomic<uint64_t> runs{0};

// The addresses of a run, and what keeps them there.
struct Addresses : Run {
  std::vector<std::byte*> storages;

  std::byte* hold(std::shared_ptr<Bytes> bytes) {
    std::byte* data = bytes->data();
    held.push_back(std::move(bytes));
    return data;
  }
  std::byte* of_input(Buffer& b) { return b.is_small() ? b.small() : hold(b.plain_to_read()); }
  std::byte* of_output(Buffer& b) { return b.is_small() ? b.small() : hold(b.plain_to_write()); }
};

// Where the processor time of the executing thread goes, for the developer: with LAZYT_ONEDNN_PROFILE=1 a table by
// kernel on stderr when the process ends, with =2 by kernel and the operator that it was made for.
class Profile {
 public:
  // Null without the option. Never destroyed: work may still run when statics are.
  static Profile* wanted() {
    static Profile* const profile = [] {
      const std::string_view option = plugin::option("onednn", "profile");
      if (option.empty() || option == "0") return static_cast<Profile*>(nullptr);
      std::atexit([] { wanted()->report(); });
      return new Profile(option == "2");
    }();
    return profile;
  }
  void run(const Executable& exe, size_t i, const Frame& frame) {
    const double begin = now_us();
    exe.steps[i]->run(frame);
    const double us = now_us() - begin;
    std::string key = exe.steps[i]->describe();
    if (by_node_ && exe.step_nodes[i] < exe.nodes.size()) key += " | " + exe.nodes[exe.step_nodes[i]];
    const std::lock_guard lock(mutex_);
    Entry& e = entries_[key];
    e.us += us;
    e.least = e.runs ? std::min(e.least, us) : us;
    ++e.runs;
  }

 private:
  struct Entry {
    double us = 0, least = 0;
    uint64_t runs = 0;
  };
  explicit Profile(bool by_node) : by_node_(by_node) {}
  void report() {
    const std::lock_guard lock(mutex_);
    std::vector<std::pair<std::string, Entry>> sorted(entries_.begin(), entries_.end());
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
    if (!sorted.empty()) std::fprintf(stderr, "%12s%10s%12s%12s  kernel\n", "total us", "runs", "mean us", "least us");
    for (const auto& [name, e] : sorted)
      std::fprintf(stderr, "%12.0f%10llu%12.2f%12.2f  %s\n", e.us, static_cast<unsigned long long>(e.runs),
                   e.us / static_cast<double>(e.runs), e.least, name.c_str());
  }
  static double now_us() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
  }
  const bool by_node_;
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

void run(const Executable& exe, const lazyt_execute_args_t& args) {
  using Kind = Executable::Piece::Kind;
  plugin::Records<lazyt_execute_input_t> inputs(args.inputs, args.input_count, args.input_stride);
  thread_local Addresses addresses;
  struct Release {
    ~Release() { addresses.held.clear(); }
  } release;
  addresses.number = ++runs;
  addresses.let_go = 0;
  std::vector<std::byte*>& storages = addresses.storages;
  storages.resize(exe.storages.size());
  auto input = [&](uint32_t i) -> Buffer& { return buffer_of(inputs[i].buffer, exe.inputs[i].size_bytes, "input", i); };
  for (const Executable::KeptPiece& piece : exe.kept) {
    input(piece.input);
    storages[piece.storage] = piece.kept->get(inputs[piece.input], exe.reads_bytes[piece.input], addresses);
    if (addresses.let_go < kManyBytes) continue;
    give_back_unused(exe.device);
    addresses.let_go = 0;
  }
  if (addresses.let_go) give_back_unused(exe.device);
  // Memory before the first step: a failure here has consumed nothing (EXE-6). And after weights were packed, which take theirs
  // for a moment twice.
  Memory arena(exe.device, exe.arena_bytes);
  auto output = [&](uint32_t o) { return addresses.of_output(buffer_of(args.outputs[o], exe.outputs[o].size_bytes, "output", o)); };
  for (size_t i = 0; i < exe.storages.size(); ++i) {
    const Executable::Piece& piece = exe.storages[i];
    switch (piece.kind) {
      case Kind::kInput: {
        storages[i] = nullptr;
        if (exe.inputs[piece.index].host_scalar) break;
        Buffer& buffer = input(piece.index);
        if (exe.reads_bytes[piece.index]) storages[i] = addresses.of_input(buffer);
        break;
      }
      case Kind::kOutput: storages[i] = output(piece.index); break;
      case Kind::kConstant: storages[i] = exe.constant_memory.data() + piece.offset; break;
      case Kind::kKept: break;  // above
      case Kind::kArena: storages[i] = arena.data() + piece.offset; break;
      case Kind::kBeside:
        storages[i] = args.outputs[piece.index] == inputs[exe.outputs[piece.index].donor].buffer ? arena.data() + piece.offset
                                                                                                 : output(piece.index);
        break;
    }
  }
  const Frame frame{storages.data(), args.inputs, args.input_stride, thread_count()};
  Profile* profile = Profile::wanted();
  for (size_t i = 0; i < exe.steps.size(); ++i) {
    try {
      if (profile) {
        profile->run(exe, i, frame);
      } else {
        exe.steps[i]->run(frame);
      }
    } catch (...) {
      if (exe.step_nodes[i] >= exe.nodes.size()) throw;
      throw plugin::current_error().note(exe.nodes[exe.step_nodes[i]], "while it ran");
    }
  }
  end_of_streams();
}

}  // namespace

lazyt_status_t* execute(lazyt_executable_t* handle, const lazyt_execute_args_t* args, lazyt_event_t** out_event) {
  return plugin::guard([&] {
    const Executable& exe = from_c(handle);
    plugin::require(args->input_count == exe.inputs.size(), "execute: wrong number of inputs");
    plugin::require(args->output_count == exe.outputs.size(), "execute: wrong number of outputs");
    lazyt_status_t* status = plugin::take_events(args->waits);
    if (!status) status = plugin::guard([&] { run(exe, *args); });
    *out_event = Event::make_ready(status)->handle();
  });
}

}  // namespace lazyt::onednn
