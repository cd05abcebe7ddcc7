// Why operators ran on the host: the first reason of each, beside the counters that say how often.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace lazyt::base {

// The name under which an operator counts that ran on the host: "aten::normal" for the program's lazyt::normal, for
// "lazyt::..." counts what was recorded.
std::string host_name(std::string_view op);

// Kept if it is the operator's first. line: "model.py:12", may be empty. [any thread]
void note_host_reason(std::string_view op, std::string_view reason, std::string_view line);
bool has_host_reason(std::string_view op);  // [any thread]
std::map<std::string, std::string, std::less<>>
host_reasons();  // "aten::sin" -> "dtype: ..., first at model.py:12"

}  // namespace lazyt::base
