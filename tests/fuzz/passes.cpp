// Any program that the verifier takes through every pass and every decomposition: each gives a program that
// the verifier takes, or leaves it alone. What they compute is tests/passes/fuzz_passes.cpp's business.
#include <cstring>
#include <vector>

#include "ir/program.h"
#include "ir/shapes.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "passes/decomposition.h"
#include "passes/pipeline.h"
#include "target.h"

using namespace lazyt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto program = ir::Program::from_bytes({data, size});
  if (!program.ok()) return 0;
  const ir::Graph given = program.value()->to_graph();
  static_cast<void>(ir::verify_shapes(given));  // an answer, whatever it is

  ir::Graph graph = given;
  base::Status status = passes::run_pipeline(graph, true);
  REQUIRE(status.ok(), status.to_string(), ir::print(given), ir::print(graph));
  REQUIRE(graph.inputs.size() == given.inputs.size() && graph.outputs.size() == given.outputs.size(),
          ir::print(given));

  auto nothing = [](const ir::Graph& g) -> base::Result<std::vector<bool>> {
    return std::vector<bool>(g.nodes.size());
  };
  auto pieces = passes::decompose(given, std::vector<bool>(given.nodes.size(), true), nothing);
  REQUIRE(pieces.ok(), pieces.status().to_string(), ir::print(given));
  if (pieces.value())
    REQUIRE(ir::verify(*pieces.value()).ok(), ir::verify(*pieces.value()).to_string(), ir::print(given),
            ir::print(*pieces.value()));
  return 0;
}
