// Lru: a bounded map that forgets what was used longest ago. Not thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <unordered_map>
#include <utility>

namespace lazyt::cache {

template <class Key, class Value, class Hash = std::hash<Key>>
class Lru {
 public:
  explicit Lru(size_t capacity) : capacity_(capacity) {}

  // Null if absent; the pointer is valid until the next put.
  Value* get(const Key& key) {
    auto it = index_.find(key);
    if (it == index_.end()) return nullptr;
    order_.splice(order_.begin(), order_, it->second);
    return &it->second->second;
  }
  // evicted: receives the value that had to go, for whoever must destroy it elsewhere; may be null.
  Value& put(Key key, Value value, Value* evicted = nullptr) {
    if (Value* old = get(key)) return *old = std::move(value);
    order_.emplace_front(std::move(key), std::move(value));
    index_[order_.front().first] = order_.begin();
    if (order_.size() > capacity_) {
      index_.erase(order_.back().first);
      if (evicted) *evicted = std::move(order_.back().second);
      order_.pop_back();
      evictions_++;
    }
    return order_.front().second;
  }
  size_t size() const { return order_.size(); }
  size_t evictions() const { return evictions_; }
  void clear() { index_.clear(), order_.clear(); }
  size_t capacity() const { return capacity_; }
  // Exchanges the contents; each keeps its capacity.
  void swap(Lru& other) { order_.swap(other.order_), index_.swap(other.index_); }

 private:
  size_t capacity_, evictions_ = 0;
  std::list<std::pair<Key, Value>> order_;
  std::unordered_map<Key, typename std::list<std::pair<Key, Value>>::iterator, Hash> index_;
};

}  // namespace lazyt::cache
