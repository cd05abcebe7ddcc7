#include "ir/shape_rules.h"

#include "ir/registry.h"
#include "ir/shape_rules/rules.h"

namespace lazyt::ir {

ShapeRule find_shape_rule(std::string_view name, std::string_view overload) {
  static const auto& all = *[] {
    auto* rules = new ShapeRules;
    for (auto add : {add_pointwise, add_products, add_windows, add_reductions, add_norms, add_views, add_indexing}) add(*rules);
    return rules;
  }();
  const ShapeRule* rule = find_in(all.of, name, overload);
  return rule ? *rule : nullptr;
}

}  // namespace lazyt::ir
