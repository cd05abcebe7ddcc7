#include "schedule.h"

#include <algorithm>
#include <utility>

namespace lazyt::cuda {

// A place of more steps is not taken apart to be rid of it.
constexpr size_t kFew = 8;

bool Schedule::fits(uint32_t place, uint32_t step) const {
  const auto& there = places_[place];
  return !there.empty() && there.size() < steps_[step].most &&
         std::all_of(there.begin(), there.end(), [&](uint32_t other) { return may_join_(step, other); });
}

void Schedule::put(uint32_t place, uint32_t step) {
  places_[place].push_back(step);
  place_of_[step] = place;
}

void Schedule::add(Step step) {
  const auto index = static_cast<uint32_t>(steps_.size());
  uint32_t earliest = 0;
  for (uint32_t d : step.depends_on) {
    earliest = std::max(earliest, place_of_[d] + 1);
    readers_[d].push_back(index);
  }
  steps_.push_back(std::move(step));
  readers_.emplace_back();
  place_of_.push_back(0);
  const Step& added = steps_.back();
  const bool shares = !added.kind.empty() && added.most > 1;
  if (shares) {
    const auto& places = of_kind_[added.kind];
    auto at = std::lower_bound(places.begin(), places.end(), earliest);
    if (!added.may_hurry && at != places.end()) at = places.end() - 1;
    for (; at != places.end(); ++at)
      if (fits(*at, index)) return put(*at, index);
  }
  places_.emplace_back();
  put(static_cast<uint32_t>(places_.size() - 1), index);
  if (shares) of_kind_[added.kind].push_back(place_of_[index]);
}

void Schedule::settle() {
  for (auto place = static_cast<uint32_t>(places_.size()); place-- > 0;) {
    const auto leaving = places_[place];
    const Step& first = steps_[leaving.front()];
    if (leaving.size() > kFew || first.kind.empty() || first.most <= 1) continue;
    const auto& places = of_kind_[first.kind];
    // All of them leave, or none.
    size_t gone = 0;
    for (; gone < leaving.size(); ++gone) {
      const uint32_t step = leaving[gone];
      if (!steps_[step].may_wait) break;
      uint32_t end = static_cast<uint32_t>(places_.size());
      for (uint32_t r : readers_[step]) end = std::min(end, place_of_[r]);
      auto to = std::upper_bound(places.begin(), places.end(), place);
      while (to != places.end() && *to < end && !fits(*to, step)) ++to;
      if (to == places.end() || *to >= end) break;
      put(*to, step);
    }
    if (gone == leaving.size()) {
      places_[place].clear();
      continue;
    }
    for (size_t k = 0; k < gone; ++k) {
      places_[place_of_[leaving[k]]].pop_back();
      place_of_[leaving[k]] = place;
    }
  }
}

std::vector<std::vector<uint32_t>> Schedule::places() const {
  std::vector<std::vector<uint32_t>> out;
  for (const auto& place : places_)
    if (!place.empty()) out.push_back(place);
  return out;
}

}  // namespace lazyt::cuda
