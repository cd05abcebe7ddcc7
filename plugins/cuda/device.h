// Device: one NVIDIA GPU, its primary context.
#pragma once

#include "driver.h"

namespace lazyt::cuda {

extern const lazyt_plugin_device_t kDeviceTable;

}  // namespace lazyt::cuda
