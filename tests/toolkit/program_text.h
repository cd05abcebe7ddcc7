// Programs for toolkit tests, from their text form (core/ir/text.h).
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string_view>

#include "ir/program.h"
#include "ir/text.h"
#include "lazyt/plugin.hpp"

namespace lazyt::toolkit {

class ProgramText {
 public:
  explicit ProgramText(std::string_view text) {
    auto graph = ir::parse(text);
    EXPECT_TRUE(graph.ok()) << graph.status().to_string();
    program_ = ir::Program::from_graph(graph.value());
  }
  plugin::ProgramView view() const { return plugin::ProgramView(program_->block()); }

 private:
  decltype(ir::Program::from_graph(std::declval<const ir::Graph&>())) program_;
};

}  // namespace lazyt::toolkit
