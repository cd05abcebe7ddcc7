// Threads that work on one product together.
#pragma once

namespace lazyt::onednn {

// The part of a product that is thread `rank`'s of a team that works on it together; waits for the others.
struct Team {
  int rank, size;
  void wait() const {
    if (size > 1) {
#pragma omp barrier
    }
  }
};

}  // namespace lazyt::onednn
