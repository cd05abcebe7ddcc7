// Writes the programs of text files as .lzp files: fuzz_seed_programs OUT_FOLDER FILE...
// A file may hold many programs and other lines between them (the conformance corpus, the passes' cases).
#include <filesystem>
#include <fstream>
#include <iterator>

#include "ir/program.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "target.h"

using namespace lazyt;

int main(int argc, char** argv) {
  int count = 0;
  for (int i = 2; i < argc; i++) {
    std::ifstream in(argv[i]);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    for (size_t at = 0; (at = text.find("program(", at)) != std::string::npos;) {
      const size_t end = text.find("\n}", at);
      REQUIRE(end != std::string::npos, argv[i]);
      auto graph = ir::parse(std::string_view(text).substr(at, end + 2 - at));
      REQUIRE(graph.ok() && ir::verify(graph.value()).ok(), argv[i], graph.status().to_string());
      const auto path = std::filesystem::path(argv[1]) / ("seed_" + std::to_string(count++) + ".lzp");
      REQUIRE(ir::Program::from_graph(graph.value())->save(path).ok());
      at = end;
    }
  }
  std::printf("%d programs\n", count);
  return count ? 0 : 1;
}
