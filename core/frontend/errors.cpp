#include "frontend/errors.h"

namespace lazyt::frontend {

void raise(const base::Status& status) {
  std::string text = status.to_string();
  switch (status.code()) {
    case LAZYT_CODE_RESOURCE_EXHAUSTED: TORCH_CHECK_WITH(OutOfMemoryError, false, text);
    case LAZYT_CODE_UNIMPLEMENTED: TORCH_CHECK_NOT_IMPLEMENTED(false, text);
    default: TORCH_CHECK(false, text);
  }
  std::abort();  // the checks above always throw
}

}  // namespace lazyt::frontend
