// Any bytes as a .lzp file: refused with an error that says where, or a program that prints, parses and is
// written again, and is the same each time.
#include "ir/program.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "target.h"

using namespace lazyt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static fuzz::MemoryFile file;
  file.write(data, size);
  auto loaded = ir::Program::load(file.path());
  if (!loaded.ok()) {
    REQUIRE(loaded.status().code() == LAZYT_CODE_DATA_LOSS, loaded.status().to_string());
    return 0;
  }
  const ir::Graph graph = loaded.value()->to_graph();
  REQUIRE(ir::verify(graph).ok(), ir::verify(graph).to_string());
  const std::string text = ir::print(graph);
  auto written = ir::Program::from_graph(graph);
  REQUIRE(ir::verify(written->bytes()).ok(), ir::verify(written->bytes()).to_string(), text);
  REQUIRE(ir::print(written->to_graph()) == text, text, ir::print(written->to_graph()));
  auto parsed = ir::parse(text);
  REQUIRE(parsed.ok(), parsed.status().to_string(), text);
  auto again = ir::Program::from_graph(parsed.value());
  REQUIRE(again->same_program(*written) && again->hash(7) == written->hash(7), text,
          ir::print(parsed.value()));
  REQUIRE(loaded.value()->same_program(*loaded.value()));
  return 0;
}
