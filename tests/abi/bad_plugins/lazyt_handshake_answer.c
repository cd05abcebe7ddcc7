/* Loses the upper half of a 64-bit argument. */
#include "good.h"

static uint64_t answer(uint64_t seed, lazyt_handshake_t *out) {
  lazyt_handshake_fill(out);
  return (uint32_t)seed ^ LAZYT_HANDSHAKE_MASK;
}
BAD_TABLE(bad.handshake = answer)
