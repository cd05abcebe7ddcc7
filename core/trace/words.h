// Words: how operator calls are written into 64-bit words, so that comparing two calls is a memcmp.
//
// The signature of a call holds all that decides its shapes and its program, tensors by geometry:
//   tensor        [kTensor | dtype | rank] [offset] dims... strides...
//   host scalar   [kHostScalar | dtype | weak]            value apart, in the call's scalars
//   list          [kList | count] elements...
//   none          [kNone]
//   number        [kInt | ...] [value]     and so on, ints and doubles in lists as [tag | count] values...
// Offsets of tensors and numbers marked as movable are *movable words*: one that has been seen to change from step to
// step is kMoved there, and its value a host scalar of the call.
// Roles, kept apart, say which value each tensor is: a slot of the trace, or the trace's next input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <vector>

#include "base/shape.h"

namespace lazyt::trace {

enum Tag : uint64_t {
  kNone = 1,
  kTensor,
  kHostScalar,
  kList,
  kInt,
  kDouble,
  kBool,
  kComplex,
  kString,
  kInts,
  kDoubles,
  kBools,
  kGenerator,
};

constexpr uint64_t tagged(Tag tag, uint64_t low = 0, uint64_t mid = 0) {
  return (uint64_t{tag} << 56) | (mid << 32) | low;
}
constexpr Tag tag_of(uint64_t word) { return static_cast<Tag>(word >> 56); }
constexpr uint32_t low_of(uint64_t word) { return static_cast<uint32_t>(word); }
constexpr uint32_t mid_of(uint64_t word) { return static_cast<uint32_t>(word >> 32) & 0xffffff; }

// Flags of a role word; the low 32 bits are the slot.
inline constexpr uint64_t kNewInput = uint64_t{1} << 32;       // first use of data: its meta follows
inline constexpr uint64_t kUninitialised = uint64_t{1} << 33;  // first use of unwritten bytes: their number follows
// A dense part of data, an input of its own: where it begins is no word but comes with the launch.
inline constexpr uint64_t kPartInput = uint64_t{1} << 34;

// Words of the role entry at w.
inline size_t role_words(const uint64_t* w) {
  if (*w & kNewInput) return 3 + 2 * (w[1] >> 8);
  return *w & kUninitialised ? 2 : 1;
}

using Words = std::vector<uint64_t>;

// Words that are written anew for each call: a vector whose growth costs a compare, and that never shrinks.
class WordBuffer {
 public:
  // n words more, to be written by the caller.
  [[gnu::always_inline]] uint64_t* extend(size_t n) {
    if (size_ + n > capacity_) grow(n);
    uint64_t* at = words_.get() + size_;
    size_ += n;
    return at;
  }
  void push_back(uint64_t w) { *extend(1) = w; }
  void append(std::initializer_list<uint64_t> words) {
    std::copy(words.begin(), words.end(), extend(words.size()));
  }
  void clear() { size_ = 0; }
  size_t size() const { return size_; }
  uint64_t* data() { return words_.get(); }
  const uint64_t* data() const { return words_.get(); }
  const uint64_t* begin() const { return data(); }
  const uint64_t* end() const { return data() + size_; }
  bool operator==(const Words& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

 private:
  void grow(size_t n) {
    capacity_ = std::max<size_t>(64, 2 * (size_ + n));
    std::unique_ptr<uint64_t[]> larger(new uint64_t[capacity_]);
    std::copy(begin(), end(), larger.get());
    words_ = std::move(larger);
  }
  std::unique_ptr<uint64_t[]> words_;
  size_t size_ = 0, capacity_ = 0;
};

// [dtype | rank << 8] dims... strides...
template <class Buffer>
void put_meta(Buffer& out, const base::Meta& meta) {
  out.push_back(static_cast<uint64_t>(meta.dtype) | meta.dims.size() << 8);
  for (int64_t d : meta.dims) out.push_back(static_cast<uint64_t>(d));
  for (int64_t s : meta.strides) out.push_back(static_cast<uint64_t>(s));
}

// Reads what put_meta wrote and moves on. dtype INVALID: an undefined tensor.
inline base::Meta take_meta(const uint64_t*& in) {
  base::Meta meta;
  uint64_t head = *in++;
  meta.dtype = static_cast<base::DType>(head & 0xff);
  size_t rank = head >> 8;
  meta.dims.assign(in, in + rank);
  meta.strides.assign(in + rank, in + 2 * rank);
  in += 2 * rank;
  return meta;
}

// Words that the entry at w takes; a list's elements are entries of their own.
inline size_t entry_words(const uint64_t* w) {
  switch (tag_of(*w)) {
    case kTensor: return 2 + 2 * low_of(*w);
    case kInt: case kDouble: case kBool: return 2;
    case kComplex: return 3;
    case kString: return 1 + (low_of(*w) + 7) / 8;
    case kInts: case kDoubles: case kBools: return 1 + low_of(*w);
    default: return 1;
  }
}

// In place of the value of a movable word.
inline constexpr uint64_t kMoved = 0x8000000000000001;
constexpr uint64_t movable(Tag tag) { return tagged(tag, 1); }  // a number that may be moved
constexpr uint64_t number_tag(Tag tag, bool moves, uint64_t value) { return moves && value != kMoved ? movable(tag) : tagged(tag); }
inline bool has_movable_word(const uint64_t* entry) {           // it is entry[1]
  return tag_of(*entry) == kTensor || *entry == movable(kInt) || *entry == movable(kDouble);
}

// Bits by which masks name the entries of a signature that have movable words, in order: tensors from the low end,
// numbers from the high one, since those of an operator on many tensors come last. 0: none is left.
class MovableBits {
 public:
  uint64_t next(const uint64_t* entry) {
    if (tag_of(*entry) == kTensor) return tensors_ < 48 ? uint64_t{1} << tensors_++ : 0;
    return numbers_ < 16 ? uint64_t{1} << (63 - numbers_++) : 0;
  }

 private:
  uint32_t tensors_ = 0, numbers_ = 0;
};

// Calls f(word pointer) for each tensor entry of a signature, in order.
template <class Word, class F>
void for_each_tensor(Word* words, size_t count, F&& f) {
  for (Word *w = words, *end = words + count; w < end; w += entry_words(w))
    if (tag_of(*w) == kTensor) f(w);
}

// The geometry of the tensor entry at w, without its offset.
inline base::Meta meta_of_tensor(const uint64_t* w) {
  const size_t rank = low_of(*w);
  return {static_cast<base::DType>(mid_of(*w)), base::Dims(w + 2, w + 2 + rank), base::Dims(w + 2 + rank, w + 2 + 2 * rank)};
}

inline uint64_t bits_of(double d) {
  uint64_t u;
  std::memcpy(&u, &d, 8);
  return u;
}
inline double double_of(uint64_t u) {
  double d;
  std::memcpy(&d, &u, 8);
  return d;
}

}  // namespace lazyt::trace
