#include "frontend/backward.h"

#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <typeinfo>

#include "base/counters.h"
#include "frontend/history.h"
#include "frontend/storage.h"
#include "frontend/thread_state.h"
#include "frontend/tracer.h"

namespace lazyt::frontend {
namespace {

constexpr size_t kMaxNodes = 1 << 20;
constexpr size_t kMaxKnown = 4;  // at one place
constexpr uint32_t kNotMet = UINT32_MAX;
constexpr uint64_t kNoEdge = UINT64_MAX, kLeafNode = UINT64_MAX;

// Learning costs a look at the graph, in vain where each step brings other numbers.
bool is_worth_another(uint32_t attempts) { return attempts <= 4 || std::has_single_bit(attempts); }

bool is_for_the_engine() {
  return is_watched() || torch::autograd::AnomalyMode::is_enabled() || at::hasCallbacks() ||
         at::autocast::is_autocast_enabled(kDeviceType) || c10::InferenceMode::is_enabled() || one_by_one();
}

// Nodes that PyTorch generates from its table of derivatives keep tensors and numbers of the call, and nothing else.
bool is_generated(const torch::autograd::Node& node) {
  static constexpr char kNamespace[] = "N5torch8autograd9generated";
  return std::strncmp(typeid(node).name(), kNamespace, sizeof kNamespace - 1) == 0;
}

// Where PyTorch knows none, a gradient's is its tensor's.
template <class Metadata>
uint64_t dtype_of_gradient(const Metadata& m) {
  if constexpr (requires { m.grad_dtype(); }) return static_cast<uint64_t>(m.grad_dtype().value_or(at::ScalarType::Undefined));
  return static_cast<uint64_t>(m.dtype().toScalarType());
}

}  // namespace

// A backward that has been recorded.
struct Backward::Known {
  trace::Words graph;
  trace::Before before;
  std::vector<uint32_t> whole;
  trace::Segment segment;  // without its tape, which keeps this
  Bases bases;                  // that gradients lie in
  std::vector<Made> gradients;  // of the leaves
};

// A place in a known tape where a backward begins.
struct Backward::Site {
  size_t tokens = 0;
  uint32_t attempts = 0;  // to learn, since one was followed last
  std::vector<Known> known;
};

struct Backward::Sites final : trace::Tape::Kept {
  std::vector<Site> all;
};

Backward::Backward(std::vector<at::Tensor> outputs, std::vector<at::Tensor> gradients, bool keep_graph)
    : outputs_(std::move(outputs)), gradients_(std::move(gradients)), keep_graph_(keep_graph) {}

trace::Recorder* Backward::recorder() const {
  const Lane& lane = thread_state().lanes[device_];
  return lane.recorder && lane.recorder == lane.own ? lane.recorder : nullptr;
}

// A gradient that the segment takes. Null: the engine is to.
trace::Storage* Backward::operand_in(const at::Tensor& gradient) const {
  trace::Storage* state = state_if_plain(gradient);
  return state && !has_history(gradient) && state->device == device_ ? state : nullptr;
}

bool Backward::add_leaf(Leaf& leaf) {
  const at::Tensor& v = leaf.variable;
  const at::Tensor& gradient = v.unsafeGetTensorImpl()->grad();
  trace::Storage* const state = state_if_plain(v);
  if (!state || !v.requires_grad() || leaf.tensor_post_acc_grad_hooks()) return false;
  graph_.append({kLeafNode, dtype_of_gradient(leaf.input_metadata(0)), gradient.defined()});
  put_tensor(graph_, v);
  if (gradient.defined()) {  // the engine adds to it
    trace::Storage* const sum = operand_in(gradient);
    if (!sum) return false;
    put_tensor(graph_, gradient);
    added_to_.push_back(gradient);
    written_.push_back(sum);
  }
  variables_.push_back(v);
  whole_.push_back(state);
  return true;
}

// False: it was not made by this thread, in this trace, since its last backward.
bool Backward::add_edge(Node* node, uint32_t input) {
  uint32_t* order;
  if (const uint64_t number = node->sequence_nr(); number == kLeafNode) {
    order = &order_of_leaf_.try_emplace(node, kNotMet).first->second;
  } else {
    if (number < first_node_ || number - first_node_ >= order_.size() || node->thread_id() != thread_) return false;
    order = &order_[number - first_node_];
  }
  if (*order == kNotMet) {
    *order = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back(node);
  }
  graph_.push_back(uint64_t{*order} << 32 | input);
  return true;
}

// False: it has something that the engine alone can do, or an edge that is none of this trace.
bool Backward::add_node(Node& node) {
  if (!node.pre_hooks().empty() || !node.post_hooks().empty() || !node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty()) return false;
  if (node.sequence_nr() == kLeafNode) {
    auto* leaf = dynamic_cast<Leaf*>(&node);
    return leaf && add_leaf(*leaf);
  }
  if (!is_generated(node)) return false;
  for (uint32_t i = 0; i < node.num_inputs(); i++)
    if (node.input_metadata(i).device() != device(device_)) return false;
  graph_.append({reinterpret_cast<uint64_t>(&typeid(node)), node.sequence_nr() - first_call_, node.num_outputs()});
  for (const torch::autograd::Edge& edge : node.next_edges())
    if (!edge.is_valid()) graph_.push_back(kNoEdge);
    else if (!add_edge(edge.function.get(), edge.input_nr)) return false;
  return true;
}

bool Backward::read_graph() {
  const size_t made = at::sequence_number::peek() - first_node_;
  if (made > kMaxNodes) return false;
  order_.assign(made, kNotMet);
  thread_ = at::RecordFunction::currentThreadId();
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  graph_.append({keys.included_.raw_repr(), keys.excluded_.raw_repr(), outputs_.size()});
  for (size_t i = 0; i < outputs_.size(); i++) {
    const at::Tensor& t = outputs_[i];
    const auto& root = t.grad_fn();
    trace::Storage* const state = state_if_plain(t);
    if (!state || !root || !add_edge(root.get(), t.output_nr())) return false;
    put_tensor(graph_, t);
    put_tensor(graph_, gradients_[i]);
    whole_.push_back(state);
  }
  for (size_t i = 0; i < nodes_.size(); i++)
    if (!add_node(*nodes_[i])) return false;
  operands_.insert(operands_.end(), written_.begin(), written_.end());
  std::vector<trace::Storage*> apart = operands_;
  std::ranges::sort(apart);
  return written_.empty() || std::ranges::adjacent_find(apart) == apart.end();
}

bool Backward::follow() {
  const bool followed = take_segment();
  note_backward();
  return followed;
}

void note_backward() {
  for (const Lane& lane : thread_state().lanes) {
    if (!lane.recorder) continue;
    std::lock_guard lock(lane.recorder->mutex());
    lane.recorder->set_first_node(at::sequence_number::peek());
  }
}

bool Backward::take_segment() {
  static base::Counter &followed = base::counter("BackwardFollowed");
  if (outputs_.empty() || outputs_.size() != gradients_.size() || !is_lazy(outputs_[0]) || is_for_the_engine()) return false;
  device_ = static_cast<uint32_t>(outputs_[0].get_device());
  trace::Recorder* recorder = this->recorder();
  if (!recorder) return false;
  for (const at::Tensor& g : gradients_) {
    operands_.push_back(operand_in(g));
    if (!operands_.back()) return false;
  }
  // f(tape, what is known of it here), the tape that is followed first, until it is true.
  const auto any_known = [&](auto&& f) {
    for (const bool expected : {true, false})
      for (const base::Ref<trace::Tape>& tape : recorder->tapes()) {
        Site* site = (tape == tape_) == expected ? site_in(*tape) : nullptr;
        if (site && std::ranges::any_of(site->known, [&](Known& k) { return recorder->came_as(k.before) && f(tape, *site, k); })) return true;
      }
    return false;
  };
  {
    std::lock_guard lock(recorder->mutex());
    begin_ = recorder->place();
    tape_ = recorder->followed();
    if (begin_.tokens == 0 || !tape_) return false;
    first_node_ = recorder->first_node();
    first_call_ = recorder->first_call();
    learns_ = is_worth_another(++site_here().attempts);
    if (!learns_ && !any_known([](auto&&...) { return true; })) return false;
  }
  if (!read_graph()) return learns_ = false;
  const Known* found = nullptr;
  std::vector<at::Tensor> bases;
  {
    std::lock_guard lock(recorder->mutex());
    for (const trace::Storage* s : whole_) slots_.push_back(s->slot);
    if (!recorder->holds(whole_, slots_)) return learns_ = false;
    any_known([&](const base::Ref<trace::Tape>& tape, Site& site, Known& k) {
      if (k.whole != slots_ || !(graph_ == k.graph)) return false;
      k.segment.tape = tape;
      if (follow_segment(thread_state().lanes[device_], k.segment, operands_)) found = &k, site.attempts = 0;
      k.segment.tape = nullptr;
      return found != nullptr;
    });
    if (!found) return false;
    site_here().attempts = 0;
    followed.add_locked();
    bases = found->bases.make(*recorder);
    for (size_t i = 0; i < written_.size(); i++) recorder->bind(*written_[i], found->segment.written[i]);
  }
  for (const at::Tensor& t : added_to_) t.unsafeGetTensorImpl()->bump_version();
  give_gradients(*found, bases);
  if (!keep_graph_)
    for (Node* n : nodes_) n->release_variables();
  return true;
}

void Backward::give_gradients(const Known& known, const std::vector<at::Tensor>& bases) {
  for (size_t i = 0; i < variables_.size(); i++) {
    const Made& made = known.gradients[i];
    if (made.kind == Made::kNone) continue;
    const at::Tensor& base = bases[made.of];
    c10::TensorImpl* impl = base.unsafeGetTensorImpl();
    if (impl->version_counter().current_version() != made.version) impl->set_version_counter(c10::VariableVersion(made.version));  // a copy, say
    at::Tensor& gradient = variables_[i].mutable_grad();
    if (made.kind == Made::kBase) {
      gradient = base;
    } else {
      gradient = make_view(base, made.sizes, made.strides, made.offset);
      gradient.unsafeGetTensorImpl()->set_version_counter(impl->version_counter());
    }
  }
}

// False: another backward may not make it alike.
bool Backward::made_of(const at::Tensor& gradient, Known& known) const {
  Made& made = known.gradients.emplace_back();
  if (!gradient.defined()) return true;
  const auto place = known.bases.add(gradient, known.segment);
  if (!place) return false;
  made = {.kind = place->whole ? Made::kBase : Made::kViewOfBase,
          .of = place->of,
          .version = gradient.unsafeGetTensorImpl()->version_counter().current_version(),
          .sizes = gradient.sizes().vec(),
          .strides = gradient.strides().vec(),
          .offset = gradient.storage_offset()};
  return true;
}

// Where the trace has come to, in a known tape. Null: none has begun a backward there.
Backward::Site* Backward::site_in(const trace::Tape& tape) const {
  if (!tape.backwards) return nullptr;
  std::vector<Site>& all = static_cast<Sites&>(*tape.backwards).all;
  const auto at = std::ranges::find(all, begin_.tokens, &Site::tokens);
  return at != all.end() ? &*at : nullptr;
}

Backward::Site& Backward::site_here() {
  if (!tape_->backwards) tape_->backwards = std::make_unique<Sites>();
  if (Site* known = site_in(*tape_)) return *known;
  return static_cast<Sites&>(*tape_->backwards).all.emplace_back(begin_.tokens);
}

void Backward::learn() {
  if (!learns_) return;
  trace::Recorder* recorder = this->recorder();
  if (!recorder) return;
  std::lock_guard lock(recorder->mutex());
  auto before = recorder->before(begin_);
  auto segment = recorder->segment_since(begin_, std::span(operands_).first(gradients_.size()), written_);
  if (!before || !segment || segment->tape != tape_ || !recorder->reads_what_nodes_keep(*segment)) return;
  Known known{.graph = trace::Words(graph_.begin(), graph_.end()), .before = std::move(*before), .whole = std::move(slots_), .segment = std::move(*segment)};
  for (const at::Tensor& v : variables_) {
    const at::Tensor& gradient = v.unsafeGetTensorImpl()->grad();
    const bool was_there = std::ranges::any_of(added_to_, [&](const at::Tensor& t) { return t.is_same(gradient); });
    if (was_there) known.gradients.emplace_back();
    else if (!made_of(gradient, known)) return;
  }
  known.segment.tape = nullptr;
  std::vector<Known>& here = site_here().known;
  if (here.size() == kMaxKnown) here.erase(here.begin());
  here.push_back(std::move(known));
}

}  // namespace lazyt::frontend
