// Roles of the few operators that tests of fusion and of order use.
#pragma once

#include "lazyt/toolkit/fusion.hpp"

namespace lazyt::toolkit {

inline Role role_of(const plugin::ProgramView& program, uint32_t i) {
  const auto name = program.name(program.nodes()[i]);
  if (name == "aten::mm") return Role::kOpaque;
  if (name == "aten::t") return Role::kView;
  if (name == "aten::sum") return Role::kReduction;
  return Role::kPointwise;
}

}  // namespace lazyt::toolkit
