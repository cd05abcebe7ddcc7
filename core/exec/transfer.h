// Transfer: bytes from one device to another.
#pragma once

#include "exec/data.h"

namespace lazyt::exec {

// Fills `to` with the bytes of `from`, or with its error; waits for them. The shortest way that both ends offer: a copy
// within the plugin, the same memory where one exports (DLPack) what the other imports, else through the host.
// [executor of `device`]
void transfer(const base::Ref<Data>& from, Data& to, const base::Ref<loader::Device>& device);

}  // namespace lazyt::exec
