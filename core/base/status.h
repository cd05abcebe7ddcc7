// Status: how a function of the core says that it failed. OK costs one pointer.
//
// The codes are the ABI's (status.h there). A message says what failed, where and what to do;
// notes (where, detail) are added on the way up. Statuses are cheap to copy and immutable but for
// with_note, which copies.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lazyt/status.h"

namespace lazyt::base {

struct Note {
  std::string where;
  std::string detail;
};

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(lazyt_code_t code, std::string message);

  bool ok() const { return rep_ == nullptr; }
  lazyt_code_t code() const { return rep_ ? rep_->code : LAZYT_CODE_OK; }
  std::string_view message() const { return rep_ ? std::string_view(rep_->message) : std::string_view(); }
  const std::vector<Note>& notes() const;

  // The same status with one more note; OK stays OK.
  Status with_note(std::string where, std::string detail) const;

  // "[CODE] message\n  where: detail ..." for people.
  std::string to_string() const;

 private:
  struct Rep {
    lazyt_code_t code;
    std::string message;
    std::vector<Note> notes;
  };
  std::shared_ptr<const Rep> rep_;
};

// "INVALID_ARGUMENT" and so on; "CODE_<n>" for a number not known here.
std::string code_name(lazyt_code_t code);

inline Status invalid_argument(std::string m) { return {LAZYT_CODE_INVALID_ARGUMENT, std::move(m)}; }
inline Status not_found(std::string m) { return {LAZYT_CODE_NOT_FOUND, std::move(m)}; }
inline Status failed_precondition(std::string m) { return {LAZYT_CODE_FAILED_PRECONDITION, std::move(m)}; }
inline Status unimplemented(std::string m) { return {LAZYT_CODE_UNIMPLEMENTED, std::move(m)}; }
inline Status internal(std::string m) { return {LAZYT_CODE_INTERNAL, std::move(m)}; }
inline Status unavailable(std::string m) { return {LAZYT_CODE_UNAVAILABLE, std::move(m)}; }
inline Status data_loss(std::string m) { return {LAZYT_CODE_DATA_LOSS, std::move(m)}; }

// A T or the Status that prevented it. REQUIRES: value() only if ok().
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace lazyt::base

// Returns from the calling function when the expression (Status) is an error.
#define LAZYT_RETURN_IF_ERROR(expr)                         \
  do {                                                      \
    if (::lazyt::base::Status status_ = (expr); !status_.ok()) return status_; \
  } while (0)

#define LAZYT_CONCAT_(a, b) a##b
#define LAZYT_CONCAT(a, b) LAZYT_CONCAT_(a, b)
// LAZYT_ASSIGN_OR_RETURN(auto x, f()): x = value of the Result, or returns its status.
#define LAZYT_ASSIGN_OR_RETURN(decl, expr) LAZYT_ASSIGN_OR_RETURN_(decl, expr, LAZYT_CONCAT(result_, __LINE__))
#define LAZYT_ASSIGN_OR_RETURN_(decl, expr, name) \
  auto name = (expr);                             \
  if (!name.ok()) return name.status();           \
  decl = std::move(name).value()
