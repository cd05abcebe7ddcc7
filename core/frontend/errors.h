// The one place where a Status becomes PyTorch's exception.
#pragma once

#include <c10/util/Exception.h>

#include "base/status.h"

namespace lazyt::frontend {

// RESOURCE_EXHAUSTED -> OutOfMemoryError, UNIMPLEMENTED -> NotImplementedError, OUT_OF_RANGE -> IndexError, what linear
// algebra finds in its values -> LinAlgError, else RuntimeError: the types that eager's kernels raise.
[[noreturn]] void raise(const base::Status& status);

inline void check(const base::Status& status) {
  if (C10_UNLIKELY(!status.ok())) raise(status);
}

template <class T>
T check(base::Result<T> result) {
  if (C10_UNLIKELY(!result.ok())) raise(result.status());
  return std::move(result).value();
}

}  // namespace lazyt::frontend
