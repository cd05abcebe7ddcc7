// dims.hpp - sizes, strides and orders of dims: a vector of int64_t that allocates nothing for ranks that programs have.
//
// A compiler copies layouts by the thousand for each program; as std::vector they were half of its time.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_DIMS_HPP_
#define LAZYT_TOOLKIT_DIMS_HPP_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <vector>

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

// As std::vector<int64_t>, from and to which it converts.
class Dims {
 public:
  using value_type = int64_t;
  using size_type = size_t;
  using difference_type = ptrdiff_t;
  using reference = int64_t&;
  using const_reference = const int64_t&;
  using iterator = int64_t*;
  using const_iterator = const int64_t*;

  Dims() = default;
  explicit Dims(size_t n, int64_t value = 0) { resize(n, value); }
  Dims(std::initializer_list<int64_t> list) : Dims(list.begin(), list.end()) {}
  template <std::forward_iterator It>
  Dims(It first, It last) {
    assign(first, last);
  }
  Dims(const std::vector<int64_t>& v) : Dims(v.begin(), v.end()) {}
  Dims(const Dims& other) : Dims(other.begin(), other.end()) {}
  Dims(Dims&& other) noexcept { take(other); }
  Dims& operator=(const Dims& other) {
    if (this != &other) assign(other.begin(), other.end());
    return *this;
  }
  Dims& operator=(Dims&& other) noexcept {
    if (this == &other) return *this;
    release();
    take(other);
    return *this;
  }
  ~Dims() { release(); }
  operator std::vector<int64_t>() const { return {begin(), end()}; }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t* data() { return data_; }
  const int64_t* data() const { return data_; }
  iterator begin() { return data_; }
  iterator end() { return data_ + size_; }
  const_iterator begin() const { return data_; }
  const_iterator end() const { return data_ + size_; }
  std::reverse_iterator<iterator> rbegin() { return std::reverse_iterator(end()); }
  std::reverse_iterator<iterator> rend() { return std::reverse_iterator(begin()); }
  std::reverse_iterator<const_iterator> rbegin() const { return std::reverse_iterator(end()); }
  std::reverse_iterator<const_iterator> rend() const { return std::reverse_iterator(begin()); }
  int64_t& operator[](size_t i) { return data_[i]; }
  const int64_t& operator[](size_t i) const { return data_[i]; }
  int64_t& front() { return data_[0]; }
  const int64_t& front() const { return data_[0]; }
  int64_t& back() { return data_[size_ - 1]; }
  const int64_t& back() const { return data_[size_ - 1]; }

  void clear() { size_ = 0; }
  void pop_back() { --size_; }
  void push_back(int64_t value) {
    reserve(size_t{size_} + 1);
    data_[size_++] = value;
  }
  void reserve(size_t n) {
    if (n <= capacity_) return;
    const size_t capacity = std::max(n, size_t{2} * capacity_);
    auto* more = new int64_t[capacity];
    std::copy(begin(), end(), more);
    const uint32_t size = size_;
    release();
    data_ = more, capacity_ = static_cast<uint32_t>(capacity), size_ = size;
  }
  void resize(size_t n, int64_t value = 0) {
    reserve(n);
    if (n > size_) std::fill(end(), data_ + n, value);
    size_ = static_cast<uint32_t>(n);
  }
  void assign(size_t n, int64_t value) {
    clear();
    resize(n, value);
  }
  // REQUIRES, here and in insert: the range is not one of this object's.
  template <std::forward_iterator It>
  void assign(It first, It last) {
    clear();
    insert(begin(), first, last);
  }
  iterator insert(const_iterator at, int64_t value) { return insert(at, &value, &value + 1); }
  iterator insert(const_iterator at, size_t n, int64_t value) {
    const iterator p = open(at, n);
    std::fill_n(p, n, value);
    return p;
  }
  iterator insert(const_iterator at, std::initializer_list<int64_t> list) { return insert(at, list.begin(), list.end()); }
  template <std::forward_iterator It>
  iterator insert(const_iterator at, It first, It last) {
    const iterator p = open(at, static_cast<size_t>(std::distance(first, last)));
    std::transform(first, last, p, [](auto x) { return static_cast<int64_t>(x); });
    return p;
  }
  iterator erase(const_iterator at) { return erase(at, at + 1); }
  iterator erase(const_iterator first, const_iterator last) {
    const iterator p = data_ + (first - data_);
    std::copy(last, const_iterator(end()), p);
    size_ -= static_cast<uint32_t>(last - first);
    return p;
  }

  friend bool operator==(const Dims& a, const Dims& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

 private:
  static constexpr uint32_t kInline = 4;  // plans are made of these by the thousand

  iterator open(const_iterator at, size_t n) {
    const ptrdiff_t place = at - data_;
    reserve(size_ + n);
    std::copy_backward(data_ + place, end(), end() + n);
    size_ += static_cast<uint32_t>(n);
    return data_ + place;
  }
  void release() {
    if (data_ != inline_) delete[] data_;
    data_ = inline_, capacity_ = kInline, size_ = 0;
  }
  void take(Dims& other) noexcept {
    if (other.data_ == other.inline_) {
      std::copy_n(other.inline_, other.size_, inline_);
    } else {
      data_ = other.data_, capacity_ = other.capacity_;
      other.data_ = other.inline_, other.capacity_ = kInline;
    }
    size_ = other.size_;
    other.size_ = 0;
  }

  int64_t* data_ = inline_;
  uint32_t size_ = 0, capacity_ = kInline;
  int64_t inline_[kInline];  // the first size_ of them, if data_ is here
};

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_DIMS_HPP_
