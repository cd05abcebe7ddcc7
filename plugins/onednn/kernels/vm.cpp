#include "vm.h"

#include <string_view>

#include "lazyt/plugin.hpp"
#include "tile.h"

namespace lazyt::onednn {

namespace vm {
const Table& portable_table();
const Table& avx2_table();
const Table& avx512_table();
}  // namespace vm
namespace tile {
const Machine& portable_machine();
const Machine& avx2_machine();
const Machine& avx512_machine();
const Machine& portable_machine_f64();
const Machine& avx2_machine_f64();
const Machine& avx512_machine_f64();
}  // namespace tile

namespace {

struct Isa {
  const vm::Table& table;
  const tile::Machine &machine, &machine_f64;
};

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
    if (avx512 && wanted != "avx2") return {vm::avx512_table(), tile::avx512_machine(), tile::avx512_machine_f64()};
    if (avx2) return {vm::avx2_table(), tile::avx2_machine(), tile::avx2_machine_f64()};
  }
#endif
  return {vm::portable_table(), tile::portable_machine(), tile::portable_machine_f64()};
}

const Isa& isa() {
  static const Isa chosen = choose();
  return chosen;
}

}  // namespace

const vm::Table& vm::table() { return isa().table; }
const tile::Machine& tile::machine(bool f64) { return f64 ? isa().machine_f64 : isa().machine; }

}  // namespace lazyt::onednn
