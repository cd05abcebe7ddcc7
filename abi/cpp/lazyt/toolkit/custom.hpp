// custom.hpp - the kernels that users hand over for their own operators (lazyt.custom_kernel/1), by operator.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_CUSTOM_HPP_
#define LAZYT_TOOLKIT_CUSTOM_HPP_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "lazyt/plugin.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

// Kernel: what the backend keeps of one. Thread-safe.
template <class Kernel>
class CustomKernels {
 public:
  // The operator that a kernel is handed over for. Throws INVALID_ARGUMENT for what is no user's.
  static std::string name_of(const lazyt_kernel_desc_t& desc) {
    std::string name(plugin::view(desc.name));
    if (name.find("::") == std::string::npos || name.starts_with("aten::"))
      throw plugin::Error(LAZYT_CODE_INVALID_ARGUMENT, "'" + name + "' is no name of an operator of a user: 'mylib::op'");
    return name;
  }

  // Takes the place of one of the same name; programs that have that one keep it.
  void set(std::string name, Kernel kernel) {
    auto shared = std::make_shared<const Kernel>(std::move(kernel));
    std::lock_guard lock(mutex_);
    by_name_[std::move(name)] = std::move(shared);
  }
  // Throws NOT_FOUND.
  void remove(lazyt_string_t name) {
    std::lock_guard lock(mutex_);
    const auto found = by_name_.find(plugin::view(name));
    if (found == by_name_.end())
      throw plugin::Error(LAZYT_CODE_NOT_FOUND, "there is no kernel '" + std::string(plugin::view(name)) + "'");
    by_name_.erase(found);
  }
  // Null if there is none.
  std::shared_ptr<const Kernel> find(std::string_view full_name) const {
    std::lock_guard lock(mutex_);
    const auto found = by_name_.find(full_name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  // That of a node which was taken. Throws FAILED_PRECONDITION if it was removed since.
  std::shared_ptr<const Kernel> of(const plugin::ProgramView& program, const lazyt_node_t& node) const {
    auto kernel = find(program.full_name(node));
    if (!kernel) throw plugin::Error(LAZYT_CODE_FAILED_PRECONDITION, "the kernel of " + program.full_name(node) + " was removed");
    return kernel;
  }
  void clear() {
    std::lock_guard lock(mutex_);
    by_name_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Kernel>, std::less<>> by_name_;
};

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_CUSTOM_HPP_
