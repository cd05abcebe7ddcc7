// LAZYT_CLONES before a function: compiled for AVX-512, AVX2 and any x86-64; the loader picks one. What it calls must be
// always_inline to be compiled with it.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define LAZYT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LAZYT_CLONES
#endif
#define LAZYT_INLINE inline __attribute__((always_inline))
