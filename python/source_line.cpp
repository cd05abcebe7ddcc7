#include "source_line.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/utils/pybind.h>

#include <frameobject.h>

#include <string_view>
#include <unordered_map>
#include <vector>

namespace lazyt::python {
namespace {

using Line = std::shared_ptr<const ir::SourceLine>;

std::vector<std::string>* internal_folders = nullptr;
bool capture = true;

struct Kind {
  bool internal;
  bool engine;  // the function of PyTorch's that runs a backward pass
};

Kind look_at(PyCodeObject* code) {
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  // "<string>", "<stdin>" and cells of notebooks are the user's; "<frozen ...>" and generated code are not.
  auto typed_in = [&] {
    for (const char* name : {"<string>", "<stdin>", "<ipython-input"})
      if (std::string_view(file).starts_with(name)) return true;
    return false;
  };
  bool internal = !file || (file[0] == '<' && !typed_in());
  for (size_t i = 0; !internal && internal_folders && i < internal_folders->size(); i++)
    internal = std::string_view(file).starts_with((*internal_folders)[i]);
  const char* name = PyUnicode_AsUTF8(code->co_name);
  return {internal, internal && name && std::string_view(name) == "_engine_run_backward"};
}

Kind kind_of(PyCodeObject* code) {
  static auto* known = new std::unordered_map<PyCodeObject*, Kind>;  // holds a reference to each
  auto it = known->find(code);
  if (it != known->end()) return it->second;
  Py_INCREF(code);
  return known->emplace(code, look_at(code)).first->second;
}

// One object a line: thousands of recorded calls may stand at it. The GIL protects it.
Line line_of(PyCodeObject* code, int number) {
  struct Place {
    PyCodeObject* code;  // kind_of holds it
    int number;
    bool operator==(const Place&) const = default;
  };
  struct Hasher {
    size_t operator()(const Place& p) const { return std::hash<PyCodeObject*>()(p.code) + 31 * static_cast<size_t>(p.number); }
  };
  static auto* known = new std::unordered_map<Place, Line, Hasher>;
  Line& line = (*known)[{code, number}];
  if (!line) line = std::make_shared<ir::SourceLine>(ir::SourceLine{PyUnicode_AsUTF8(code->co_filename), "", static_cast<uint32_t>(number)});
  return line;
}

// Lines of forward calls by the number that their nodes in autograd's graph have; each thread counts for
// itself. The GIL protects it.
class ForwardLines {
 public:
  // The call that is being recorded made the last node, if it is the first since then.
  void put(const Line& line) {
    const uint64_t next = at::sequence_number::peek();
    if (next == 0) return;
    if (entries_.empty()) entries_.resize(kEntries);  // half a MiB, which inference does not need
    const uint64_t thread = at::RecordFunction::currentThreadId();
    Entry& e = at(next - 1, thread);
    if (e.line && e.number == next - 1 && e.thread == thread) return;
    e = {next - 1, thread, line};
  }
  Line get(const torch::autograd::Node& node) {
    if (entries_.empty()) return nullptr;
    const Entry& e = at(node.sequence_nr(), node.thread_id());
    return e.line && e.number == node.sequence_nr() && e.thread == node.thread_id() ? e.line : nullptr;
  }

 private:
  struct Entry {
    uint64_t number = 0, thread = 0;
    Line line;
  };
  Entry& at(uint64_t number, uint64_t thread) { return entries_[(number + 7919 * thread) % kEntries]; }
  static constexpr size_t kEntries = 1 << 14;
  std::vector<Entry> entries_;
};

}  // namespace

Line user_line() {
  if (!capture || !Py_IsInitialized()) return nullptr;
  pybind11::gil_scoped_acquire gil;
  static auto* forward = new ForwardLines;
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  Line out;
  // No Python between the engine and the operator; on a thread of the engine's there is none at all.
  auto gradient = [&] {
    if (const auto node = torch::autograd::get_current_node()) out = forward->get(*node);
  };
  if (!frame) gradient();
  for (bool innermost = true; frame && !out; innermost = false) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const Kind kind = kind_of(code);
    if (innermost && kind.engine) gradient();
    if (!out && !kind.internal) out = line_of(code, PyFrame_GetLineNumber(frame));
    Py_DECREF(code);
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  if (out && c10::GradMode::is_enabled()) forward->put(out);
  return out;
}

void set_internal_folders(const std::vector<std::string>& folders) {
  if (!internal_folders) internal_folders = new std::vector<std::string>(folders);
}

void set_source_capture(bool on) { capture = on; }

}  // namespace lazyt::python
