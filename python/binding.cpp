// lazyt._C: the runtime for Python. Thin: each function is one call of the core.
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "base/counters.h"
#include "base/host_reasons.h"
#include "frontend/backward.h"
#include "frontend/captured_graph.h"
#include "frontend/dlpack.h"
#include "frontend/errors.h"
#include "frontend/fallback.h"
#include "frontend/random.h"
#include "frontend/registration.h"
#include "frontend/storage.h"
#include "frontend/thread_state.h"
#include "frontend/tracer.h"
#include "ir/text.h"
#include "loader/loader.h"
#include "source_line.h"
#include "trace/session.h"

namespace py = pybind11;
using namespace lazyt;
using frontend::check;

namespace {

// -1: the current device.
uint32_t index_of(int device) { return frontend::check_device({frontend::kDeviceType, static_cast<c10::DeviceIndex>(device)}); }
trace::Session& session(int device = -1) { return trace::Session::get(index_of(device)); }
trace::Session& session_of(const at::Tensor& t) { return trace::Session::get(static_cast<size_t>(t.get_device())); }

trace::FlushReason reason_of(const std::string& name) {
  for (auto r : {trace::FlushReason::kValueNeeded, trace::FlushReason::kMarkStep, trace::FlushReason::kOptimizerStep,
                 trace::FlushReason::kNodeBudget, trace::FlushReason::kHostOperator, trace::FlushReason::kOtherThread, trace::FlushReason::kTimedEvent, trace::FlushReason::kExit})
    if (name == trace::flush_reason_name(r)) return r;
  TORCH_CHECK(false, "lazyt: unknown flush reason '", name, "'");
}

ir::Graph pending(const std::optional<at::Tensor>& t) {
  if (t) return check(session_of(*t).pending_program(&frontend::state_of(*t), nullptr));
  frontend::ThreadState& thread = frontend::thread_state();
  return check(session().pending_program(nullptr, thread.lanes[thread.device].recorder));
}

py::object to_python(const ir::Arg& a) {
  switch (a.kind) {
    case LAZYT_ARG_VALUE: return py::make_tuple("%", a.value);
    case LAZYT_ARG_INT: case LAZYT_ARG_MEMORY_FORMAT: case LAZYT_ARG_LAYOUT: return py::int_(a.i);
    case LAZYT_ARG_DOUBLE: return py::float_(a.d);
    case LAZYT_ARG_BOOL: return py::bool_(a.i != 0);
    case LAZYT_ARG_COMPLEX: return py::cast(std::complex<double>(a.doubles[0], a.doubles[1]));
    case LAZYT_ARG_STRING: return py::str(a.string);
    case LAZYT_ARG_DTYPE: return py::make_tuple("dtype", base::dtype_name(static_cast<base::DType>(a.i)));
    case LAZYT_ARG_DEVICE: return py::make_tuple("device", a.i);
    case LAZYT_ARG_INTS: return py::cast(a.ints);
    case LAZYT_ARG_DOUBLES: return py::cast(a.doubles);
    case LAZYT_ARG_BOOLS: {
      py::list out;
      for (int64_t b : a.ints) out.append(py::bool_(b != 0));
      return out;
    }
    case LAZYT_ARG_LIST: {
      py::list out;
      for (const ir::Arg& e : a.list) out.append(to_python(e));
      return out;
    }
    default: return py::none();
  }
}

// The pending program as data: inputs, constants and nodes in order, then the outputs.
py::list nodes(const std::optional<at::Tensor>& t) {
  ir::Graph g = pending(t);
  auto value = [&](ir::ValueId v) {
    const base::Meta& m = g.values[v].meta;
    return py::make_tuple(v, base::dtype_name(m.dtype), m.dims);
  };
  py::list out;
  for (const ir::Input& i : g.inputs) {
    bool scalar = g.values[i.value].kind == ir::ValueKind::kHostScalar;
    out.append(py::dict(py::arg("kind") = scalar ? "host_scalar" : "input", py::arg("results") = py::make_tuple(value(i.value))));
  }
  for (const ir::Constant& c : g.constants)
    out.append(py::dict(py::arg("kind") = "constant", py::arg("results") = py::make_tuple(value(c.value)),
                        py::arg("bytes") = py::bytes(reinterpret_cast<const char*>(c.bytes.data()), c.bytes.size())));
  for (const ir::Node& n : g.nodes) {
    py::list results, args;
    for (uint32_t i = 0; i < n.result_count; i++) results.append(value(n.first_result + i));
    for (const ir::Arg& a : n.args) args.append(to_python(a));
    out.append(py::dict(py::arg("kind") = "node", py::arg("op") = n.name, py::arg("overload") = n.overload,
                        py::arg("args") = args, py::arg("results") = results,
                        py::arg("file") = n.source ? n.source->file : "", py::arg("line") = n.source ? n.source->line : 0));
  }
  for (const ir::Output& o : g.outputs)
    out.append(py::dict(py::arg("kind") = "output", py::arg("results") = py::make_tuple(value(o.value))));
  return out;
}

py::dict backend(int index) {
  auto device = [&] {
    py::gil_scoped_release no_gil;
    return check(session(index).device());
  }();
  const loader::PluginInfo& i = device->plugin->info;
  return py::dict(py::arg("name") = i.name, py::arg("version") = i.version, py::arg("description") = i.description,
                  py::arg("vendor") = i.vendor, py::arg("path") = i.path, py::arg("score") = i.score,
                  py::arg("device") = device->info.name, py::arg("device_index") = device->info.index);
}

py::dict memory_stats(int index) {
  auto device = [&] {
    py::gil_scoped_release no_gil;
    return check(session(index).device());
  }();
  session(index).drop_dead();
  lazyt_memory_stats_t s = check(device->memory_stats());
  return py::dict(py::arg("bytes_in_use") = s.bytes_in_use, py::arg("peak_bytes_in_use") = s.peak_bytes_in_use,
                  py::arg("bytes_reserved") = s.bytes_reserved, py::arg("derived_bytes") = s.derived_bytes);
}

frontend::FallbackPolicy policy_of(const std::string& name) {
  if (name == "allow") return frontend::FallbackPolicy::kAllow;
  if (name == "warn") return frontend::FallbackPolicy::kWarn;
  if (name == "deny") return frontend::FallbackPolicy::kDeny;
  throw py::value_error("lazyt: fallback policy '" + name + "' is none of allow, warn, deny");
}

constexpr char kCapsule[] = "dltensor_versioned", kUsedCapsule[] = "used_dltensor_versioned";

py::object to_dlpack(const at::Tensor& t) {
  DLManagedTensorVersioned* tensor = [&] {
    py::gil_scoped_release release;
    return frontend::to_dlpack(t);
  }();
  if (!tensor) return py::none();
  return py::reinterpret_steal<py::object>(PyCapsule_New(tensor, kCapsule, [](PyObject* capsule) {
    if (!PyCapsule_IsValid(capsule, kCapsule)) return;  // taken over
    auto* left = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, kCapsule));
    if (left->deleter) left->deleter(left);
  }));
}

