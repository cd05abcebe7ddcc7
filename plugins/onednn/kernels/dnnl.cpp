#include "dnnl.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>

#include "weights.h"

namespace lazyt::onednn {
namespace {

using dnnl::memory;

dnnl::stream& cpu_stream() {
  static dnnl::stream& stream = *new dnnl::stream(cpu_engine());
  return stream;
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};

// Whether two attributes are the same; of what this plugin sets in them.
bool same_attr(const dnnl::primitive_attr& a, const dnnl::primitive_attr& b) {
  const dnnl::post_ops x = a.get_post_ops(), y = b.get_post_ops();
  if (x.len() != y.len()) return false;
  for (int i = 0; i < x.len(); ++i) {
    if (x.kind(i) != y.kind(i)) return false;
    if (x.kind(i) == dnnl::primitive::kind::sum) {
      float scale[2] = {};
      x.get_params_sum(i, scale[0]), y.get_params_sum(i, scale[1]);
      if (scale[0] != scale[1]) return false;
    } else if (x.kind(i) == dnnl::primitive::kind::eltwise) {
      dnnl::algorithm algorithm[2] = {};
      float alpha[2] = {}, beta[2] = {};
      x.get_params_eltwise(i, algorithm[0], alpha[0], beta[0]);
      y.get_params_eltwise(i, algorithm[1], alpha[1], beta[1]);
      if (algorithm[0] != algorithm[1] || alpha[0] != alpha[1] || beta[0] != beta[1]) return false;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

class Primitive {
 public:
  // threads: that pd was made for.
  Primitive(std::string name, MakePrimitive make, dnnl::primitive_attr attr, const std::vector<Argument>& arguments,
            const dnnl::primitive_desc_base& pd, int threads, int max_threads)
      : Primitive(std::move(name), std::move(make), std::move(attr), arguments, max_threads) {
    planned_threads_ = threads;
    bind(pd, threads);
  }
  // One that is made when it first runs, with scratch of its own.
  Primitive(std::string name, MakePrimitive make, dnnl::primitive_attr attr, const std::vector<Argument>& arguments,
            int max_threads)
      : name_(std::move(name)), make_(std::move(make)), attr_(std::move(attr)), max_threads_(max_threads) {
    for (const Argument& a : arguments) args_.push_back({a.first, nullptr});
  }

  // Whether the other, made for as many threads, computes the same. Only of reorders, of which their operands' descriptors say all.
  bool is(const Primitive& other) const {
    if (kind_ != dnnl::primitive::kind::reorder) return false;
    auto same_arg = [](const dnnl_exec_arg_t& x, const dnnl_exec_arg_t& y) {
      const_dnnl_memory_desc_t a = nullptr, b = nullptr;
      dnnl_memory_get_memory_desc(x.memory, &a), dnnl_memory_get_memory_desc(y.memory, &b);
      return x.arg == y.arg && dnnl_memory_desc_equal(a, b);
    };
    return kind_ == other.kind_ && max_threads_ == other.max_threads_ &&
           std::equal(args_.begin(), args_.end(), other.args_.begin(), other.args_.end(), same_arg);
  }

  // places: of the arguments. scratch: of the program's own, if the primitive wants one.
  void run(const Frame& frame, const std::vector<Place>& places, StorageId scratch) {
    const int threads = std::min(frame.threads, max_threads_);
    if (threads != threads_) rebind(threads);
    ThreadScope scope(threads);
    for (size_t i = 0; i < places.size(); ++i) set(i, frame.at<std::byte>(places[i]));
    if (has_scratch_) set(places.size(), own_scratch_ ? own_scratch_.get() : frame.storages[scratch]);
    const dnnl_status_t status =
        dnnl_primitive_execute(primitive_.get(), cpu_stream().get(), static_cast<int>(args_.size()), args_.data());
    if (status != dnnl_success) {
      throw plugin::Error(status == dnnl_out_of_memory ? LAZYT_CODE_RESOURCE_EXHAUSTED : LAZYT_CODE_INTERNAL,
                          "oneDNN: " + describe() + " failed with status " + std::to_string(status));
    }
  }

  std::string describe() const { return name_ + " " + implementation_; }

 private:
  void set(size_t i, void* address) { dnnl_memory_set_data_handle(args_[i].memory, address); }

  void bind(const dnnl::primitive_desc_base& pd, int threads) {
    primitive_ = dnnl::primitive(pd.get());
    implementation_ = pd.impl_info_str();
    kind_ = pd.get_kind();
    threads_ = threads;
    if (has_scratch_) args_.pop_back();
    memories_.clear();
    auto make = [&](const memory::desc& desc) {
      memories_.emplace_back(desc, cpu_engine(), static_cast<void*>(nullptr));
      return memories_.back().get();
    };
    for (dnnl_exec_arg_t& a : args_) a.memory = make(pd.query_md(dnnl::query::exec_arg_md, a.arg));
    has_scratch_ = pd.scratchpad_desc().get_size() > 0;
    if (has_scratch_) args_.push_back({DNNL_ARG_SCRATCHPAD, make(pd.scratchpad_desc())});
  }

  // The user changed the number of threads: what oneDNN planned for the old number would wake as many again.
  void rebind(int threads) {
    with_dnnl(name_, threads, [&] {
      const dnnl::primitive_desc_base pd = make_(attr_);
      bind(pd, threads);
      own_scratch_.reset();
      const size_t bytes = pd.scratchpad_desc().get_size();
      if (threads == planned_threads_ || bytes == 0) return;
      own_scratch_.reset(std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment));
      if (!own_scratch_) throw std::bad_alloc();
    });
  }

  const std::string name_;
  const MakePrimitive make_;
  const dnnl::primitive_attr attr_;
  const int max_threads_;
  int planned_threads_ = 0;
  // Changed by a run, of which there is one at a time (EXE-9).
  int threads_ = 0;
  bool has_scratch_ = false;
  dnnl::primitive primitive_;
  dnnl::primitive::kind kind_ = dnnl::primitive::kind::undef;
  std::string implementation_;
  std::vector<memory> memories_;       // of the arguments
  std::vector<dnnl_exec_arg_t> args_;  // the arguments, then scratch
  std::unique_ptr<void, Free> own_scratch_;
};

namespace {

std::vector<Place> places_of(const std::vector<Argument>& arguments) {
  std::vector<Place> places;
  places.reserve(arguments.size());
  for (const Argument& a : arguments) places.emplace_back(a.second);
  return places;
}

class PrimitiveStep final : public Step {
 public:
  PrimitiveStep(std::shared_ptr<Primitive> primitive, const std::vector<Argument>& arguments, StorageId scratch)
      : primitive_(std::move(primitive)), places_(places_of(arguments)), scratch_(scratch) {}

  void run(const Frame& frame) const override { primitive_->run(frame, places_, scratch_); }
  std::string describe() const override { return primitive_->describe(); }

 private:
  const std::shared_ptr<Primitive> primitive_;
  const std::vector<Place> places_;
  const StorageId scratch_;
};

// How many tensors of a shape lie packed, in the process. Thread-safe.
class PackedShapes {
 public:
  void add(const memory::desc& plain, int more) {
    const std::lock_guard lock(mutex_);
    auto it = find(plain);
    if (it == counts_.end()) it = counts_.insert(it, {plain, 0});
    if ((it->second += more) == 0) counts_.erase(it);
  }
  bool has(const memory::desc& plain) {
    const std::lock_guard lock(mutex_);
    return find(plain) != counts_.end();
  }

 private:
  std::vector<std::pair<memory::desc, int>>::iterator find(const memory::desc& plain) {
    return std::ranges::find(counts_, plain, &std::pair<memory::desc, int>::first);
  }
  std::mutex mutex_;
  std::vector<std::pair<memory::desc, int>> counts_;
};
PackedShapes& packed_shapes() {
  static PackedShapes& all = *new PackedShapes;
  return all;
}

// A tensor in the private format of a primitive.
class Packed final : public Form {
 public:
  Packed(Device& device, memory::desc plain, memory::desc packed, std::byte* from)
      : plain_(std::move(plain)), packed_(std::move(packed)), memory_(device, packed_.get_size()) {
    reorder("packing a weight", thread_count(), plain_, from, packed_, memory_.data());
    packed_shapes().add(plain_, 1);
  }
  ~Packed() override { packed_shapes().add(plain_, -1); }

  std::byte* data() const override { return memory_.data(); }
  bool is(const memory::desc& plain, const memory::desc& packed) const {
    return plain_ == plain && packed_ == packed;
  }
  void unpack(std::byte* to) const override {
    reorder("unpacking a weight", 1, packed_, memory_.data(), plain_, to);
  }

 private:
  static void reorder(const char* what, int threads, const memory::desc& from, std::byte* src, const memory::desc& to, std::byte* dst) {
    with_dnnl(what, threads, [&] {
      memory a(from, cpu_engine(), src), b(to, cpu_engine(), dst);
      dnnl::stream stream(cpu_engine());
      dnnl::reorder(a, b).execute(stream, a, b);
      stream.wait();
    });
  }

  const memory::desc plain_, packed_;
  const Memory memory_;
};

// An input of the program in a private format. Where that says all that the input's bytes say, they are let go.
class KeptPacked final : public Kept {
 public:
  KeptPacked(Device& device, int64_t offset, memory::desc plain, memory::desc packed)
      : device_(device), offset_(offset), plain_(std::move(plain)), packed_(std::move(packed)) {}

  std::byte* get(const lazyt_execute_input_t& input, bool is_read, Run& run) const override {
    const std::pair key(input.stable_id, input.content_version);
    if (key.first != 0 && key == key_) return form_->data();
    const bool is_first = !form_;
    key_ = {};
    Buffer& buffer = plugin::from_c(input.buffer);
    form_ = std::dynamic_pointer_cast<const Packed>(buffer.form());  // of another program
    if (!form_ || !is_all(buffer) || !form_->is(plain_, packed_)) {
      form_ = nullptr;  // its memory, first
      if (is_first) make_room(device_, packed_.get_size());
      const std::shared_ptr<Bytes> bytes = buffer.plain();
      form_ = std::make_shared<Packed>(device_, plain_, packed_, bytes->data() + offset_);
    }
    key_ = key;
    if (key.first != 0 && !is_read && is_all(buffer) && !buffer.is_small() && buffer.keep_only(form_))
      run.let_go += buffer.size;
    return form_->data();
  }
  uint64_t bytes() const override { return packed_.get_size(); }

 private:
  bool is_all(const Buffer& buffer) const { return offset_ == 0 && plain_.get_size() == buffer.size; }

  Device& device_;
  const int64_t offset_;  // bytes
  const memory::desc plain_, packed_;
  // Changed by a run, of which there is one at a time (EXE-9).
  mutable std::shared_ptr<const Packed> form_;
  mutable std::pair<uint64_t, uint64_t> key_;  // of the bytes that it was made of
};

// What decides a primitive over weights: steps of a program that have it in common share one.
struct WeightedCall {
  std::string name;
  std::vector<Argument> arguments;  // the weights among them
  memory::desc weights;             // as they lie
  dnnl::primitive_attr attr;        // with scratch of the caller's
  int max_threads;
  bool may_pack;

  bool is(const WeightedCall& other) const {
    const auto same = [](const Argument& x, const Argument& y) {
      return x.first == y.first && x.second.dtype == y.second.dtype && x.second.dims() == y.second.dims() && x.second.strides() == y.second.strides();
    };
    return name == other.name && std::ranges::equal(arguments, other.arguments, same) && weights == other.weights &&
           max_threads == other.max_threads && may_pack == other.may_pack && same_attr(attr, other.attr);
  }
};

void refuse_reference(const std::string& name, const dnnl::primitive_desc_base& pd) {
  if (is_reference(pd)) throw plugin::Error(LAZYT_CODE_INTERNAL, "oneDNN: " + name + " would run as " + pd.impl_info_str());
}

}  // namespace

// A primitive over weights as they lie, and one over packed ones. What the first run will want is made when a program is
// compiled, the other if ever: oneDNN takes 40 us to describe one, and 160 us and 60 KB to make it.
class WeightedPrimitive {
 public:
  WeightedPrimitive(WeightedCall call, MakeWithWeights make) : call_(std::move(call)), make_(std::move(make)) {
    const dnnl::primitive_desc_base pd = make_(call_.weights, call_.attr);
    refuse_reference(call_.name, pd);
    implementation_ = pd.impl_info_str();
    // Only of these every sum has one order, packed or not.
    can_pack_ = call_.may_pack && std::string_view(implementation_).starts_with("brg:");
    const bool is_packed = can_pack_ && packed_shapes().has(call_.weights) && has_packed();
    const dnnl::primitive_desc_base first = is_packed ? make_(packed_, call_.attr) : pd;
    scratch_bytes_ = static_cast<int64_t>(first.scratchpad_desc().get_size());
    made_[is_packed] = std::make_unique<Primitive>(call_.name, over(is_packed), call_.attr, call_.arguments, first,
                                                   std::min(thread_count(), call_.max_threads), call_.max_threads);
  }

  const WeightedCall& call() const { return call_; }
  bool can_pack() const { return can_pack_; }
  const memory::desc& packed() const { return packed_; }
  int64_t scratch_bytes() const { return scratch_bytes_; }  // of the program's own
  std::string describe() const { return call_.name + " " + implementation_; }

  // Whether oneDNN has a packed form that the same implementation reads. REQUIRES: can_pack().
  bool has_packed() {
    if (std::exchange(is_asked_, true)) return packed_.get_size() > 0;
    with_dnnl(call_.name, thread_count(), [&] {
      const auto any = memory::desc(call_.weights.get_dims(), call_.weights.get_data_type(), memory::format_tag::any);
      const dnnl::primitive_desc_base pd = make_(any, call_.attr);
      const memory::desc wanted = pd.query_md(dnnl::query::exec_arg_md, DNNL_ARG_WEIGHTS);
      if (wanted != call_.weights && pd.impl_info_str() == implementation_) packed_ = wanted;
    });
    return packed_.get_size() > 0;
  }

  // The arguments as Primitive::run.
  void run(bool is_packed, const Frame& frame, const std::vector<Place>& places, StorageId scratch) {
    std::unique_ptr<Primitive>& primitive = made_[is_packed];
    if (!primitive) primitive = std::make_unique<Primitive>(call_.name, over(is_packed), call_.attr, call_.arguments, call_.max_threads);
    primitive->run(frame, places, scratch);
  }

 private:
  MakePrimitive over(bool is_packed) const {
    return [make = make_, desc = is_packed ? packed_ : call_.weights](const dnnl::primitive_attr& attr) { return make(desc, attr); };
  }

  const WeightedCall call_;
  const MakeWithWeights make_;
  std::string implementation_;
  bool can_pack_ = false;
  int64_t scratch_bytes_ = 0;
  // Changed by a run, of which there is one at a time (EXE-9).
  std::unique_ptr<Primitive> made_[2];  // over plain weights, over packed ones
  memory::desc packed_;
  bool is_asked_ = false;
};

namespace {

// What a primitive's weights are in a run.
class PrimitiveWeights final : public WeightChoice {
 public:
  explicit PrimitiveWeights(std::shared_ptr<WeightedPrimitive> primitive) : primitive_(std::move(primitive)) {}

  bool has_packed() override { return primitive_->has_packed(); }
  uint64_t plain_bytes() const override { return plain().get_size(); }
  uint64_t packed_bytes() const override { return packed().get_size(); }
  bool is(const Form& form) const override {
    const auto* there = dynamic_cast<const Packed*>(&form);
    return there && there->is(plain(), packed());
  }
  std::shared_ptr<const Form> make(Device& device, std::byte* from) const override {
    return std::make_shared<Packed>(device, plain(), packed(), from);
  }

 private:
  const memory::desc& plain() const { return primitive_->call().weights; }
  const memory::desc& packed() const { return primitive_->packed(); }
  const std::shared_ptr<WeightedPrimitive> primitive_;
};

class WeightedStep final : public Step {
 public:
  // choice: null if the weights lie as they lie.
  WeightedStep(std::shared_ptr<WeightedPrimitive> primitive, std::shared_ptr<const WeightChoice> choice, const std::vector<Argument>& arguments,
               StorageId scratch)
      : primitive_(std::move(primitive)), choice_(std::move(choice)), places_(places_of(arguments)), scratch_(scratch) {}

  void run(const Frame& frame) const override { primitive_->run(is_packed(), frame, places_, scratch_); }
  std::string describe() const override { return primitive_->describe() + (is_packed() ? ", packed" : ""); }

 private:
  bool is_packed() const { return choice_ && choice_->is_packed; }
  const std::shared_ptr<WeightedPrimitive> primitive_;
  const std::shared_ptr<const WeightChoice> choice_;
  const std::vector<Place> places_;
  const StorageId scratch_;
};

}  // namespace

const dnnl::engine& cpu_engine() {
  static const dnnl::engine& engine = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

bool has_bf16() { return dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_bf16; }
bool has_bytes() { return dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_vnni; }

void limit_dnnl() {
  const std::string_view wanted = plugin::option("onednn", "isa");
  if (wanted == "avx2") dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
  if (wanted == "portable") dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41);
}

ThreadScope::ThreadScope(int n) : before_(omp_get_max_threads()) {
  if (n != before_) omp_set_num_threads(n);
}
ThreadScope::~ThreadScope() {
  if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
}

memory::data_type to_dnnl(lazyt_dtype_t dtype) {
  switch (dtype) {
    case LAZYT_DTYPE_FLOAT32: return memory::data_type::f32;
    case LAZYT_DTYPE_BFLOAT16: return memory::data_type::bf16;
    case LAZYT_DTYPE_UINT8: return memory::data_type::u8;
    case LAZYT_DTYPE_INT8: return memory::data_type::s8;
    case LAZYT_DTYPE_INT32: return memory::data_type::s32;
    default: throw plugin::Error(LAZYT_CODE_UNIMPLEMENTED, "oneDNN computes no dtype " + std::to_string(dtype));
  }
}

memory::desc describe(const Tensor& t) {
  Dims strides = t.strides();
  int64_t step = 1;
  // A dim of size 1 lies just outside the next smaller ones, in the order of the strides.
  for (size_t i = t.dims().size(); i-- > 0;) {
    if (t.dims()[i] == 1) strides[i] = step;
    step = std::max(step, strides[i] * t.dims()[i]);
  }
  return {t.dims(), to_dnnl(t.dtype), strides};
}

namespace {

// What a step of a primitive reads and writes, and its operands in that order.
struct Access {
  std::vector<StorageId> reads, writes;
  std::vector<Argument> all;

  explicit Access(const PrimitiveArguments& arguments) {
    take(arguments.reads, true, false);
    take(arguments.updates, true, true);
    take(arguments.writes, false, true);
  }
  void take(const std::vector<Argument>& list, bool read, bool written) {
    for (const Argument& a : list) {
      all.push_back(a);
      if (read) reads.push_back(a.second.storage);
      if (written) writes.push_back(a.second.storage);
    }
  }
};

dnnl::primitive_attr with_scratch(dnnl::primitive_attr attr) {
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

// Scratch of the program's own, if so many bytes are wanted; `access` grows by it.
StorageId scratch_of(Builder& b, int64_t bytes, Access& access) {
  if (bytes == 0) return 0;
  const StorageId scratch = b.scratch(LAZYT_DTYPE_UINT8, {bytes}).storage;
  access.writes.push_back(scratch);
  return scratch;
}

}  // namespace

void add_primitive(Builder& b, const std::string& name, const MakePrimitive& make,
                   const dnnl::primitive_attr& attr, const PrimitiveArguments& arguments, int max_threads) {
  const int threads = std::min(thread_count(), max_threads);
  with_dnnl(name, threads, [&] {
    const dnnl::primitive_attr scratched = with_scratch(attr);
    const dnnl::primitive_desc_base pd = make(scratched);
    refuse_reference(name, pd);
    Access access(arguments);
    const StorageId scratch = scratch_of(b, static_cast<int64_t>(pd.scratchpad_desc().get_size()), access);
    auto made = std::make_shared<Primitive>(name, make, scratched, access.all, pd, threads, max_threads);
    const auto it = std::ranges::find_if(b.primitives, [&](const auto& p) { return p->is(*made); });
    if (it == b.primitives.end())
      b.primitives.push_back(made);
    else
      made = *it;
    b.add(std::make_unique<PrimitiveStep>(std::move(made), access.all, scratch), access.reads, access.writes);
  });
}

void add_primitive(Builder& b, const std::string& name, const MakeWithWeights& make,
                   const dnnl::primitive_attr& attr, PrimitiveArguments arguments, const Tensor& weights,
                   const memory::desc& desc, int max_threads) {
  with_dnnl(name, std::min(thread_count(), max_threads), [&] {
    const uint32_t input = b.steady_input(weights);
    arguments.reads.emplace_back(DNNL_ARG_WEIGHTS, weights);
    WeightedCall call{name, Access(arguments).all, desc, with_scratch(attr), max_threads, input != LAZYT_NONE};
    auto it = std::ranges::find_if(b.weighted, [&](const auto& p) { return p->call().is(call); });
    if (it == b.weighted.end()) it = b.weighted.insert(it, std::make_shared<WeightedPrimitive>(std::move(call), make));
    const std::shared_ptr<WeightedPrimitive> primitive = *it;
    std::shared_ptr<PrimitiveWeights> choice;
    if (primitive->can_pack()) {
      choice = std::make_shared<PrimitiveWeights>(primitive);
      arguments.reads.back().second = add_weights(b, weights, input, choice);
    }
    Access access(arguments);
    const StorageId scratch = scratch_of(b, primitive->scratch_bytes(), access);
    b.add(std::make_unique<WeightedStep>(primitive, choice, access.all, scratch), access.reads, access.writes);
  });
}

namespace {

void add_reorder_step(Builder& b, const Tensor& from, const memory::desc& from_desc, const Tensor& to,
                      const memory::desc& to_desc) {
  const auto make = [=](const dnnl::primitive_attr& attr) -> dnnl::primitive_desc_base {
    return dnnl::reorder::primitive_desc(cpu_engine(), from_desc, cpu_engine(), to_desc, attr);
  };
  add_primitive(b, "reorder", make, {}, {{{DNNL_ARG_FROM, from}}, {{DNNL_ARG_TO, to}}, {}},
                useful_threads(static_cast<double>(to_desc.get_size()) * 4));
}

}  // namespace

Tensor add_reorder(Builder& b, const Tensor& from, const memory::desc& from_desc, const memory::desc& to) {
  const Dims size{static_cast<int64_t>(to.get_size())};
  if (const uint32_t input = b.steady_input(from); input != LAZYT_NONE) {
    const int64_t offset = from.layout.offset * static_cast<int64_t>(from.element());
    return b.add_kept(std::make_unique<KeptPacked>(b.device(), offset, from_desc, to), input);
  }
  const Tensor bytes = b.scratch(LAZYT_DTYPE_UINT8, size);
  add_reorder_step(b, from, from_desc, bytes, to);
  return bytes;
}

void add_reorder_back(Builder& b, const Tensor& from, const memory::desc& from_desc, const Tensor& to,
                      const memory::desc& to_desc) {
  add_reorder_step(b, from, from_desc, to, to_desc);
}

bool is_reference(const dnnl::primitive_desc_base& pd) {
  const std::string name = pd.impl_info_str();
  return name.rfind("ref", 0) == 0 || name.rfind("simple:any", 0) == 0 || name.find("ncsp") != std::string::npos;
}

}  // namespace lazyt::onednn
