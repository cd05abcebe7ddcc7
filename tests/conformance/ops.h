// Cases of operators: programs with inputs, reference values and an error bound (corpus/*.lzt).
#pragma once

namespace lazyt::conformance {

// One case `Ops.<file>_<name>` for each of the corpus.
void register_op_cases();

}  // namespace lazyt::conformance
