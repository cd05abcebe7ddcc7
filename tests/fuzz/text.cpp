// Any text as a program: refused with line and column, or it prints, and what it prints parses to the same;
// if the verifier takes it, it is written and read back the same.
#include "ir/text.h"

#include <memory>

#include "ir/program.h"
#include "ir/verifier.h"
#include "target.h"

using namespace lazyt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // On the heap at its exact size: one byte too far is a report.
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  std::unique_ptr<char[]> copy(new char[size]);
  bytes.copy(copy.get(), size);
  auto parsed = ir::parse({copy.get(), size});
  if (!parsed.ok()) {
    REQUIRE(parsed.status().code() == LAZYT_CODE_INVALID_ARGUMENT, parsed.status().to_string());
    REQUIRE(parsed.status().message().find("line ") != std::string_view::npos, parsed.status().to_string());
    return 0;
  }
  const std::string text = ir::print(parsed.value());
  auto again = ir::parse(text);
  REQUIRE(again.ok(), again.status().to_string(), text);
  REQUIRE(ir::print(again.value()) == text, text, ir::print(again.value()));
  if (!ir::verify(parsed.value()).ok()) return 0;
  auto program = ir::Program::from_graph(parsed.value());
  REQUIRE(ir::verify(program->bytes()).ok(), ir::verify(program->bytes()).to_string(), text);
  REQUIRE(ir::print(program->to_graph()) == text, text, ir::print(program->to_graph()));
  REQUIRE(ir::Program::from_graph(again.value())->same_program(*program), text);
  return 0;
}
