// The function tables of one layer: C functions without user data that find their layer by a slot.
#pragma once

#include <memory>

#include "layers/layer.h"

namespace lazyt::layers {

// Takes a slot for as long as it lives; slots are few, so that each can have functions of its own.
class Tables {
 public:
  static constexpr size_t kSlots = 16;
  // Null when every slot is taken. layer lives as long as the result.
  static std::unique_ptr<Tables> make(Layer& layer);
  ~Tables();
  // What the plugin is handed in place of `above`, and the host in place of `below`. Slots that are NULL
  // there are NULL here. They live as long as this.
  const lazyt_host_t* host_over(const lazyt_host_t* above);
  const lazyt_plugin_t* plugin_over(const lazyt_plugin_t* below);

 private:
  explicit Tables(size_t slot) : slot_(slot) {}

  size_t slot_;
  lazyt_host_t host_{};
  lazyt_host_status_t status_{};
  lazyt_host_services_t services_{};
  lazyt_plugin_t plugin_{};
  lazyt_plugin_device_t device_{};
  lazyt_plugin_buffer_t buffer_{};
  lazyt_plugin_event_t event_{};
  lazyt_plugin_capability_t capability_{};
  lazyt_plugin_executable_t executable_{};
};

}  // namespace lazyt::layers
