// The verifier: refuses what PRG-1..8 do not allow. Runs after every pass in tests, before every
// hand-over to a plugin, and on every file; it never reads outside the bytes it is given.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "ir/graph.h"

namespace lazyt::ir {

// INVALID_ARGUMENT naming node, argument and rule.
base::Status verify(const Graph& graph);
// DATA_LOSS naming table, record and rule. Hostile input is expected: no crash, no huge allocation.
base::Status verify(std::span<const uint8_t> block);

}  // namespace lazyt::ir
