// The register machine of integers of 32 bits.
#define LAZYT_TILE_INTEGERS 32
#undef LAZYT_TILE_MACHINE
#define LAZYT_TILE_MACHINE LAZYT_TILE_MACHINE_I32
#include "tile_ops.cpp"
