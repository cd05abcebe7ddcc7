// Kernels over different tensors with the same body as one launch: an optimizer's update of every parameter, the members
// of a _foreach_ operator. Each block finds its kernel by its index; the words of all of them are one parameter.
#include <algorithm>
#include <map>

#include "../compile.h"

namespace lazyt::cuda {
namespace {

// What CUDA lets a kernel's parameters take, in words.
constexpr size_t kMostWords = 4096 / 8;

// For up to `most` kernels of `words` words: first where the blocks of each end, then their words.
KernelSource batch_source(const KernelStep& step, size_t most) {
  const std::string words = std::to_string(step.words.size()), count = std::to_string(most);
  return specialise("batch_" + step.source.name.substr(0, step.source.name.rfind('_')),
                    "LAZYT_KERNEL(KERNEL, " + std::to_string(most * (step.words.size() + 1)) + ", " + std::to_string(step.block[0]) +
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

}  // namespace

std::vector<uint32_t> Builder::merge(const std::vector<Access>& accesses) {
  std::vector<uint32_t> positions(accesses.size());
  std::vector<std::vector<uint32_t>> groups;  // steps by position
  std::map<std::string, uint32_t> open;       // the latest group of a body that has room
  // The first position after all that read or wrote a storage.
  std::vector<uint32_t> after_read(plan().storages.size(), 0), after_write(plan().storages.size(), 0);
  for (uint32_t i = 0; i < accesses.size(); ++i) {
    uint32_t earliest = 0;
    for (const auto* list : {&accesses[i].reads, &accesses[i].reads_in_place})
      for (StorageId s : *list) earliest = std::max(earliest, after_write[s]);
    for (StorageId s : accesses[i].writes) {
      earliest = std::max({earliest, after_write[s], after_read[s]});
      if (const uint32_t donor = donor_of(s); donor != LAZYT_NONE) earliest = std::max(earliest, after_read[donor]);
    }
    const auto* kernel = dynamic_cast<const KernelStep*>(exe_.steps[i].get());
    auto at = static_cast<uint32_t>(groups.size());
    if (kernel && !kernel->body.empty()) {
      const size_t most = kMostWords / (kernel->words.size() + 1);
      const auto found = open.find(kernel->source.name);
      if (found != open.end() && found->second >= earliest && groups[found->second].size() < most &&
          may_join(groups[found->second], i, accesses)) {
        at = found->second;
      } else if (most > 1) {
        open[kernel->source.name] = at;
      }
    }
    if (at == groups.size()) groups.emplace_back();
    groups[at].push_back(i);
    positions[i] = at;
    for (const auto* list : {&accesses[i].reads, &accesses[i].reads_in_place})
      for (StorageId s : *list) after_read[s] = std::max(after_read[s], at + 1);
    for (StorageId s : accesses[i].writes) after_write[s] = std::max(after_write[s], at + 1);
  }
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<uint32_t> nodes;
  for (const auto& group : groups) {
    nodes.push_back(plan().step_nodes[group.front()]);
    if (group.size() == 1) {
      steps.push_back(std::move(exe_.steps[group.front()]));
      continue;
    }
    std::vector<const KernelStep*> members;
    for (uint32_t i : group) members.push_back(static_cast<const KernelStep*>(exe_.steps[i].get()));
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

// A step that reads the donor of what another of the group writes stays out, or the output would have to be computed
// beside.
bool Builder::may_join(const std::vector<uint32_t>& group, uint32_t step, const std::vector<Access>& accesses) const {
  auto reads_donor_of = [&](uint32_t reader, uint32_t writer) {
    for (StorageId w : accesses[writer].writes) {
      const StorageId donor = donor_of(w);
      for (const auto* list : {&accesses[reader].reads, &accesses[reader].reads_in_place})
        if (donor != LAZYT_NONE && std::find(list->begin(), list->end(), donor) != list->end()) return true;
    }
    return false;
  };
  return std::none_of(group.begin(), group.end(), [&](uint32_t other) { return reads_donor_of(step, other) || reads_donor_of(other, step); });
}

}  // namespace lazyt::cuda
