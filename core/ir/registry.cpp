#include "ir/registry.h"

#include <algorithm>
#include <string>
#include <unordered_map>

namespace lazyt::ir {

namespace {

constexpr OpInfo kOps[] = {
#include "ir/ops_generated.inc"
};

// "aten::add" and "Tensor" without building the joined string.
struct Key {
  std::string_view name, overload;
  friend bool operator==(const Key&, const Key&) = default;
};
struct KeyHash {
  size_t operator()(const Key& k) const {
    std::hash<std::string_view> hash;
    return hash(k.name) * 31 + hash(k.overload);
  }
};

}  // namespace

const OpInfo* find_op(std::string_view name, std::string_view overload) {
  static const auto* index = [] {
    auto* map = new std::unordered_map<Key, const OpInfo*, KeyHash>;
    for (const OpInfo& op : kOps) map->emplace(Key{op.name, op.overload}, &op);
    return map;
  }();
  auto it = index->find({name, overload});
  return it == index->end() ? nullptr : it->second;
}

const OpInfo* find_op(uint32_t number) {
  auto it = std::lower_bound(std::begin(kOps), std::end(kOps), number,
                             [](const OpInfo& op, uint32_t n) { return op.number < n; });
  return it != std::end(kOps) && it->number == number ? it : nullptr;
}

std::span<const OpInfo> all_ops() { return kOps; }

int32_t arg_index(const OpInfo& op, std::string_view arg) {
  // Arguments are "type name[=default]" between commas; a comma inside brackets belongs to a default.
  int32_t index = 0;
  int depth = 0;
  std::string_view s = op.schema.substr(1, op.schema.find(") ->") - 1);
  for (size_t start = 0, i = 0; i <= s.size(); i++) {
    if (i < s.size() && (s[i] == '[' || s[i] == '(')) depth++;
    if (i < s.size() && (s[i] == ']' || s[i] == ')')) depth--;
    if (i < s.size() && (s[i] != ',' || depth > 0)) continue;
    std::string_view one = s.substr(start, i - start);
    one = one.substr(0, one.find('='));
    if (one.substr(one.rfind(' ') + 1) == arg) return index;
    if (one.find('*') == std::string_view::npos) index++;
    start = i + 1;
  }
  return -1;
}

}  // namespace lazyt::ir
