// Every file cases/<pass>.<what it shows>.txt is one test: a program, a line "----", and the program that
// the pass makes of it. `pipeline` as the pass's name runs the whole list; `decomposition` makes pieces of every node
// that has a rule, once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ir/program.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "passes/decomposition.h"
#include "passes/pipeline.h"

namespace lazyt::passes {
namespace {

namespace fs = std::filesystem;

base::Status run(const std::string& name, ir::Graph& graph) {
  if (name == "pipeline") return run_pipeline(graph, true);
  if (name == "decomposition") {
    const auto taken = [](const ir::Graph& g) -> base::Result<std::vector<bool>> { return std::vector<bool>(g.nodes.size()); };
    LAZYT_ASSIGN_OR_RETURN(auto pieces, decompose(graph, std::vector<bool>(graph.nodes.size(), true), taken));
    if (pieces) graph = std::move(*pieces);
    return {};
  }
  for (const Pass& pass : pipeline())
    if (pass.name == name) return pass.run(graph);
  return base::not_found("no pass named " + name);
}

class TextCase : public ::testing::Test {
 public:
  explicit TextCase(fs::path path) : path_(std::move(path)) {}

  void TestBody() override {
    std::ifstream file(path_);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    size_t bar = text.find("\n----\n");
    ASSERT_NE(bar, std::string::npos) << path_ << ": no line ----";
    auto before = ir::parse(text.substr(0, bar));
    ASSERT_TRUE(before.ok()) << before.status().to_string();
    auto after = ir::parse(text.substr(bar + 6));
    ASSERT_TRUE(after.ok()) << "behind ----: " << after.status().to_string();

    ir::Graph graph = std::move(before).value();
    ASSERT_EQ(ir::verify(graph).to_string(), "OK") << "the case's own program";
    std::string name = path_.filename().string();
    base::Status status = run(name.substr(0, name.find('.')), graph);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(ir::verify(graph).to_string(), "OK");
    EXPECT_EQ(ir::print(graph), ir::print(after.value()));
    // What a pass made must cross as well as it prints.
    EXPECT_TRUE(ir::Program::from_bytes(ir::Program::from_graph(graph)->bytes()).ok());
  }

 private:
  fs::path path_;
};

// Registered before main, as TEST() does.
const bool registered = [] {
  const char* root = std::getenv("LAZYT_SOURCE_ROOT");
  fs::path folder = (root ? fs::path(root) : fs::current_path()) / "tests" / "passes" / "cases";
  std::vector<fs::path> cases;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".txt") cases.push_back(entry.path());
  std::sort(cases.begin(), cases.end());
  for (const fs::path& path : cases)
    ::testing::RegisterTest("PassCase", path.stem().string().c_str(), nullptr, nullptr, path.string().c_str(),
                            1, [path]() -> TextCase* { return new TextCase(path); });
  return !cases.empty();
}();

TEST(PassCases, AreFound) { EXPECT_TRUE(registered) << "run from the source root, or set LAZYT_SOURCE_ROOT"; }

TEST(Pipeline, RefusesAProgramThatIsWrongAlready) {
  auto graph = ir::parse("program(%0: f32[1]) { %1 = aten::relu_(%0) : f32[1] return %1 }");
  EXPECT_EQ(run_pipeline(graph.value(), true).code(), LAZYT_CODE_INVALID_ARGUMENT);
}

TEST(Pipeline, RunTwiceChangesNothingMore) {
  auto graph = ir::parse(
      "program(%0: f32[2] donate, %1: f32[2]) { %2 = aten::neg(%1) : f32[2] %3 = aten::neg(%1) : f32[2]"
      " %4 = aten::sub.Tensor(%0, %3, 1) : f32[2] return %4 }");
  ASSERT_TRUE(run_pipeline(graph.value(), true).ok());
  std::string once = ir::print(graph.value());
  ASSERT_TRUE(run_pipeline(graph.value(), true).ok());
  EXPECT_EQ(ir::print(graph.value()), once);
}

}  // namespace
}  // namespace lazyt::passes
