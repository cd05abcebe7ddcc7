// The layers between the host and one plugin, as LAZYT_LAYERS names them: "validate", "validate:abort",
// "a,b".
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "layers/layer.h"

namespace lazyt::layers {

class Tables;

class Stack {
 public:
  // `names`: layers from the host's side to the plugin's, each with its options. INVALID_ARGUMENT names a
  // layer or option that does not exist and those that do; RESOURCE_EXHAUSTED when too many plugins have
  // layers. Null when no layer is named.
  static base::Result<std::unique_ptr<Stack>> make(const std::string& names);
  ~Stack();

  // Before the plugin's entry: the host's table that it is handed. Lives as long as this.
  const lazyt_host_t* host_over(const lazyt_host_t* host);
  // After it, and after the table was checked: the table that the host calls. Lives as long as this.
  const lazyt_plugin_t* plugin_over(const lazyt_plugin_t* plugin);

 private:
  Stack();
  struct Level;
  std::vector<Level> levels_;  // the first is next to the host
};

// OK if make(LAZYT_LAYERS) would be, slots aside.
base::Status check_environment();

}  // namespace lazyt::layers
