// The register machine of integers of 64 bits.
#define LAZYT_TILE_INTEGERS 64
#undef LAZYT_TILE_MACHINE
#define LAZYT_TILE_MACHINE LAZYT_TILE_MACHINE_I64
#include "tile_ops.cpp"
