// Programs as CUDA graphs: when they are built, what is updated, that results stay right.
#include "../../plugins/cuda/graph.h"

#include "fixture.h"

namespace lazyt::cuda {
namespace {

class Graph : public CudaTest {
 protected:
  void check_run(Executable& exe, const Floats& x, double f, int steps) {
    BufferPtr in = upload(x), out = alloc(x.size());
    EventPtr done = run(exe, in, f, out);
    EXPECT_EQ(download(out, x.size(), {done.get()}), expected(x, f, steps));
  }
};

TEST_F(Graph, ComesWithTheThirdRunAndLaunchesNoKernelByItself) {
  auto exe = chain(100, 4);
  const Floats x = numbers(100);
  BufferPtr in = upload(x), out = alloc(100);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(wait(run(*exe, in, 2, out)), "");
  const auto graphs = counted("graph_launches");
  EXPECT_EQ(wait(run(*exe, in, 2, out)), "");
  EXPECT_EQ(counted("graph_launches"), graphs + 1);
  const auto launches = counted("launches");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(wait(run(*exe, in, 2, out)), "");
  EXPECT_EQ(counted("graph_launches"), graphs + 6);
  EXPECT_EQ(counted("launches"), launches);
  EXPECT_EQ(download(out, 100), expected(x, 2, 4));
}

TEST_F(Graph, ANumberThatChangesUpdatesItsNodesAlone) {
  auto exe = chain(100, 4);
  const Floats x = numbers(100);
  for (int i = 0; i < 3; ++i) check_run(*exe, x, 2, 4);
  const auto updates = counted("graph_updates"), built = counted("instantiated");
  check_run(*exe, x, 3, 4);
  EXPECT_EQ(counted("graph_updates"), updates + 4);
  check_run(*exe, x, 3, 4);
  EXPECT_EQ(counted("graph_updates"), updates + 4);
  EXPECT_EQ(counted("instantiated"), built);
}

TEST_F(Graph, BuffersThatTakeTurnsNeedNoUpdates) {
  auto exe = chain(100, 4);
  const Floats x = numbers(100);
  BufferPtr a = upload(x), b = alloc(100);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(wait(i % 2 ? run(*exe, b, 1, a) : run(*exe, a, 1, b)), "");
  const auto updates = counted("graph_updates"), built = counted("instantiated");
  for (int i = 6; i < 10; ++i) EXPECT_EQ(wait(i % 2 ? run(*exe, b, 1, a) : run(*exe, a, 1, b)), "");
  EXPECT_EQ(counted("graph_updates"), updates);
  EXPECT_EQ(counted("instantiated"), built);
  EXPECT_EQ(download(a, 100), expected(x, 1, 40));
}

TEST_F(Graph, PointersThatMoveEachTimeAreUpdated) {
  auto exe = chain(100, 4);
  const auto built = counted("instantiated");
  std::vector<BufferPtr> kept;
  for (int i = 0; i < 16; ++i) {
    const Floats x(100, static_cast<float>(i));
    kept.push_back(upload(x));
    kept.push_back(alloc(100));
    const EventPtr done = run(*exe, kept[kept.size() - 2], 2, kept.back());
    EXPECT_EQ(download(kept.back(), 100, {done.get()}), expected(x, 2, 4));
  }
  EXPECT_EQ(counted("instantiated"), built + 6);
}

TEST_F(Graph, AnUpdateChangesNoLaunchThatIsStillToRun) {
  auto exe = chain(100, 4);
  const Floats x = numbers(100);
  BufferPtr in = upload(x);
  for (int i = 0; i < 3; ++i) check_run(*exe, x, 2, 4);
  configure("delay_us=3000");
  std::vector<BufferPtr> outs;
  std::vector<EventPtr> events;
  for (int i = 0; i < 8; ++i) {
    outs.push_back(alloc(100));
    events.push_back(run(*exe, in, i, outs.back()));
  }
  for (int i = 0; i < 8; ++i) EXPECT_EQ(download(outs[static_cast<size_t>(i)], 100, {events[static_cast<size_t>(i)].get()}), expected(x, i, 4));
}

TEST_F(Graph, AnArenaThatGrowsIsFollowed) {
  auto small = chain(100, 4);
  const Floats x = numbers(100);
  for (int i = 0; i < 4; ++i) check_run(*small, x, 2, 4);
  auto large = chain(100000, 4);
  check_run(*large, numbers(100000), 2, 4);
  check_run(*small, x, 2, 4);
}

// The whole of a step's copies belongs to the shape: a run in which one falls away has a graph of its own.
TEST_F(Graph, CopiesToDonorsComeAndGo) {
  using Piece = toolkit::Plan::Piece;
  auto exe = std::make_unique<Executable>(device());
  exe->inputs = {{400, false}, {0, true}};
  exe->outputs = {{400, 0}};
  // Input, number, output or a piece beside it, the output itself.
  exe->storages = {{Piece::kInput, 0, 0}, {Piece::kInput, 1, 0}, {Piece::kBeside, 0, 0}, {Piece::kOutput, 0, 0}};
  exe->arena_bytes = 512;
  exe->nodes.push_back("test::scale");
  exe->step_nodes = {0, 0, 0};
  exe->steps.push_back(scale(0, 2, 100, number(1u), number(0.0)));
  exe->steps.push_back(scale(2, 2, 100, number(1.0), number(1.0)));
  auto copy = std::make_unique<CopyStep>();
  copy->from = tensor(2, 100), copy->to = tensor(3, 100), copy->bytes = 400;
  exe->steps.push_back(std::move(copy));
  prepare(*exe);
  for (int i = 0; i < 6; ++i) {
    const Floats x(100, static_cast<float>(i));
    BufferPtr in = upload(x), out = alloc(100);
    EventPtr apart = run(*exe, in, 2, out);
    EXPECT_EQ(download(out, 100, {apart.get()}), Floats(100, static_cast<float>(2 * i + 1)));
    EventPtr donated = run(*exe, in, 2, in);
    EXPECT_EQ(download(in, 100, {donated.get()}), Floats(100, static_cast<float>(2 * i + 1)));
  }
}

// Stands for a call of cuBLASLt: launches on the run's stream and reads a number.
struct Library final : LibraryStep {
  CUfunction function;
  StorageId from, to;
  void run(const Run& run) const override {
    uint64_t words[5] = {run.storages[from], run.storages[to], 100, 0, 0};
    const double f = run.as_double({.constant = false, .input = 1, .dtype = LAZYT_DTYPE_FLOAT64}), one = 1;
    std::memcpy(&words[3], &f, 8);
    std::memcpy(&words[4], &one, 8);
    void* parameter = words;
    check(cu().cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, run.stream, &parameter, nullptr), "cuLaunchKernel");
  }
  std::string describe() const override { return "library"; }
};

TEST_F(Graph, CallsOfLibrariesAreCapturedAgainWhenSomethingChanges) {
  auto exe = chain(100, 4);
  auto call = std::make_unique<Library>();
  call->function = scale_, call->from = 3, call->to = 4;  // in place of the second step
  exe->steps[1] = std::move(call);
  for (int i = 0; i < 8; ++i) check_run(*exe, Floats(100, static_cast<float>(i)), i / 2, 4);
  EXPECT_GT(counted("graph_launches"), 0u);
}

// Not a word of a kernel has changed then, and no buffer has moved.
TEST_F(Graph, ANumberThatOnlyALibraryReadsIsNeverAnOldOne) {
  auto exe = chain(100, 4);
  auto call = std::make_unique<Library>();
  call->function = scale_, call->from = 3, call->to = 4;
  exe->steps[1] = std::move(call);
  for (const auto& step : exe->steps)
    if (step->kind == Step::Kind::kKernel)
      for (Word& word : static_cast<KernelStep&>(*step).words) word.number = {.constant = true, .d = 1};
  BufferPtr in = upload(numbers(100)), out = alloc(100);
  auto result = [&](double factor) {
    EventPtr done = run(*exe, in, factor, out);
    return download(out, 100, {done.get()});
  };
  const Floats first = result(2);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(result(2), first);
  EXPECT_NE(result(3), first);
  EXPECT_EQ(result(2), first);
  EXPECT_GT(counted("graph_launches"), 0u);
}

// The same with a number of its own.
struct Numberless final : LibraryStep {
  CUfunction function;
  StorageId from, to;
  mutable int runs = 0;
  bool reads_numbers() const override { return false; }
  void run(const Run& run) const override {
    ++runs;
    const double one = 1;
    uint64_t words[5] = {run.storages[from], run.storages[to], 100, 0, 0};
    std::memcpy(&words[3], &one, 8);
    std::memcpy(&words[4], &one, 8);
    void* parameter = words;
    check(cu().cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, run.stream, &parameter, nullptr), "cuLaunchKernel");
  }
  std::string describe() const override { return "library"; }
};

