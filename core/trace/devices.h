// Devices: which plugin's device each device of the process is.
//
// `lazyt:i` is entry i of LAZYT_DEVICES: onednn,cuda:1,/path/lazyt_acme.so:0. Without it `lazyt:i` is device i of the
// plugin that LAZYT_BACKEND names. `Session::use_backend` changes an entry, nothing changes their number.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lazyt::trace {

struct DeviceChoice {
  std::string backend;             // as loader::load takes it
  uint32_t index = 0;              // of the plugin's devices
  const char* variable = nullptr;  // the environment variable that says so, if one does
};

// "name", "name:1", "/path/to/lazyt_name.so:1". INVALID_ARGUMENT if there is no name, or no number behind ':'.
base::Result<DeviceChoice> parse_device(std::string_view text);

// LAZYT_DEVICES, read once; empty if it is not set.
const base::Result<std::vector<DeviceChoice>>& listed_devices();

}  // namespace lazyt::trace
