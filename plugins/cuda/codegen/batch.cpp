// Kernels over different tensors with the same body as one launch: an optimizer's update of every parameter, the members
// of a _foreach_ operator. Each block finds its kernel by its index; the words of all of them are one parameter.
#include <algorithm>

#include "../compile.h"
#include "schedule.h"

namespace lazyt::cuda {
namespace {

// What CUDA lets a kernel's parameters take, in words.
constexpr size_t kMostWords = 4096 / 8;

// For up to `most` kernels of `words` words: first where the blocks of each end, then their words.
KernelSource batch_source(const KernelStep& step, size_t most) {
  const std::string words = std::to_string(step.words.size()), count = std::to_string(most);
  return specialise("batch_" + step.source.name.substr(0, step.source.name.rfind('_')),
                    step.before + "LAZYT_KERNEL(KERNEL, " + std::to_string(most * (step.words.size() + 1)) + ", " + std::to_string(step.block[0]) +
                        ") {\nint s = 0;\nwhile (blockIdx.x >= (unsigned)a.w[s]) ++s;\n"
                        "const unsigned first = s ? (unsigned)a.w[s - 1] : 0, block = blockIdx.x - first, blocks = (unsigned)a.w[s] - first;\n"
                        "const unsigned long long* w = a.w + " + count + " + s * " + words + ";\n" + step.body + "}\n", {});
}

std::unique_ptr<Step> batch_of(const std::vector<const KernelStep*>& members) {
  const KernelStep& first = *members.front();
  const size_t most = kMostWords / (first.words.size() + 1);
  auto step = std::make_unique<KernelStep>();
  step->source = batch_source(first, most);
  step->block = first.block;
  uint32_t blocks = 0;
  for (const KernelStep* member : members) step->words.push_back(Word::integer(blocks += member->grid[0]));
  step->words.resize(most, Word::integer(0));
  for (const KernelStep* member : members) step->words.insert(step->words.end(), member->words.begin(), member->words.end());
  step->words.resize(most * (first.words.size() + 1), Word::integer(0));
  step->grid = {blocks, 1, 1};
  return step;
}

// Who must run after whom: readers after what they read is written, writers after all that read what was there.
class Order {
 public:
  explicit Order(size_t storages) : users_(storages) {}

  // The steps that step `index` depends on. donor_of(storage): the storage that may be the same bytes, or LAZYT_NONE.
  template <class Access, class DonorOf>
  std::vector<uint32_t> add(uint32_t index, const Access& access, DonorOf&& donor_of) {
    std::vector<uint32_t> out;
    auto after = [&](const std::vector<uint32_t>& steps) { out.insert(out.end(), steps.begin(), steps.end()); };
    for (const auto* list : {&access.reads, &access.reads_in_place})
      for (StorageId s : *list) after(users_[s].writers);
    for (StorageId s : access.writes) {
      Users& u = users_[s];
      if (!access.beside || access.beside != u.beside || !u.readers.empty()) {
        u.before = std::move(u.readers);
        u.before.insert(u.before.end(), u.writers.begin(), u.writers.end());
        u.readers.clear(), u.writers.clear();
        u.beside = access.beside;
      }
      after(u.before);
      if (const StorageId donor = donor_of(s); donor != LAZYT_NONE) after(users_[donor].readers);
    }
    std::erase(out, index);  // writes a storage at several places
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    for (StorageId s : access.writes) users_[s].writers.push_back(index);
    for (const auto* list : {&access.reads, &access.reads_in_place})
      for (StorageId s : *list) users_[s].readers.push_back(index);
    return out;
  }

 private:
  struct Users {
    std::vector<uint32_t> writers, readers;  // since the last writers before
    std::vector<uint32_t> before;            // whom the writers follow
    uint32_t beside = 0;
  };
  std::vector<Users> users_;
};

// Bytes that may be kept longer than the program's order asks for, to share a launch.
constexpr uint64_t kSmall = 1 << 20;

}  // namespace

std::vector<uint32_t> Builder::merge(const std::vector<Access>& accesses) {
  Order order(plan().storages.size());
  Schedule schedule([&](uint32_t a, uint32_t b) { return may_join(accesses[a], accesses[b]); });
  auto small = [&](const std::vector<StorageId>& list) {
    return std::all_of(list.begin(), list.end(), [&](StorageId s) { return !is_own(s) || bytes_of(s) <= kSmall; });
  };
  for (uint32_t i = 0; i < accesses.size(); ++i) {
    Schedule::Step step;
    step.depends_on = order.add(i, accesses[i], [&](StorageId s) { return donor_of(s); });
    const auto* kernel = as<KernelStep>(*exe_.steps[i]);
    if (kernel && !kernel->body.empty()) {
      step.kind = kernel->source.name;
      step.most = static_cast<uint32_t>(kMostWords / (kernel->words.size() + 1));
      step.may_hurry = small(accesses[i].writes);
      step.may_wait = small(accesses[i].reads) && small(accesses[i].reads_in_place);
    }
    schedule.add(std::move(step));
  }
  schedule.settle();
  std::vector<uint32_t> positions(accesses.size());
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<uint32_t> nodes;
  for (const auto& place : schedule.places()) {
    for (uint32_t i : place) positions[i] = static_cast<uint32_t>(steps.size());
    nodes.push_back(plan().step_nodes[place.front()]);
    if (place.size() == 1) {
      steps.push_back(std::move(exe_.steps[place.front()]));
      continue;
    }
    std::vector<const KernelStep*> members;
    for (uint32_t i : place) members.push_back(static_cast<const KernelStep*>(exe_.steps[i].get()));
    steps.push_back(batch_of(members));
  }
  exe_.steps = std::move(steps);
  plan().step_nodes = std::move(nodes);
  return positions;
}

// The input on whose bytes a storage may lie, which is that input's storage as well.
StorageId Builder::donor_of(StorageId s) const {
  const Plan::Piece& piece = plan().storages[s];
  return piece.kind == Plan::Piece::kOutput ? plan().outputs[piece.index].donor : LAZYT_NONE;
}

// A step that reads the donor of what another writes stays out, or the output would have to be computed beside.
bool Builder::may_join(const Access& a, const Access& b) const {
  auto reads_donor_of = [&](const Access& reader, const Access& writer) {
    for (StorageId w : writer.writes) {
      const StorageId donor = donor_of(w);
      for (const auto* list : {&reader.reads, &reader.reads_in_place})
        if (donor != LAZYT_NONE && std::find(list->begin(), list->end(), donor) != list->end()) return true;
    }
    return false;
  };
  return !reads_donor_of(a, b) && !reads_donor_of(b, a);
}

}  // namespace lazyt::cuda
