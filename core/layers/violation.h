// What the validate layer finds: a rule, who broke it, in which function, and what was seen.
#pragma once

#include <functional>
#include <string>

namespace lazyt::layers {

enum class Side { kHost, kPlugin };

struct Violation {
  std::string rule;  // "BUF-5", as the headers number it
  Side side;
  std::string plugin;    // its name; empty until it told
  std::string function;  // "buffer.to_host"
  std::string seen;
  std::string to_string() const;  // "plugin 'x' broke BUF-5 in buffer.to_host: ..."
};

// Logs the violation as an error and counts it ("ContractViolations"); ends the process if abort is set. [any
// thread]
void report(const Violation& violation, bool abort);

// For tests: `hook` gets every violation in place of the log and of abort; empty takes it back. [any thread]
void on_violation(std::function<void(const Violation&)> hook);

}  // namespace lazyt::layers
