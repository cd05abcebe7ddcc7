// What must be true, or the run fails: asked where the program comes to it.
#include "lazyt/toolkit/assertion.hpp"

#include "elements.h"

namespace lazyt::onednn {
namespace {

void check(Builder& b, const Tensor& condition, const std::string& message) {
  b.add("assert", {condition.storage}, {}, [=](const Frame& frame) {
    const std::byte* is = frame.at<std::byte>(condition);
    for (size_t i = 0; i < condition.element(); ++i)
      if (is[i] != std::byte{0}) return;
    throw plugin::Error(LAZYT_CODE_INVALID_ARGUMENT, message);
  });
}

}  // namespace

void register_assertion(Operators& all) { toolkit::add_assertion<Builder, check>(all); }

}  // namespace lazyt::onednn
