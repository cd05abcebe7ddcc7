// The C library's elementary functions on whole vectors: glibc's libmvec, at most 4 ulp. Found at run time: where it is
// missing (before glibc 2.35, other C libraries), elements are computed one by one.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <type_traits>

#include "lanes.h"

namespace lazyt::onednn::vm {
namespace {  // each instruction set has its own copy

constexpr char kVectorAbi = kVectorBytes == 64 ? 'e' : kVectorBytes == 32 ? 'd' : 'b';

template <class T>
struct Vector {
  typedef T type __attribute__((vector_size(kVectorBytes)));
  static constexpr int lanes = kVectorBytes / sizeof(T);
};
template <class T>
using UnaryVector = typename Vector<T>::type (*)(typename Vector<T>::type);
template <class T>
using BinaryVector = typename Vector<T>::type (*)(typename Vector<T>::type, typename Vector<T>::type);

// Null if there is none. name: "exp2", without the f of float.
template <class T, class F>
F vector_function(const char* name) {
#if defined(__x86_64__)
  static void* const library = dlopen("libmvec.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return nullptr;
  char symbol[64];
  std::snprintf(symbol, sizeof symbol, "_ZGV%cN%d%s_%s%s", kVectorAbi, Vector<T>::lanes,
                std::is_same_v<F, UnaryVector<T>> ? "v" : "vv", name, sizeof(T) == sizeof(float) ? "f" : "");
  return reinterpret_cast<F>(dlsym(library, symbol));
#else
  (void)name;
  return nullptr;
#endif
}

}  // namespace
}  // namespace lazyt::onednn::vm
