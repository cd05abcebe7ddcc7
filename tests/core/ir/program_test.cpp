#include "ir/program.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "ir/registry.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "lazyt/ops.h"
#include "samples.h"

namespace lazyt::ir {
namespace {

namespace fs = std::filesystem;

std::vector<uint8_t> read_file(const fs::path& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}
void write_file(const fs::path& path, const std::vector<uint8_t>& bytes) {
  fs::remove(path);  // truncating a file in place makes some file systems flush it
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

class ProgramFile : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("lazyt_program_test_" + std::to_string(::getpid()));
    fs::create_directories(dir_);
    path_ = dir_ / "p.lzp";
  }
  void TearDown() override { fs::remove_all(dir_); }
  fs::path dir_, path_;
};

TEST(Program, GivesBackTheGraphThatItWasMadeFrom) {
  Graph g = sample_graph();
  ASSERT_EQ(verify(g).to_string(), "OK");
  auto program = Program::from_graph(g);
  Graph back = program->to_graph();
  EXPECT_EQ(print(back), print(g));
  auto again = Program::from_graph(back);
  ASSERT_EQ(again->bytes().size(), program->bytes().size());
  EXPECT_EQ(std::memcmp(again->bytes().data(), program->bytes().data(), again->bytes().size()), 0);
}

TEST(Program, ItsBytesPassTheVerifierAndMakeTheSameProgram) {
  auto program = Program::from_graph(sample_graph());
  auto copy = Program::from_bytes(program->bytes());
  ASSERT_TRUE(copy.ok()) << copy.status().to_string();
  EXPECT_TRUE(copy.value()->same_program(*program));
  EXPECT_EQ(copy.value()->hash(1), program->hash(1));
}

TEST(Program, NumbersTheOperatorsOfTheOpset) {
  auto program = Program::from_graph(sample_graph());
  const lazyt_program_t* block = program->block();
  EXPECT_EQ(lazyt_node(block, 0)->op, LAZYT_OP_ADD_TENSOR);
  EXPECT_EQ(lazyt_node(block, 0)->op_version, 1u);
  EXPECT_EQ(lazyt_node(block, 1)->op, LAZYT_OP_LAZYT_DROPOUT);
  EXPECT_EQ(lazyt_node(block, 2)->op, LAZYT_OP_NONE);
  EXPECT_EQ(block->flags, LAZYT_PROGRAM_HAS_RANDOM);
}

TEST(Program, WithoutSourceLinesIsTheSameProgram) {
  Graph g = sample_graph();
  auto with = Program::from_graph(g);
  for (Node& n : g.nodes) n.source = nullptr;
  auto without = Program::from_graph(g);
  EXPECT_EQ(without->block()->notes.count, 0u);
  EXPECT_EQ(with->hash(5), without->hash(5));
  EXPECT_TRUE(with->same_program(*without));
  EXPECT_FALSE(with->hash(5) == with->hash(6));
  EXPECT_EQ(with->digest(5), without->digest(5));
  EXPECT_NE(with->digest(5), with->digest(6));
}

TEST(Program, WithOneOtherNumberIsAnotherProgram) {
  Graph g = sample_graph();
  auto before = Program::from_graph(g);
  g.nodes[1].args[1] = Arg::of_double(0.25);
  auto after = Program::from_graph(g);
  EXPECT_FALSE(before->hash(0) == after->hash(0));
  EXPECT_NE(before->digest(0), after->digest(0));
  EXPECT_FALSE(before->same_program(*after));
}

TEST(Program, WithOtherBytesInAConstantIsAnotherProgram) {
  Graph g = sample_graph();
  auto before = Program::from_graph(g);
  g.constants[0].bytes[0] ^= 1;
  auto after = Program::from_graph(g);
  EXPECT_FALSE(before->hash(0) == after->hash(0));
  EXPECT_NE(before->digest(0), after->digest(0));
  EXPECT_FALSE(before->same_program(*after));
}

TEST(Program, OfNothingIsAProgram) {
  auto program = Program::from_graph(Graph());
  EXPECT_TRUE(Program::from_bytes(program->bytes()).ok());
}

TEST(Program, IsAsDeepAsItsDataSays) {
  Graph g;
  ValueId v = g.add_input(Meta::contiguous(LAZYT_DTYPE_FLOAT32, {1}));
  for (int i = 0; i < 100000; i++)
    v = g.add_op("aten::neg", "", {Arg::of_value(v)}, Meta::contiguous(LAZYT_DTYPE_FLOAT32, {1}));
  g.outputs.push_back({v});
  auto program = Program::from_graph(g);
  auto copy = Program::from_bytes(program->bytes());
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(parse(print(copy.value()->to_graph())).value().nodes.size(), 100000u);
}

TEST_F(ProgramFile, LoadsWhatWasSaved) {
  auto program = Program::from_graph(sample_graph());
  ASSERT_TRUE(program->save(path_).ok());
  auto loaded = Program::load(path_);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_TRUE(loaded.value()->same_program(*program));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 1) << "a temporary file is left";
}

