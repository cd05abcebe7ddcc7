// FakeHostRunner: runs aten::lgamma, aten::neg, aten::add and aten::slice on dense f32, in place of the frontend.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "exec/host_runner.h"

namespace lazyt::testing {

class FakeHostRunner : public exec::HostRunner {
 public:
  base::Status run(const ir::Graph& graph, std::span<const exec::HostTensor> inputs,
                   std::span<const exec::HostTensor> outputs) override {
    runs++;
    if (throws) throw std::runtime_error("the runner threw");
    if (!error.ok()) return error;
    addresses.clear();
    std::vector<std::vector<float>> values(graph.values.size());
    for (size_t i = 0; i < inputs.size(); i++) {
      addresses.push_back(inputs[i].data);
      auto& value = values[graph.inputs[i].value];
      if (inputs[i].meta.dtype == LAZYT_DTYPE_FLOAT64) {
        value = {static_cast<float>(*static_cast<const double*>(inputs[i].data))};
        continue;
      }
      const auto* data = static_cast<const float*>(inputs[i].data);
      value.assign(data, data + inputs[i].meta.numel());
    }
    for (const ir::Node& node : graph.nodes) {
      std::vector<float> result = values[node.args[0].value];
      if (node.name == "aten::slice") {  // (self, dim, start, end, step) of one dim
        const auto& from = values[node.args[0].value];
        result.assign(from.begin() + node.args[2].i, from.begin() + std::min<int64_t>(node.args[3].i, from.size()));
      }
      for (size_t i = 0; i < result.size(); i++) {
        if (node.name == "aten::lgamma")
          result[i] = std::lgamma(result[i]);
        else if (node.name == "aten::neg")
          result[i] = -result[i];
        else if (node.name == "aten::add")
          result[i] += values[node.args[1].value].at(values[node.args[1].value].size() == 1 ? 0 : i);
        else if (node.name != "aten::slice")
          return base::unimplemented(node.name);
      }
      values[node.first_result] = std::move(result);
    }
    for (size_t o = 0; o < outputs.size(); o++)
      std::copy(values[graph.outputs[o].value].begin(), values[graph.outputs[o].value].end(),
                static_cast<float*>(outputs[o].data));
    return {};
  }

  int runs = 0;
  bool throws = false;
  base::Status error;            // returned by run
  std::vector<void*> addresses;  // of the last run's inputs
};

}  // namespace lazyt::testing
