// What is compiled once for each instruction set, and which of it this CPU takes: in step with the vector machine's table.
#pragma once

#include <string_view>

#include "vm.h"

// The name of one set's table, by its prefix: rows_avx2. REQUIRES: LAZYT_ISA, of the build.
#define LAZYT_OF_ISA_(prefix, isa) prefix##isa
#define LAZYT_OF_ISA_NAMED(prefix, isa) LAZYT_OF_ISA_(prefix, isa)
#define LAZYT_OF_ISA(prefix) LAZYT_OF_ISA_NAMED(prefix, LAZYT_ISA)

namespace lazyt::onednn {

template <class T>
using TableOf = const T& (*)();

#ifdef __x86_64__
template <class T>
const T& of_this_cpu(TableOf<T> portable, TableOf<T> avx2, TableOf<T> avx512) {
  const std::string_view isa = vm::table().name;
  return isa == "avx512" ? avx512() : isa == "avx2" ? avx2() : portable();
}
#endif

}  // namespace lazyt::onednn
