#include "base/status.h"

namespace lazyt::base {

Status::Status(lazyt_code_t code, std::string message)
    : rep_(code == LAZYT_CODE_OK ? nullptr
                                 : std::make_shared<const Rep>(Rep{code, std::move(message), {}})) {}

const std::vector<Note>& Status::notes() const {
  static const auto& none = *new std::vector<Note>;
  return rep_ ? rep_->notes : none;
}

Status Status::with_note(std::string where, std::string detail) const {
  if (!rep_) return *this;
  Rep rep = *rep_;
  rep.notes.push_back({std::move(where), std::move(detail)});
  Status out;
  out.rep_ = std::make_shared<const Rep>(std::move(rep));
  return out;
}

std::string Status::to_string() const {
  if (!rep_) return "OK";
  std::string out = "[" + code_name(rep_->code) + "] " + rep_->message;
  for (const Note& n : rep_->notes) out += "\n  " + n.where + ": " + n.detail;
  return out;
}

std::string code_name(lazyt_code_t code) {
  static constexpr const char* kNames[] = {
      "OK",           "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",  "DEADLINE_EXCEEDED",
      "NOT_FOUND",    "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",      "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",          "UNAVAILABLE",
      "DATA_LOSS",    "UNAUTHENTICATED"};
  if (code >= 0 && code < static_cast<int>(std::size(kNames))) return kNames[code];
  return "CODE_" + std::to_string(code);
}

}  // namespace lazyt::base
