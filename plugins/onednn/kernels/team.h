// Threads that work on a step together.
#pragma once

#include <omp.h>

#include <cstdint>

#include "streams.h"

namespace lazyt::onednn {

// Thread `rank` of a team of so many.
struct Team {
  int rank, size;
  // Its part of n pieces of work.
  int64_t begin(int64_t n) const { return n * rank / size; }
  int64_t end(int64_t n) const { return n * (rank + 1) / size; }
  // For the others.
  void wait() const {
    if (size > 1) {
      end_of_streams();
#pragma omp barrier
    }
  }
};

// f(team) by so many threads, or fewer. One thread alone is none of OpenMP's: libgomp allocates a team of one, too, and calls the system
// to wake the others, where a small step takes a microsecond.
template <class F>
void with_team(int threads, F&& f) {
  if (threads <= 1) return f(Team{0, 1});
  end_of_streams();  // for the others
#pragma omp parallel num_threads(threads)
  {
    f(Team{omp_get_thread_num(), omp_get_num_threads()});
    end_of_streams();
  }
}

// f(begin, end) for parts of [0, n), one each thread.
template <class F>
void in_parts(int threads, int64_t n, F&& f) {
  with_team(threads, [&](const Team& team) { f(team.begin(n), team.end(n)); });
}

// f(i) for each i < n.
template <class F>
void for_each(int threads, int64_t n, F&& f) {
  in_parts(threads, n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

}  // namespace lazyt::onednn