// Capturing a call costs many times what setting a kernel's parameters does.
TEST_F(Graph, ACallIsCapturedAgainOnlyWhereItsOwnTensorsMove) {
  for (const bool moves : {false, true}) {
    auto exe = chain(100, 4);
    auto made = std::make_unique<Numberless>();
    const Numberless& call = *made;
    made->function = scale_, made->from = 3, made->to = 4;  // in the arena
    made->storages = {3, 4};
    if (moves) made->storages.push_back(0);
    exe->steps[1] = std::move(made);
    std::vector<BufferPtr> kept;
    auto run_once = [&](int i) {
      kept.push_back(upload(Floats(100, static_cast<float>(i))));
      kept.push_back(alloc(100));
      const EventPtr done = run(*exe, kept[kept.size() - 2], 1, kept.back());
      EXPECT_EQ(download(kept.back(), 100, {done.get()}), expected(Floats(100, static_cast<float>(i)), 1, 4));
    };
    for (int i = 0; i < 8; ++i) run_once(i);
    const int before = call.runs;
    for (int i = 8; i < 12; ++i) run_once(i);
    EXPECT_EQ(call.runs, before + (moves ? 4 : 0));
  }
}

TEST_F(Graph, AFaultInAGraphLosesTheDevice) {
  auto exe = chain(100, 4);
  BufferPtr in = upload(numbers(100)), out = alloc(100);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(wait(run(*exe, in, 2, out)), "");
  configure("fault_kernel=3");
  EXPECT_NE(wait(run(*exe, in, 2, out)).find("device 0 is lost"), std::string::npos);
}

}  // namespace
}  // namespace lazyt::cuda
