#include "vm.h"

#include <string_view>

#include "lazyt/plugin.hpp"
#include "prefetch.h"
#include "tile.h"

namespace lazyt::onednn {

namespace vm {
const Table& portable_table();
const Table& avx2_table();
const Table& avx512_table();
}  // namespace vm
namespace tile {
#define MACHINES(isa)                 \
  const Machine& isa##_machine();     \
  const Machine& isa##_machine_f64(); \
  const Machine& isa##_machine_i32(); \
  const Machine& isa##_machine_i64();
MACHINES(portable) MACHINES(avx2) MACHINES(avx512)
#undef MACHINES
}  // namespace tile

namespace {

struct Isa {
  const vm::Table& table;
  const tile::Machine &machine, &machine_f64, &machine_i32, &machine_i64;
};
#define ISA(isa)                                                                                   \
  {vm::isa##_table(), tile::isa##_machine(), tile::isa##_machine_f64(), tile::isa##_machine_i32(), \
   tile::isa##_machine_i64()}

Isa choose() {
#ifdef __x86_64__
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const std::string_view wanted = plugin::option("onednn", "isa");
  const bool known = wanted.empty() || wanted == "avx512" || wanted == "avx2" || wanted == "portable";
  if (!known) {
    throw plugin::Error(LAZYT_CODE_INVALID_ARGUMENT, "LAZYT_ONEDNN_ISA is '" + std::string(wanted) +
                                                         "'; it can be avx512, avx2 or portable");
  }
  if (wanted != "portable") {
    if (avx512 && wanted != "avx2") return ISA(avx512);
    if (avx2) return ISA(avx2);
  }
#endif
  return ISA(portable);
}

#undef ISA

const Isa& isa() {
  static const Isa chosen = choose();
  return chosen;
}

}  // namespace

#ifdef __x86_64__
const size_t prefetch_mask = (__builtin_cpu_init(), __builtin_cpu_is("intel")) ? ~size_t{0} : 0;
const size_t prefetch_matrix_mask = __builtin_cpu_is("znver3") ? ~size_t{0} : prefetch_mask;
#else
const size_t prefetch_mask = 0, prefetch_matrix_mask = 0;
#endif

const vm::Table& vm::table() { return isa().table; }
const tile::Machine& tile::machine(toolkit::Type type) {
  switch (type) {
    case toolkit::Type::kF64:
      return isa().machine_f64;
    case toolkit::Type::kI32:
      return isa().machine_i32;
    case toolkit::Type::kI64:
      return isa().machine_i64;
    default:
      return isa().machine;
  }
}

}  // namespace lazyt::onednn
