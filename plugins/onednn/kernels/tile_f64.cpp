// The register machine of doubles.
#define LAZYT_TILE_F64 1
#undef LAZYT_TILE_MACHINE
#define LAZYT_TILE_MACHINE LAZYT_TILE_MACHINE_F64
#include "tile_ops.cpp"
