// lazyt replay: the calls of a recorded run, once more, on any backend; without Python and PyTorch.
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "base/hash.h"
#include "ir/program.h"
#include "ir/shapes.h"
#include "layers/recording.h"
#include "loader/loader.h"
#include "verbs.h"

namespace lazyt::tools {
namespace {

using layers::Record;
using layers::Recorded;

class Player {
 public:
  explicit Player(base::Ref<loader::Plugin> plugin) : plugin_(std::move(plugin)) {}

  base::Status play(const Record& r) {
    const std::vector<uint64_t>& w = r.words;
    switch (r.kind) {
      case Recorded::kDevice: {
        LAZYT_ASSIGN_OR_RETURN(devices_[w[0]], loader::Device::open(plugin_, static_cast<uint32_t>(w[1])));
        return {};
      }
      case Recorded::kAlloc: {
        LAZYT_ASSIGN_OR_RETURN(auto device, find(devices_, w[1]));
        LAZYT_ASSIGN_OR_RETURN(buffers_[w[0]], loader::Buffer::alloc(device, w[2], w[3], static_cast<uint32_t>(w[4])));
        return {};
      }
      case Recorded::kFromHost: return from_host(r);
      case Recorded::kCompile: {
        LAZYT_ASSIGN_OR_RETURN(auto device, find(devices_, w[1]));
        LAZYT_ASSIGN_OR_RETURN(auto program, ir::Program::from_bytes(r.bytes));
        LAZYT_RETURN_IF_ERROR(ir::verify_shapes(program->to_graph()));
        LAZYT_ASSIGN_OR_RETURN(executables_[w[0]], loader::Executable::compile(device, *program, w[2]));
        programs++;
        return {};
      }
      case Recorded::kExecute: return execute(r);
      case Recorded::kToHost: return to_host(r);
      case Recorded::kCopy: {
        LAZYT_ASSIGN_OR_RETURN(auto src, find(buffers_, w[0]));
        LAZYT_ASSIGN_OR_RETURN(auto dst, find(buffers_, w[2]));
        LAZYT_ASSIGN_OR_RETURN(auto event, dst->copy_from(*src, w[1], w[3], w[4], nullptr));
        return event ? event->wait() : base::Status();
      }
      case Recorded::kReleaseBuffer: buffers_.erase(w[0]); return {};
      case Recorded::kReleaseExecutable: executables_.erase(w[0]); return {};
      case Recorded::kCloseDevice: devices_.erase(w[0]); return {};
    }
    return base::invalid_argument("a record of a kind that this lazyt does not know");
  }

  int programs = 0, launches = 0, reads = 0, differ = 0;
  bool has_data = true;

 private:
  template <class T>
  static base::Result<base::Ref<T>> find(const std::map<uint64_t, base::Ref<T>>& objects, uint64_t number) {
    auto it = objects.find(number);
    if (it == objects.end()) return base::invalid_argument(fmt::format("object {} is used and was not made", number));
    return it->second;
  }

  base::Status from_host(const Record& r) {
    LAZYT_ASSIGN_OR_RETURN(auto device, find(devices_, r.words[1]));
    std::vector<uint8_t> zeros;
    const bool here = r.bytes.size() == r.words[2];
    has_data &= here;
    if (!here) zeros.resize(r.words[2]);
    const std::vector<uint8_t>& bytes = here ? r.bytes : zeros;
    LAZYT_ASSIGN_OR_RETURN(buffers_[r.words[0]], loader::Buffer::from_host(device, bytes.data(), bytes.size()));
    return {};
  }

  base::Status execute(const Record& r) {
    LAZYT_ASSIGN_OR_RETURN(auto executable, find(executables_, r.words[0]));
    std::vector<loader::ExecuteInput> inputs(r.words[1]);
    std::vector<const loader::Buffer*> outputs;
    const uint64_t* w = r.words.data() + 3;
    for (loader::ExecuteInput& in : inputs) {
      if (w[0]) {
        LAZYT_ASSIGN_OR_RETURN(auto buffer, find(buffers_, w[0]));
        in.buffer = buffer.get();
      }
      in.donated = w[1] & LAZYT_EXECUTE_DONATED;
      in.stable_id = w[2];
      in.content_version = w[3];
      std::memcpy(in.scalar.bytes, w + 4, sizeof in.scalar.bytes);
      w += layers::kInputWords;
    }
    for (uint64_t i = 0; i < r.words[2]; i++) {
      LAZYT_ASSIGN_OR_RETURN(auto buffer, find(buffers_, w[i]));
      outputs.push_back(buffer.get());
    }
    LAZYT_ASSIGN_OR_RETURN(auto event, executable->execute(inputs, outputs, {}));
    launches++;
    return event->wait();
  }

  base::Status to_host(const Record& r) {
    LAZYT_ASSIGN_OR_RETURN(auto buffer, find(buffers_, r.words[0]));
    std::vector<uint8_t> bytes(r.words[2]);
    LAZYT_RETURN_IF_ERROR(buffer->to_host(r.words[1], bytes.data(), bytes.size()));
    reads++;
    differ += base::hash128(bytes.data(), bytes.size()) != base::Hash128{r.words[3], r.words[4]};
    return {};
  }

  base::Ref<loader::Plugin> plugin_;
  std::map<uint64_t, base::Ref<loader::Device>> devices_;
  std::map<uint64_t, base::Ref<loader::Executable>> executables_;
  std::map<uint64_t, base::Ref<loader::Buffer>> buffers_;
};

int run(const std::string& file, const std::string& backend) {
  auto fail = [&](const base::Status& status) {
    fmt::print(stderr, "lazyt replay: {}\n", status.to_string());
    return 1;
  };
  auto records = layers::read_recording(file);
  if (!records.ok()) return fail(records.status());
  auto plugin = loader::load(backend);
  if (!plugin.ok()) return fail(plugin.status());
  Player player(plugin.value());
  size_t at = 0;
  for (const Record& r : records.value()) {
    if (base::Status status = player.play(r); !status.ok()) return fail(status.with_note("replay", fmt::format("record {} of {}", at, file)));
    at++;
  }
  fmt::print("{} on {}: {} programs, {} launches, {} reads", file, plugin.value()->info.name, player.programs, player.launches, player.reads);
  if (!player.has_data) {
    fmt::print("; none compared, for bytes were not recorded (LAZYT_LAYERS=record:data)\n");
    return 0;
  }
  fmt::print("{}\n", player.differ ? fmt::format("; {} differ from what was recorded", player.differ) : ", all as recorded, bit by bit");
  return player.differ ? 1 : 0;
}

}  // namespace

void add_replay(CLI::App& app, int& exit_status) {
  auto file = std::make_shared<std::string>();
  auto backend = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("replay", "Make the calls of a recorded run once more, on any backend");
  verb->add_option("file", *file, "What LAZYT_LAYERS=record:data LAZYT_RECORD=FILE wrote")->required();
  verb->add_option("--backend", *backend, "Name or path (default: as a program would choose)");
  verb->footer(
      "What is read back is compared with what was read while recording, bit by bit.\n"
      "Exit status: 0 all is as recorded, 1 something differs or failed.");
  verb->callback([file, backend, &exit_status] { exit_status = run(*file, *backend); });
}

}  // namespace lazyt::tools
