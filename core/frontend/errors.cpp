#include "frontend/errors.h"

#include <algorithm>
#include <initializer_list>
#include <string>

namespace lazyt::frontend {
namespace {

// The failure is of an operator of PyTorch's whose name has one of these in it. A note begins with its name:
// where it stands if the plugin ran it, what if the host did.
bool is_of(const base::Status& status, std::initializer_list<const char*> names) {
  auto is = [&](const std::string& text) {
    if (!text.starts_with("aten::")) return false;
    const std::string op = text.substr(0, text.find(','));
    return std::ranges::any_of(names, [&](const char* name) { return op.find(name) != std::string::npos; });
  };
  return std::ranges::any_of(status.notes(),
                             [&](const base::Note& note) { return is(note.where) || is(note.detail); });
}

}  // namespace

void raise(const base::Status& status) {
  std::string text = status.to_string();
  switch (status.code()) {
    case LAZYT_CODE_RESOURCE_EXHAUSTED:
      TORCH_CHECK_WITH(OutOfMemoryError, false, text);
    case LAZYT_CODE_OUT_OF_RANGE:
      if (is_of(status, {"gather", "scatter", "margin_loss", "searchsorted"}))
        break;  // eager's exceptions are IndexErrors but for these
      if (status.message().find("is out of DATA bounds") != std::string::npos) break;  // of a kernel for some dims
      if (is_of(status, {"index_add"}) && status.message().find("is out of bounds for dimension") != std::string::npos)
        break;  // of one dim it says "out of range", and that is one
      TORCH_CHECK_INDEX(false, text);
    case LAZYT_CODE_INVALID_ARGUMENT:
      if (status.message().find("indexing tensors could not be broadcast") != std::string::npos)  // elements of a mask and an index
        TORCH_CHECK_INDEX(false, text);
      if (!is_of(status, {"linalg_", "cholesky"})) break;
      TORCH_CHECK_LINALG(
          false, text);  // shapes and dtypes were checked when the call was recorded: it is about the values
    case LAZYT_CODE_UNIMPLEMENTED:
      TORCH_CHECK_NOT_IMPLEMENTED(false, text);
    default:
      break;
  }
  TORCH_CHECK(false, text);
  std::abort();  // the checks above always throw
}

}  // namespace lazyt::frontend
