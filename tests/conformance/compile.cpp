// Compiling: what it reads, what it says of outputs, and the stored form.
#include "loader/handles.h"
#include "suite.h"

namespace lazyt::conformance {
namespace {

using Compile = Case;

constexpr const char* kAdd =
    "program(%0: f32[4], %1: f32[4]) {\n %2 = aten::add.Tensor(%0, %1, 1) : f32[4]\n return %2\n}\n";

LAZYT_CASE(Compile, TheBlockIsReadDuringTheCallOnly, "EXE-1") {
  Compiled add = compile(
      "program(%0: f32[4]) {\n const %1: f32[4] = hex(0000803f000000400000404000008040)\n %2 = "
      "aten::add.Tensor(%0, %1, 1) : f32[4]\n return %2\n}\n");
  MUST(add);
  BufferPtr input = upload(floats({1, 2, 3, 4}));
  MUST(input);
  ExecutablePtr mine;
  {
    std::span<const uint8_t> bytes = add.program->bytes();
    std::vector<uint64_t> copy((bytes.size() + 7) / 8);
    std::memcpy(copy.data(), bytes.data(), bytes.size());
    lazyt_compile_args_t args{sizeof args, nullptr, reinterpret_cast<const lazyt_program_t*>(copy.data()), 0};
    lazyt_executable_t* handle = nullptr;
    MUST(ok("EXE-1", "compile", plugin().executable->compile(device(), &args, &handle)));
    mine.reset(handle);
    std::memset(copy.data(), kStale, copy.size() * 8);
    args.program = nullptr;
  }
  add.handle = std::move(mine);
  std::vector<Bytes> out = run("EXE-1", add, {in(input)});
  MUST(out.size() == 1);
  same_bytes("EXE-1", "compiled, wrote over the block, ran", floats({2, 4, 6, 8}), out[0]);
}

LAZYT_CASE(Compile, OutputMetaCoversTheOutput, "EXE-14") {
  Compiled program = compile(
      "program(%0: f32[3,5], %1: f32[3,5]{1,3}) {\n %2 = aten::add.Tensor(%0, %1, 1) : f32[3,5]{1,3}\n %3 = "
      "aten::add.Tensor(%2, %0, 1) : f32[3,5]{8,1}\n"
      " return %2, %3\n}\n");
  MUST(program);
  const uint64_t least[] = {60, (2 * 8 + 4 + 1) * 4};
  for (size_t i = 0; i < 2; i++) {
    const lazyt_output_meta_t& meta = program.metas[i];
    if (!meta.opaque)
      keeps("EXE-14", meta.size_bytes >= least[i], fmt::format("output_meta({})", i),
            fmt::format("{} bytes or more", least[i]), fmt::format("{}", meta.size_bytes));
    keeps("EXE-14", (meta.alignment & (meta.alignment - 1)) == 0, fmt::format("output_meta({})", i),
          "an alignment that is 0 or a power of two", fmt::format("{}", meta.alignment));
  }
}

LAZYT_CASE(Compile, OutputMetaOutOfRangeIsRefused, "EXE-14") {
  Compiled add = compile(kAdd);
  MUST(add);
  for (uint64_t index : {UINT64_C(1), UINT64_C(2), UINT64_MAX}) {
    lazyt_output_meta_t meta{};
    meta.struct_size = sizeof meta;
    fails("EXE-14", fmt::format("output_meta({}) of 1", index),
          plugin().executable->output_meta(add.handle.get(), index, &meta), {LAZYT_CODE_INVALID_ARGUMENT});
  }
}

LAZYT_CASE(Compile, MemoryIsAnswered, "C-5") {
  Compiled add = compile(kAdd);
  MUST(add);
  lazyt_executable_memory_t memory{};
  memory.struct_size = sizeof memory;
  memory.code_bytes = memory.scratch_bytes = UINT64_MAX;
  MUST(ok("C-5", "executable.memory", plugin().executable->memory(add.handle.get(), &memory)));
  keeps("C-5", memory.code_bytes != UINT64_MAX && memory.scratch_bytes != UINT64_MAX, "executable.memory",
        "both fields written", "one is not");
}

LAZYT_CASE(Compile, FlagsAreTaken, "EXE-12") {
  for (lazyt_compile_flags_t flags :
       {LAZYT_COMPILE_DETERMINISTIC, LAZYT_COMPILE_REASSOCIATE | LAZYT_COMPILE_TF32,
        LAZYT_COMPILE_FLUSH_DENORMALS}) {
    Compiled add = compile(kAdd, flags);
    MUST(add);
    BufferPtr a = upload(floats({1, 2, 3, 4}));
    MUST(a);
    std::vector<Bytes> out = run("EXE-12", add, {in(a), in(a)});
    MUST(out.size() == 1);
    same_bytes("EXE-12", fmt::format("ran a program compiled with flags {:#x}", flags), floats({2, 4, 6, 8}),
               out[0]);
  }
}

class Serialize : public Case {
 protected:
  bool serialize(const Compiled& program, Bytes& out) {
    if (!plugin().executable->serialize || !plugin().executable->load)
      return unsupported("stores no compiled programs"), false;
    lazyt_status_t* status = plugin().executable->serialize(
        program.handle.get(),
        [](void* to, const void* data, uint64_t size) -> lazyt_status_t* {
          auto* bytes = static_cast<const uint8_t*>(data);
          static_cast<Bytes*>(to)->insert(static_cast<Bytes*>(to)->end(), bytes, bytes + size);
          return nullptr;
        },
        &out);
    if (status && host()->status->code(status) == LAZYT_CODE_UNIMPLEMENTED) {
      host()->status->release(status);
      return unsupported("stores no compiled programs"), false;
    }
    return ok("EXE-15", "serialize", status);
  }
};

LAZYT_CASE(Serialize, LoadedProgramsComputeTheSame, "EXE-15") {
  Compiled add = compile(kAdd);
  MUST(add);
  Bytes stored;
  MUST(serialize(add, stored));
  lazyt_executable_t* handle = nullptr;
  MUST(ok("EXE-15", "load of what serialize wrote",
          plugin().executable->load(device(), stored.data(), stored.size(), &handle)));
  std::fill(stored.begin(), stored.end(), kStale);
  BufferPtr a = upload(floats({1, 2, 3, 4}));
  MUST(a);
  std::vector<Bytes> first = run("EXE-15", add, {in(a), in(a)});
  add.handle.reset(handle);
  std::vector<Bytes> second = run("EXE-15", add, {in(a), in(a)});
  MUST(first.size() == 1 && second.size() == 1);
  same_bytes("EXE-15", "ran the compiled and the loaded program", first[0], second[0]);
}

LAZYT_CASE(Serialize, DamagedBytesAreRefused, "EXE-15") {
  if (!plugin().executable->load) return unsupported("stores no compiled programs");
  auto load = [&](const std::string& what, const Bytes& bytes, bool must_fail) {
    lazyt_executable_t* handle = nullptr;
    lazyt_status_t* status = plugin().executable->load(device(), bytes.data(), bytes.size(), &handle);
    ExecutablePtr executable(status ? nullptr : handle);
    if (must_fail || status) fails("EXE-15", "load of " + what, status);
  };
  load("nothing", {}, true);
  load("text", Bytes(100, 'x'), true);
  Compiled add = compile(kAdd);
  MUST(add);
  Bytes stored;
  if (!plugin().executable->serialize) return;
  MUST(serialize(add, stored));
  load("the first half", Bytes(stored.begin(), stored.begin() + static_cast<ptrdiff_t>(stored.size() / 2)),
       true);
  for (size_t i = 0; i < stored.size(); i += 1 + stored.size() / 64) {
    Bytes damaged = stored;
    damaged[i] ^= 0x40;
    load(fmt::format("stored bytes with byte {} changed", i), damaged, false);
  }
}

}  // namespace
}  // namespace lazyt::conformance
