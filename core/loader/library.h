// One library: checked, opened, asked who it is, started. Each step can fail with its own reason.
#pragma once

#include "loader/loader.h"

namespace lazyt::loader {

// Opens candidate.path up to a running Plugin; null and step, reason and detail of the candidate
// filled when a step fails. One at a time in the process. A library that is already running gives the
// same Plugin.
base::Ref<Plugin> open_library(Candidate& candidate);

// Number of devices; fills step, reason and detail when there are none.
uint32_t count_devices(const Plugin& plugin, Candidate& candidate);

// For ~Plugin: shuts down and unloads; leaves a library that hangs in shutdown. library may be NULL (tests).
void close_library(const Plugin& plugin, void* library);

}  // namespace lazyt::loader
