// The user's line: what errors and programs say of where an operator was called.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace lazyt::python {

// The innermost frame that is not PyTorch's or ours. Of what autograd's engine calls in a backward pass: the
// line of the forward call that it is the gradient of, if that was recorded lately. Null without Python, and
// when capture is off. Takes the GIL. [any thread]
std::shared_ptr<const ir::SourceLine> user_line();

// Files below these folders are not the user's; the first call counts. REQUIRES: the GIL.
void set_internal_folders(const std::vector<std::string>& folders);
void set_source_capture(bool on);  // REQUIRES: the GIL

}  // namespace lazyt::python