std::optional<at::Tensor> from_dlpack(const py::capsule& capsule) {
  if (!PyCapsule_IsValid(capsule.ptr(), kCapsule)) return std::nullopt;  // older than DLPack 1.0
  auto* tensor = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), kCapsule));
  at::Tensor t = [&] {
    py::gil_scoped_release release;
    return frontend::from_dlpack(tensor);
  }();
  if (!t.defined()) return std::nullopt;
  PyCapsule_SetName(capsule.ptr(), kUsedCapsule);
  return t;
}

// Arguments and results of a captured graph; false if one is no value of a graph that can be known.
bool read_values(const py::handle& sequence, std::vector<frontend::GraphValue>& out) {
  for (const py::handle& v : py::reinterpret_borrow<py::sequence>(sequence)) {
    if (THPVariable_Check(v.ptr())) out.emplace_back(&THPVariable_Unpack(v.ptr()));
    else if (v.is_none()) out.emplace_back();
    else if (PyBool_Check(v.ptr())) out.emplace_back(v.ptr() == Py_True);
    else if (PyFloat_CheckExact(v.ptr())) out.emplace_back(PyFloat_AS_DOUBLE(v.ptr()));
    else if (int overflow = 0; PyLong_CheckExact(v.ptr())) {
      out.emplace_back(static_cast<int64_t>(PyLong_AsLongLongAndOverflow(v.ptr(), &overflow)));
      if (overflow != 0) return false;
    } else return false;
  }
  return true;
}