TEST_F(ProgramFile, LoadsABlockWithoutTrailer) {
  auto program = Program::from_graph(sample_graph());
  write_file(path_, {program->bytes().begin(), program->bytes().end()});
  EXPECT_TRUE(Program::load(path_).ok());
}

TEST_F(ProgramFile, ThatIsMissingIsNotFound) {
  EXPECT_EQ(Program::load(path_).status().code(), LAZYT_CODE_NOT_FOUND);
  EXPECT_EQ(Program::load(dir_).status().code(), LAZYT_CODE_NOT_FOUND);
}

TEST_F(ProgramFile, CannotBeSavedWhereThereIsNoFolder) {
  EXPECT_EQ(Program::from_graph(Graph())->save(dir_ / "no" / "p.lzp").code(), LAZYT_CODE_UNAVAILABLE);
}

TEST_F(ProgramFile, DamagedAnywhereIsDataLossOrTheSameProgram) {
  auto program = Program::from_graph(sample_graph());
  ASSERT_TRUE(program->save(path_).ok());
  std::vector<uint8_t> good = read_file(path_);
  auto check = [&](const std::vector<uint8_t>& bytes, size_t at) {
    write_file(path_, bytes);
    auto loaded = Program::load(path_);
    if (loaded.ok())
      EXPECT_TRUE(loaded.value()->same_program(*program)) << "byte " << at;
    else
      EXPECT_EQ(loaded.status().code(), LAZYT_CODE_DATA_LOSS) << "byte " << at;
  };
  for (size_t i = 0; i < good.size(); i++) {
    std::vector<uint8_t> bytes = good;
    bytes[i] ^= static_cast<uint8_t>(1 << i % 8);
    check(bytes, i);
    if (i % 5 == 0 || i + 40 > good.size())
      check({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(i)}, i);
  }
}

TEST(Program, BytesWithAnyByteChangedAreRefusedOrReadable) {
  auto program = Program::from_graph(sample_graph());
  std::vector<uint64_t> words(program->bytes().size() / 8);
  auto* bytes = reinterpret_cast<uint8_t*>(words.data());
  for (size_t i = 0; i < program->bytes().size(); i++) {
    auto whole = std::span(bytes, program->bytes().size());
    for (uint8_t flip : {0x01, 0x02, 0x40, 0x80, 0xff}) {
      std::memcpy(bytes, program->bytes().data(), program->bytes().size());
      bytes[i] ^= flip;
      auto changed = Program::from_bytes(whole);
      if (changed.ok())
        EXPECT_TRUE(verify(changed.value()->to_graph()).ok()) << "byte " << i;
      else
        EXPECT_EQ(changed.status().code(), LAZYT_CODE_DATA_LOSS) << "byte " << i;
    }
  }
}

TEST(Registry, FindsOperatorsByNameAndNumber) {
  const OpInfo* add = find_op("aten::add", "Tensor");
  ASSERT_NE(add, nullptr);
  EXPECT_EQ(find_op(add->number), add);
  EXPECT_EQ(add->promote, Promote::kCommon);
  EXPECT_EQ(find_op("aten::add", "nonsense"), nullptr);
  EXPECT_EQ(find_op(0u), nullptr);
  EXPECT_EQ(arg_index(*add, "alpha"), 2);
  EXPECT_EQ(arg_index(*find_op("lazyt::uniform", ""), "seed"), 4);
  for (const OpInfo& op : all_ops()) EXPECT_EQ(find_op(op.name, op.overload), &op);
}

}  // namespace
}  // namespace lazyt::ir
