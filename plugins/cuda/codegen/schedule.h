// Which steps of a program run at the same place. Steps of one kind run as one launch where none depends on another.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lazyt::cuda {

// Places run in order, the steps of a place together. Steps are told in the program's order; each is put at the earliest
// place of its kind that is behind all that it depends on, or at a new last one. So what two layers do at different times
// may share launches. settle() then moves what nobody waits for to later places of its kind: gradients of a step's
// parameters that are there one by one.
class Schedule {
 public:
  struct Step {
    std::string kind;                  // "" = runs alone
    uint32_t most = 1;                 // steps of its kind that may run together
    std::vector<uint32_t> depends_on;  // steps before it
    // Whether what it writes (reads) is small enough to be kept longer than the order of the program asks for.
    bool may_hurry = true, may_wait = true;
  };
  // may_join(step, other): whether the two may be together, beyond what they depend on.
  explicit Schedule(std::function<bool(uint32_t, uint32_t)> may_join) : may_join_(std::move(may_join)) {}

  void add(Step step);
  void settle();
  // The steps of each place, in order; none is empty. Valid once settled.
  std::vector<std::vector<uint32_t>> places() const;

 private:
  bool fits(uint32_t place, uint32_t step) const;
  void put(uint32_t place, uint32_t step);

  std::function<bool(uint32_t, uint32_t)> may_join_;
  std::vector<Step> steps_;
  std::vector<std::vector<uint32_t>> readers_;  // of steps: who depends on it
  std::vector<uint32_t> place_of_;
  std::vector<std::vector<uint32_t>> places_;
  std::map<std::string, std::vector<uint32_t>> of_kind_;  // places, ascending
};

}  // namespace lazyt::cuda