py::object result_of(frontend::GraphResult& r, const py::list& arguments) {
  if (r.argument) return arguments[*r.argument];
  if (r.tensor.defined()) return py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(r.tensor)));
  if (const auto* truth = std::get_if<bool>(&r.number)) return py::bool_(*truth);
  if (const auto* number = std::get_if<int64_t>(&r.number)) return py::int_(*number);
  if (const auto* real = std::get_if<double>(&r.number)) return py::float_(*real);
  return py::none();
}

// The results as a list, or the place that learn() wants.
py::object follow(frontend::CapturedGraph& graph, const py::list& arguments) {
  std::vector<frontend::GraphValue> values;
  values.reserve(arguments.size());
  std::vector<frontend::GraphResult> results;
  trace::Place place;
  if (!read_values(arguments, values) || !graph.follow(values, results, place)) return py::cast(place);
  py::list out(results.size());
  for (size_t i = 0; i < results.size(); i++) out[i] = result_of(results[i], arguments);
  return out;
}

void learn(frontend::CapturedGraph& graph, const py::list& arguments, const py::sequence& results, const trace::Place& place) {
  std::vector<frontend::GraphValue> values, made;
  if (read_values(arguments, values) && read_values(results, made)) graph.learn(values, made, place);
}

// None: done. Else the engine is to run, and learn() to be called.
std::unique_ptr<frontend::Backward> follow_backward(std::vector<at::Tensor> outputs, std::vector<at::Tensor> gradients, bool keep_graph) {
  auto backward = std::make_unique<frontend::Backward>(std::move(outputs), std::move(gradients), keep_graph);
  return backward->follow() ? nullptr : std::move(backward);
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  using release = py::call_guard<py::gil_scoped_release>;
  m.def("initialize", [](const std::vector<std::string>& skip) {
    python::set_internal_folders(skip);
    frontend::set_source_hook(&python::user_line);
    frontend::gil = {[] { return static_cast<void*>(PyGILState_Check() ? PyEval_SaveThread() : nullptr); },
                     [](void* thread) {
                       if (thread) PyEval_RestoreThread(static_cast<PyThreadState*>(thread));
                     }};
    frontend::initialize();
  }, py::arg("internal_folders") = std::vector<std::string>{});
  m.def("record_late_operators", &frontend::record_late_operators);
  m.def("set_source_capture", &python::set_source_capture);

  m.def("device_count", &frontend::device_count);
  m.def("current_device", [] { return frontend::thread_state().device; });
  m.def("set_device", [](int device) { frontend::thread_state().device = index_of(device); });

  m.def("flush", [](const std::string& reason, std::optional<uint32_t> device) { frontend::flush(reason_of(reason), device); },
        py::arg("reason") = "MarkStep", py::arg("device") = py::none(), release());
  m.def("wait", &frontend::wait, py::arg("device") = py::none(), release());
  m.def("shutdown", &trace::Session::shut_down_all, release());
  m.def("mark_forked", &trace::Session::mark_forked);

  m.def("graph", [](std::optional<at::Tensor> t) { return ir::print(pending(t)); }, py::arg("tensor") = py::none());
  m.def("nodes", &nodes, py::arg("tensor") = py::none());
  m.def("is_pending", [](const at::Tensor& t) {
    std::lock_guard lock(trace::recording_lock);
    return frontend::state_of(t).pending;
  });
  m.def("pending_ops", [] { 
    size_t pending = 0;  // of this thread
    std::lock_guard lock(trace::recording_lock);
    for (const frontend::Lane& lane : frontend::thread_state().lanes) pending += lane.recorder ? lane.recorder->pending_ops() : 0;
    return pending;
  });
  m.def("live_storages", [] { return trace::Session::totals().live_storages; });
  m.def("tape_count", [] { return trace::Session::totals().tapes; });
  m.def("program_count", [](std::optional<int> device) {
    size_t count = 0;
    for (trace::Session* s : trace::Session::all())
      if (!device || s->index == *device) count += s->programs().size();
    return count;
  }, py::arg("device") = py::none());
  m.def("set_replay", &trace::Session::set_replay, release());
  m.def("executor_busy_seconds", [](std::optional<int> device) {
    uint64_t ns = 0;
    for (trace::Session* s : trace::Session::all())
      if (!device || s->index == *device) ns += s->executor_busy_ns();
    return ns * 1e-9;
  }, py::arg("device") = py::none());

  m.def("counters", [] {
    py::dict out;
    for (const auto& [name, value] : base::counters()) out[py::str(name)] = value;
    return out;
  });
  m.def("host_reasons", [] {
    py::dict out;
    for (const auto& [op, reason] : base::host_reasons()) out[py::str(op)] = reason;
    return out;
  });
  m.def("metric_names", &base::metric_names);
  m.def("metric", [](const std::string& name) {
    base::MetricData d = base::metric(name);
    return py::make_tuple(d.count, d.total_seconds, d.samples);
  });
  m.def("reset_counters", &base::reset_counters);
  m.def("count", [](const std::string& name, int64_t n) { base::counter(name).add(n); }, py::arg("name"), py::arg("n") = 1);

  m.def("backend", &backend, py::arg("device") = -1);
  m.def("use_backend", [](const std::string& name, int device) {
    // A list in order of preference is the loader's to read.
    trace::DeviceChoice choice{name};
    if (name.find(',') == name.npos) choice = check(trace::parse_device(name));
    check(session(device).use_backend(std::move(choice)));
  }, py::arg("name"), py::arg("device") = -1, release());
  m.def("add_kernel", [](const std::string& name, uintptr_t function, uintptr_t user_data, const std::string& source, const std::string& entry,
                        const std::array<uint32_t, 3>& grid, const std::array<uint32_t, 3>& block) {
    check(session().add_kernel({name, reinterpret_cast<lazyt_kernel_function_t>(function), reinterpret_cast<void*>(user_data), source, entry, grid, block}));
  }, release());
  m.def("add_plugin_folder", &loader::add_folder);
  m.def("backends", [] { return loader::list().to_json(); }, release());
  m.def("memory_stats", &memory_stats, py::arg("device") = -1);
  m.def("dlpack_device", [](const at::Tensor& t) { return frontend::dlpack_device(static_cast<uint32_t>(t.get_device())); }, release());
  m.def("to_dlpack", &to_dlpack);
  m.def("from_dlpack", &from_dlpack);
  m.def("set_fallback", [](const std::string& p) { frontend::set_fallback_policy(policy_of(p)); });
  m.def("fallback", [] {
    static const char* names[] = {"allow", "warn", "deny"};
    return names[static_cast<int>(frontend::fallback_policy())];
  });
  py::class_<trace::Place>(m, "Place");
  py::class_<frontend::CapturedGraph>(m, "CapturedGraph").def(py::init<>()).def("follow", &follow).def("learn", &learn);
  py::class_<frontend::Backward>(m, "Backward").def("learn", &frontend::Backward::learn);
  m.def("follow_backward", &follow_backward);
  m.def("note_backward", &frontend::note_backward);
  m.def("seed_all", [](uint64_t seed) {
    for (uint32_t i = 0; i < trace::kMaxDevices; i++) {
      at::Generator g = frontend::default_generator(i);
      std::lock_guard lock(g.mutex());
      g.set_current_seed(seed);
    }
  });
  m.def("default_generator", [](int device) {
    return py::reinterpret_steal<py::object>(THPGenerator_Wrap(at::Generator(frontend::default_generator(index_of(device)))));
  });
}
